//! Why a wall is not built.

use std::io;
use std::path::PathBuf;

use casemate_protocol::policy::PolicyError;
use casemate_protocol::words::chain;

/// Why a wall is not built: the machine's fault ([`WallError::is_kernel`]), or the policy's or the profile's.
#[derive(Debug, thiserror::Error)]
pub enum WallError {
    /// Landlock is not there at all.
    #[error("landlock is not available; use Linux {} or later and add landlock to the lsm= boot parameter", release_of(*required))]
    NoLandlock {
        /// The ABI that the policy requires.
        required: u32,
        /// ENOSYS or EOPNOTSUPP.
        #[source]
        source: io::Error,
    },
    /// The kernel is older than the policy needs.
    #[error(
        "the policy requires landlock abi {required} and this kernel has {found}: use Linux {} or a policy that requires less",
        release_of(*required)
    )]
    Kernel {
        /// The ABI that the policy requires.
        required: u32,
        /// The kernel's.
        found: u32,
    },
    /// A required path does not exist here.
    #[error("policy line {line}: required path {} does not exist: create it, or set required = false", path.display())]
    MissingPath {
        /// The path.
        path: PathBuf,
        /// The rule's line.
        line: usize,
    },
    /// A required placeholder stands for nothing here.
    #[error(
        "policy line {line}: required placeholder {placeholder} stands for nothing here: set it in the profile, or set required = false"
    )]
    MissingPlace {
        /// The placeholder.
        placeholder: String,
        /// The rule's line.
        line: usize,
    },
    /// A path could not be looked at.
    #[error("cannot open {}; correct the path or its permissions", path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A grant that contains, is, or lies within what no agent may have.
    #[error(
        "{} would grant {} (it is {}), and no agent may have {}: name a narrower path",
        rule(*line), path.display(), real.display(), never.display()
    )]
    Never {
        /// The path as the rule names it.
        path: PathBuf,
        /// What it resolves to, or the mount below it that is in the way.
        real: PathBuf,
        /// What must stay closed.
        never: PathBuf,
        /// The rule's line; `None`: not from the policy but from the caller's own list.
        line: Option<usize>,
    },
    /// A grant that contains, is, or lies within a place where keys and tokens are mounted.
    #[error(
        "{} would grant {} (it is {}), and with it {}, where secrets are mounted: nothing in a granted directory can be closed again, \
         so name narrower paths beside it, or mount the secret elsewhere",
        rule(*line), path.display(), real.display(), secret.display()
    )]
    Secret {
        /// The path as the rule names it.
        path: PathBuf,
        /// What it resolves to, or the mount below it that is in the way.
        real: PathBuf,
        /// Where the secrets are.
        secret: PathBuf,
        /// The rule's line; `None`: not from the policy but from the caller's own list.
        line: Option<usize>,
    },
    /// A rule whose path leads through a link that a session could have made.
    #[error(
        "{} names {}, which leads through {}, and a session may write there, so it can turn that to anything: \
         remove the link, or name a directory that no session may write",
        rule(*line), path.display(), link.display()
    )]
    Moved {
        /// The path as the rule names it.
        path: PathBuf,
        /// The link (or the `..` of another one) that is not followed.
        link: PathBuf,
        /// The rule's line; `None`: not from the policy but from the caller's own list.
        line: Option<usize>,
    },
    /// A path on a mount that this process does not see, so that nobody can say what it really is.
    #[error("cannot tell which file system {} is on: name a path on a mount that /proc/thread-self/mountinfo lists", path.display())]
    Elsewhere {
        /// The path.
        path: PathBuf,
    },
    /// The mount table, which tells what a path really is, could not be read.
    #[error("cannot read /proc/thread-self/mountinfo; mount /proc before starting a worker")]
    Mounts(#[source] io::Error),
    /// `[egress]` asks for more than this build's walls hold.
    #[error("policy line {line}: egress mode {mode} is {why}")]
    NotEnforced {
        /// The mode.
        mode: casemate_protocol::policy::egress::Mode,
        /// Why, and what to write instead.
        why: &'static str,
        /// The section's line.
        line: usize,
    },
    /// The kernel refused the ruleset.
    #[error("landlock refused {what}")]
    Landlock {
        /// What was being added.
        what: String,
        /// What the kernel said.
        #[source]
        source: landlock::RulesetError,
    },
    /// A name that is no system call.
    #[error(
        "policy line {line}: there is no system call \"{name}\": correct its name as in syscalls(2)"
    )]
    UnknownSyscall {
        /// The name.
        name: String,
        /// The rule's line.
        line: usize,
    },
    /// A condition with more alternatives than a filter can hold.
    #[error(
        "policy line {line}: the conditions have more than {limit} alternatives: use fewer bits in any-bits"
    )]
    TooManyAlternatives {
        /// The rule's line.
        line: usize,
        /// The limit.
        limit: usize,
    },
    /// The program is longer than the kernel takes.
    #[error(
        "the system call rules make a filter of {length} instructions, and the kernel takes {limit}: remove some"
    )]
    FilterTooLong {
        /// Its length.
        length: usize,
        /// The kernel's limit.
        limit: usize,
    },
    /// A test of an argument could not be compiled.
    #[error("a test of an argument cannot be compiled; correct the rules with `when`")]
    Filter(#[from] seccompiler::BackendError),
    /// This build does not know how to filter on this architecture.
    #[error("system calls cannot be filtered on {0}: use x86_64 or aarch64")]
    Architecture(&'static str),
    /// The limits of this process could not be read.
    #[error("cannot read resource limit {resource}")]
    Rlimit {
        /// Which.
        resource: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

// === impl WallError ===

impl WallError {
    /// The machine lacks what the policy requires; otherwise the policy or the profile is to be mended.
    #[must_use]
    pub fn is_kernel(&self) -> bool {
        matches!(self, Self::NoLandlock { .. } | Self::Kernel { .. } | Self::Architecture(_))
    }

    /// The same of the policy's text: where in it, as far as it is about a rule.
    #[must_use]
    pub fn in_text(&self, text: &str) -> PolicyError {
        let words = self.to_string();
        let Some((line, quoted)) = self.place() else {
            return PolicyError { position: None, message: chain(self) };
        };
        let head = format!("policy line {line}");
        let rest = words.strip_prefix(&head).map(|rest| rest.trim_start_matches([':', ' ']));
        PolicyError::in_table(text, line, &quoted, rest.unwrap_or(&words))
    }

    /// The line of the rule that it is about, and what that names.
    fn place(&self) -> Option<(usize, String)> {
        match self {
            Self::MissingPath { path, line } => Some((*line, path.display().to_string())),
            Self::Never { path, line, .. }
            | Self::Secret { path, line, .. }
            | Self::Moved { path, line, .. } => Some(((*line)?, path.display().to_string())),
            Self::MissingPlace { placeholder, line } => Some((*line, placeholder.clone())),
            Self::NotEnforced { mode, line, .. } => Some((*line, mode.to_string())),
            Self::UnknownSyscall { name, line } => Some((*line, name.clone())),
            Self::TooManyAlternatives { line, .. } => Some((*line, "any-bits".to_owned())),
            _ => None,
        }
    }
}

fn rule(line: Option<usize>) -> String {
    line.map_or_else(|| "the caller".to_owned(), |line| format!("policy line {line}"))
}

/// The first kernel release with an ABI (landlock(7)).
fn release_of(abi: u32) -> &'static str {
    match abi {
        0 | 1 => "5.13",
        2 => "5.19",
        3 => "6.2",
        4 => "6.7",
        5 => "6.10",
        6 => "6.12",
        7 => "6.15",
        8 => "7.0",
        9 => "7.1",
        10 => "7.2",
        _ => "of a later version than this build knows",
    }
}
