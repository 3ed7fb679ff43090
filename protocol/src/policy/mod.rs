//! What an agent may touch: a versioned TOML file with a reason beside each rule.
//!
//! [`Policy::parse`] turns a file's text into rules that are consistent in themselves; it looks at nothing but the
//! text. What the rules mean on a machine (does the path exist, does the kernel have the right, would it open a key)
//! is decided by the sandbox crate, which refuses what it cannot enforce as written. `docs/policy.md` is the
//! operator's description of the format.
//!
//! Invariants of a parsed policy: every rule has a non-empty reason; no path, variable or resource is named twice;
//! paths are absolute or begin with a placeholder, contain no `..` and name no place of secrets ([`secrets`]); a soft limit is not above its hard limit; where
//! egress is `none`, no rule names a port to connect to or a socket that leaves the machine.

mod bounds;
mod check;
pub mod decide;
mod diff;
pub mod egress;
mod error;
mod file;
pub mod learn;
#[cfg(test)]
mod network_tests;
#[cfg(test)]
mod schema_tests;
pub mod secrets;
mod template;
#[cfg(test)]
mod tests;
pub mod told;
mod words;

use sha2::{Digest, Sha256};

use crate::tier::Tier;

pub use bounds::{Bound, Bounds, LEAST_TASKS, Size};
pub use diff::{Diff, Difference};
pub use egress::Egress;
pub use error::PolicyError;
pub use template::{PathTemplate, Place, TextPiece, TextTemplate};
pub use words::{
    Access, Comparison, Errno, Learning, LogSource, Resource, Scope, SocketCall, SocketFamily,
    SocketType, Telling, Width,
};

/// The policy that is used where a profile names none (`policies/developer.toml`).
pub const DEVELOPER: &str = include_str!("../../../policies/developer.toml");

/// For work on code that nobody vouches for: no network, nothing written is run: `policies/strict.toml`.
pub const STRICT: &str = include_str!("../../../policies/strict.toml");

/// The walls of [`DEVELOPER`], with the kernel's record of what they refuse: `policies/audit.toml`.
pub const AUDIT: &str = include_str!("../../../policies/audit.toml");

/// The policies that every build has, by name. A profile may name one instead of a file.
pub const BUILT_IN: [(&str, &str); 3] =
    [("strict", STRICT), ("developer", DEVELOPER), ("audit", AUDIT)];

/// A built-in policy's text; `None`: there is none of that name.
#[must_use]
pub fn built_in(name: &str) -> Option<&'static str> {
    BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// The format as a JSON Schema, for editors that complete and check TOML by one: `policies/policy.schema.json`.
pub const SCHEMA: &str = include_str!("../../../policies/policy.schema.json");

/// The format's version that this build reads.
pub const FORMAT_VERSION: u32 = 1;

/// A parsed policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// SHA-256 of the file's text, in hex.
    pub revision: String,
    /// The policy's name, for people.
    pub name: String,
    /// The weakest tier that a worker under this policy may have.
    pub tier: Tier,
    /// The lowest Landlock ABI that enforces this policy as written.
    pub landlock_abi: u32,
    /// Files and directories that may be touched. Whatever is not named is refused.
    pub paths: Vec<PathRule>,
    /// TCP ports that may be connected to or bound. Whatever is not named is refused.
    pub tcp: Vec<PortRule>,
    /// UDP ports that may be sent to or bound. Whatever is not named is refused, from Landlock ABI 10 on.
    pub udp: Vec<PortRule>,
    /// Which hosts there are; `None`: every one, at the ports of `tcp` and `udp`.
    pub egress: Option<Egress>,
    /// What may not reach out of the session.
    pub scopes: Vec<ScopeRule>,
    /// System calls that are refused. Whatever is not named is allowed.
    pub syscalls: Vec<SyscallRule>,
    /// What socket(2) and socketpair(2) may make, and the errno for the rest.
    pub sockets: SocketRules,
    /// Where the agent's environment comes from. Whatever is not named is left out.
    pub environment: Vec<EnvironmentRule>,
    /// Resource limits of each process.
    pub rlimits: Vec<RlimitRule>,
    /// What the kernel is asked to write down; `None`: nothing.
    pub log: Option<LogRule>,
    /// What a session may take of the machine.
    pub bounds: Bounds,
    /// Why; empty where the policy says nothing of bounds.
    pub bounds_reason: String,
    /// Whether whoever prompts is told of refusals.
    pub denials: Telling,
    /// Whether its walls may be opened to learn.
    pub learning: Learning,
}

impl Policy {
    /// Reads a policy file's text.
    ///
    /// # Errors
    /// [`PolicyError`] for an unknown field, a wrong value, a rule without a reason, or rules that contradict each
    /// other. The first one found is reported.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let file: file::File =
            toml::from_str(text).map_err(|e| PolicyError::from_toml(text, &e))?;
        let digest = Sha256::digest(text.as_bytes());
        let revision = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        check::Checker::new(text).policy(file, revision)
    }

    /// How many rules there are, of all kinds.
    #[must_use]
    pub fn rule_count(&self) -> usize {
        self.paths.len()
            + self.tcp.len()
            + self.udp.len()
            + self.egress.as_ref().map_or(0, |egress| egress.hosts.len())
            + self.scopes.len()
            + self.syscalls.len()
            + self.sockets.allow.len()
            + self.environment.len()
            + self.rlimits.len()
    }

    /// Whether the kernel is asked to write down these refusals.
    #[must_use]
    pub fn logs(&self, source: LogSource) -> bool {
        self.log.as_ref().is_some_and(|log| log.what.contains(&source))
    }
}

