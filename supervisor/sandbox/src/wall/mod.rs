//! A policy made concrete: an opened Landlock ruleset, seccomp programs, resource limits and an environment.
//!
//! Built in the parent, where allocation and errors are cheap; enforced by the spawner in the child, which only needs
//! a descriptor and slices. Owns the ruleset's descriptor; a [`Wall`] never changes after it was built.

mod egress;
mod environment;
mod errata;
mod error;
mod grants;
mod lacks;
mod log;
mod mounts;
mod never;
mod open;
mod private;
pub(crate) mod program;
mod reach;
mod rlimits;
mod ruleset;
mod seccomp;
mod secrets;
mod sockets;
pub(crate) mod syscalls;
#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use casemate_protocol::policy::{LogSource, Policy};
use casemate_protocol::ports::PortRange;
use casemate_protocol::tier::Tier;

use crate::listener::{Listener, Recorder, Telling};
pub use egress::check_egress;
use nix::sys::resource::{Resource, getrlimit};

pub use environment::environment;
pub(crate) use errata::errata;
pub use error::WallError;
pub(crate) use lacks::lacks;
pub use log::Logging;
pub use never::shows_nothing_of;
pub use reach::{Reach, Reached};
pub use rlimits::Rlimit;
pub use ruleset::{check_paths, landlock_abi};
pub use seccomp::check_calls;
pub(crate) use seccomp::{Verdicts, learning, notifying, own_architecture, telling};
pub use secrets::{mounted_secrets, shows_no_secret};
pub use syscalls::syscall_number;

/// The concrete paths and ports that a policy's placeholders stand for.
#[derive(Debug, Clone)]
pub struct Places {
    /// `{work}`: the worktree.
    pub work: PathBuf,
    /// `{home}`: the agent's HOME.
    pub home: PathBuf,
    /// `{scratch}`: the agent's TMPDIR.
    pub scratch: PathBuf,
    /// `{skills}`: read-only, if there are any.
    pub skills: Option<PathBuf>,
    /// `{programs}`: the agent's own installation.
    pub programs: Vec<PathBuf>,
    /// Readable for this wall only (the repository while cloning).
    pub read: Vec<PathBuf>,
    /// What no wall may ever grant, checked on resolved paths: `state/`, configuration, keys, other sessions. A grant
    /// that is, contains, or lies within one of these is refused, so none may be above the session's own places.
    pub never: Vec<PathBuf>,
    /// Directories of which nothing may be granted but what lies in this session's `work`, `home` and `scratch`, checked as
    /// `never` is: casemate's home with its keys, its store and the other slots.
    pub private: Vec<PathBuf>,
    /// `{ports}`: the session's own TCP ports.
    pub ports: PortRange,
    /// `{connect}`: further TCP ports that the session may connect to.
    pub connect: Vec<u16>,
    /// The tier that was set up: rules that need a stronger one are left out.
    pub tier: Tier,
}

impl Places {
    /// A session's three directories in that tier, and nothing besides.
    #[must_use]
    pub fn new(work: PathBuf, home: PathBuf, scratch: PathBuf, tier: Tier) -> Self {
        Self {
            work,
            home,
            scratch,
            skills: None,
            programs: Vec::new(),
            read: Vec::new(),
            never: Vec::new(),
            private: Vec::new(),
            ports: PortRange { first: 0, count: 0 },
            connect: Vec::new(),
            tier,
        }
    }
}

/// Which layers of a policy a wall is built of. A wall of fewer than all is weaker than its policy says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layers {
    /// Paths and ports.
    pub landlock: bool,
    /// Landlock's scopes: signals and abstract sockets.
    pub scope: bool,
    /// System calls and kinds of sockets.
    pub seccomp: bool,
    /// Resource limits.
    pub rlimits: bool,
}

impl Layers {
    /// What a policy says, all of it.
    pub const ALL: Self = Self { landlock: true, scope: true, seccomp: true, rlimits: true };
}

/// One seccomp program, as `seccomp(SECCOMP_SET_MODE_FILTER)` takes it (seccomp(2)).
#[derive(Debug, Clone)]
pub struct Program {
    instructions: Vec<libc::sock_filter>,
}

impl Program {
    /// A program of these instructions.
    #[must_use]
    pub fn new(instructions: Vec<libc::sock_filter>) -> Self {
        Self { instructions }
    }

    /// The instructions; at most 4095, so the length fits `sock_fprog::len`.
    #[must_use]
    pub fn instructions(&self) -> &[libc::sock_filter] {
        &self.instructions
    }
}

/// Tells walls apart for the life of this process, so that a session's spawner keeps those that it was handed.
/// A descriptor's number would not do: it is given to another file once it is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct WallId(pub(crate) u64);

impl WallId {
    /// One that no other wall of this process has.
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A compiled policy: an opened Landlock ruleset and seccomp programs. Built in the parent, enforced in the child.
#[derive(Debug)]
pub struct Wall {
    id: WallId,
    ruleset: Option<OwnedFd>,
    programs: Vec<Program>,
    rlimits: Vec<Rlimit>,
    logging: Logging,
    notes: Vec<String>,
    /// What its program was made of, where its refusals can be told.
    verdicts: Option<Verdicts>,
    telling: Option<Telling>,
}

// === impl Wall ===

impl Wall {
    /// Opens and compiles everything that the child will need.
    ///
    /// # Errors
    /// [`WallError`] where the policy cannot be enforced exactly as written.
    pub fn build(policy: &Policy, places: &Places) -> Result<Self, WallError> {
        Self::build_of(policy, places, Layers::ALL)
    }

    /// As [`Wall::build`], of some layers only.
    ///
    /// # Errors
    /// [`WallError`] where they cannot be enforced exactly as written.
    pub fn build_of(policy: &Policy, places: &Places, layers: Layers) -> Result<Self, WallError> {
        check_egress(policy)?;
        // Without Landlock no rule may count on what it restricts.
        let abi = if layers.landlock || layers.scope { ruleset::require(policy)? } else { 0 };
        let calls = if layers.landlock { abi } else { 0 };
        let (mut ruleset, mut notes) = (None, Vec::new());
        if layers.landlock || layers.scope {
            let opened = ruleset::open_of(policy, places, abi, layers)?;
            ruleset = opened.fd;
            notes.extend(opened.notes);
        }
        let (programs, verdicts) = match layers.seccomp {
            true => seccomp::compile(policy, places.tier, calls)?,
            false => Default::default(),
        };
        if layers.seccomp {
            let instructions: usize =
                programs.iter().map(|program| program.instructions.len()).sum();
            notes.push(format!(
                "seccomp {} rules, {} kinds of sockets, {instructions} instructions",
                policy.syscalls.len(),
                policy.sockets.allow.len(),
            ));
            notes.push(sockets::note(&policy.sockets, places.tier, calls));
            notes.extend(sockets::udp_note(&policy.sockets, places.tier, calls));
        } else {
            notes.push("no seccomp: every system call and kind of socket".to_owned());
        }
        match (layers.landlock, layers.seccomp) {
            (true, true) => notes.push(egress::note(policy, places)),
            (true, false) => {}
            (false, _) => notes.push("no landlock: every path and port of this user".to_owned()),
        }
        notes.extend(log::note(policy, abi));
        let (rlimits, lowered) =
            if layers.rlimits { rlimits::fit(policy)? } else { Default::default() };
        notes.extend(lowered);
        let logging = log::flags(policy, abi);
        let verdicts = tellable(policy, verdicts);
        let (id, telling) = (WallId::next(), None);
        Ok(Self { id, ruleset, programs, rlimits, logging, notes, verdicts, telling })
    }