/// What may be done at a path and, where it is a directory, everywhere below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathRule {
    /// The path.
    pub path: PathTemplate,
    /// The rights; never empty, no right twice.
    pub access: Vec<Access>,
    /// A worker does not start where the path is missing.
    pub required: bool,
    /// The weakest tier at which the rule applies: `/dev/pts` is the session's own in a namespace only.
    pub tier: Tier,
    /// Why.
    pub reason: String,
    /// The line in the file, from 1.
    pub line: usize,
}

/// TCP or UDP ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortRule {
    /// Ports that connect(2) may name; of UDP, sendto(2) as well.
    pub connect: Vec<Port>,
    /// Ports that bind(2) may name.
    pub bind: Vec<Port>,
    /// Why.
    pub reason: String,
    /// The line in the file, from 1.
    pub line: usize,
}

/// A port or a placeholder for ports that the allocator hands out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Port {
    /// This one. 0 in `bind`: any port that the kernel picks.
    Number(u16),
    /// `{ports}`: the session's own ports.
    Own,
    /// `{connect}`: the ports that the profile adds.
    Connect,
}

/// One kind of thing that may not reach out of the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScopeRule {
    /// The kind.
    pub kind: Scope,
    /// Why.
    pub reason: String,
    /// The line in the file, from 1.
    pub line: usize,
}

/// System calls that are refused with an errno.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyscallRule {
    /// Names as in syscalls(2); never empty.
    pub names: Vec<String>,
    /// What the caller sees.
    pub errno: Errno,
    /// Refused only where all of these hold; empty: always.
    pub when: Vec<Condition>,
    /// Why.
    pub reason: String,
    /// The line in the file, from 1.
    pub line: usize,
}

/// A test of one argument of a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition {
    /// Which argument, 0 to 5.
    pub argument: u8,
    /// How much of it the kernel looks at. Comparing 64 bits of what the kernel truncates to 32 is a hole.
    pub width: Width,
    /// The test.
    pub comparison: Comparison,
}

// === impl Condition ===

impl Condition {
    /// Whether it holds for a call's arguments; `None` where the one that it tests is not known.
    #[must_use]
    pub fn holds(&self, arguments: &[Option<u64>]) -> Option<bool> {
        let value = arguments.get(usize::from(self.argument)).copied().flatten()?;
        Some(self.comparison.holds(match self.width {
            Width::Bits32 => value & 0xffff_ffff,
            Width::Bits64 => value,
        }))
    }
}

impl std::fmt::Display for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "argument {} {}", self.argument, self.comparison)
    }
}

impl std::fmt::Display for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Own => f.write_str("{ports}"),
            Self::Connect => f.write_str("{connect}"),
        }
    }
}

/// What socket(2) and socketpair(2) may make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketRules {
    /// What the caller sees for any other combination.
    pub errno: Errno,
    /// Why the rest is refused.
    pub reason: String,
    /// The line of `[sockets]` in the file, from 1.
    pub line: usize,
    /// The combinations that are allowed.
    pub allow: Vec<SocketRule>,
}

// === impl SocketRules ===

impl SocketRules {
    /// The rules that allow something to `call` where a worker has this tier and the kernel this Landlock ABI.
    pub fn allowing(
        &self,
        call: SocketCall,
        tier: Tier,
        landlock_abi: u32,
    ) -> impl Iterator<Item = &SocketRule> {
        self.allow.iter().filter(move |rule| {
            rule.calls.contains(&call) && rule.tier <= tier && rule.landlock_abi <= landlock_abi
        })
    }
}

/// Combinations of family, type and protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketRule {
    /// The family.
    pub family: SocketFamily,
    /// The types; never empty.
    pub types: Vec<SocketType>,
    /// The protocol numbers (0: the family's default); never empty.
    pub protocols: Vec<u32>,
    /// The calls that may make them; never empty, no call twice.
    pub calls: Vec<SocketCall>,
    /// The weakest tier at which the rule applies.
    pub tier: Tier,
    /// The lowest Landlock ABI at which the rule applies; 0: any.
    pub landlock_abi: u32,
    /// Why.
    pub reason: String,
    /// The line in the file, from 1.
    pub line: usize,
}

/// Variables of the agent's environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvironmentRule {
    /// Taken from the supervisor's own environment, where it has them.
    pub pass: Vec<String>,
    /// Set. One whose placeholder stands for nothing here is left out.
    pub set: Vec<(String, TextTemplate)>,
    /// Why.
    pub reason: String,
    /// The line in the file, from 1.
    pub line: usize,
}

/// A limit as in setrlimit(2); `None` is unlimited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RlimitRule {
    /// What is limited.
    pub resource: Resource,
    /// The limit in force.
    pub soft: Option<u64>,
    /// How far the agent may raise it.
    pub hard: Option<u64>,
    /// Why.
    pub reason: String,
    /// The line in the file, from 1.
    pub line: usize,
}

/// What the kernel is asked to write to its audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRule {
    /// Whose refusals; never empty, none twice.
    pub what: Vec<LogSource>,
    /// A worker does not start where the kernel cannot.
    pub required: bool,
    /// Why.
    pub reason: String,
    /// The line of `[log]` in the file, from 1.
    pub line: usize,
}