    /// **No wall**: opens to a run whatever its user may do, and has a [`Recorder`] hear what it tries. What stays closed is
    /// [`Places::never`] and everything that the policy's scopes keep in. For a person on a machine of his own, to learn what a
    /// program needs; never where others' sessions are.
    ///
    /// # Errors
    /// [`WallError`], as [`Wall::build`].
    pub fn learning(
        policy: &Policy,
        places: &Places,
        recorder: Arc<dyn Recorder>,
    ) -> Result<Self, WallError> {
        let abi = ruleset::require(policy)?;
        let (_, verdicts) = seccomp::compile(policy, places.tier, abi)?;
        let (rlimits, lowered) = rlimits::fit(policy)?;
        let ruleset = ruleset::open_learning(policy, places)?;
        let mut notes =
            vec!["LEARNING: no wall; what the policy refuses is noted and let through".to_owned()];
        notes.extend(ruleset.notes);
        notes.extend(lowered);
        Ok(Self {
            id: WallId::next(),
            ruleset: ruleset.fd,
            programs: Vec::new(),
            rlimits,
            logging: Logging::default(),
            notes,
            verdicts: None,
            telling: Some(Telling::learning(&verdicts, recorder)?),
        })
    }

    /// A wall of given parts, for what a policy file cannot say (a fixed wall of the kernel report or of a test).
    #[must_use]
    pub fn from_parts(ruleset: OwnedFd, programs: Vec<Program>, rlimits: Vec<Rlimit>) -> Self {
        let (logging, notes, ruleset) = (Logging::default(), Vec::new(), Some(ruleset));
        let (id, verdicts, telling) = (WallId::next(), None, None);
        Self { id, ruleset, programs, rlimits, logging, notes, verdicts, telling }
    }

    /// Lets each process behind the wall start another only while the kernel counts fewer than `tasks` of its user in its user
    /// namespace (RLIMIT_NPROC). Of use where nothing but one worker runs as that user there.
    #[must_use]
    pub fn limit_tasks(mut self, tasks: u32) -> Self {
        // Beyond its own hard limit this process could not set it, and it holds in any case.
        let own = getrlimit(Resource::RLIMIT_NPROC).map_or(libc::RLIM_INFINITY, |(_, hard)| hard);
        rlimits::lower(&mut self.rlimits, libc::RLIMIT_NPROC, own.min(tasks.into()));
        self
    }

    /// Has somebody hear of what processes behind the wall try of the network, and of the system calls and sockets that its policy
    /// refuses ([`crate::Listener`]). A process has one such wall around it at most, whoever made the other.
    ///
    /// # Errors
    /// [`WallError::Architecture`].
    pub fn told_to(mut self, listener: Arc<dyn Listener>) -> Result<Self, WallError> {
        self.telling = Some(Telling::new(self.verdicts.as_ref(), listener)?);
        Ok(self)
    }

    /// Who hears, and the program for it.
    pub(crate) fn telling(&self) -> Option<&Telling> {
        self.telling.as_ref()
    }

    /// This wall's name towards the spawner.
    pub(crate) fn id(&self) -> WallId {
        self.id
    }

    /// The Landlock ruleset for `landlock_restrict_self(2)`; close-on-exec. `None` where no layer needs one.
    #[must_use]
    pub fn ruleset_fd(&self) -> Option<BorrowedFd<'_>> {
        self.ruleset.as_ref().map(AsFd::as_fd)
    }

    /// The seccomp programs, to be installed in this order after the ruleset.
    #[must_use]
    pub fn programs(&self) -> &[Program] {
        &self.programs
    }

    /// The resource limits.
    #[must_use]
    pub fn rlimits(&self) -> &[Rlimit] {
        &self.rlimits
    }

    /// What the kernel is told about its log.
    #[must_use]
    pub fn logging(&self) -> Logging {
        self.logging
    }

    /// One line a mechanism, for `/v1/status`.
    #[must_use]
    pub fn summary(&self) -> Vec<String> {
        self.notes.clone()
    }
}

/// Where the kernel is to record what the filter refuses, the filter has to refuse it by itself.
fn tellable(policy: &Policy, verdicts: Verdicts) -> Option<Verdicts> {
    (!policy.logs(LogSource::Seccomp)).then_some(verdicts)
}
