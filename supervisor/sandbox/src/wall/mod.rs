//! A policy made concrete: an opened Landlock ruleset, seccomp programs, resource limits and an environment.
//!
//! Built in the parent, where allocation and errors are cheap; enforced by the spawner in the child, which only needs
//! a descriptor and slices. Owns the ruleset's descriptor; a [`Wall`] never changes after it was built.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use casemate_protocol::policy::Policy;
use casemate_protocol::tier::Tier;
use casemate_protocol::worker::PortRange;

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
    /// What no wall may ever grant, checked on resolved paths: `state/`, configuration, keys, other sessions.
    pub never: Vec<PathBuf>,
    /// `{ports}`: the session's own TCP ports.
    pub ports: PortRange,
    /// `{connect}`: further TCP ports that the session may connect to.
    pub connect: Vec<u16>,
    /// The tier that was set up: rules that need a stronger one are left out.
    pub tier: Tier,
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

/// A resource limit to set in the child, already clamped to what this process may set (setrlimit(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rlimit {
    /// `RLIMIT_*`.
    pub resource: libc::__rlimit_resource_t,
    /// The soft limit.
    pub soft: u64,
    /// The hard limit.
    pub hard: u64,
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
    ruleset: OwnedFd,
    programs: Vec<Program>,
    rlimits: Vec<Rlimit>,
}

/// Why a wall is not built.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WallError(String);

impl Wall {
    /// Opens and compiles everything that the child will need.
    ///
    /// # Errors
    /// [`WallError`] where the policy cannot be enforced exactly as written.
    pub fn build(_policy: &Policy, _places: &Places) -> Result<Self, WallError> {
        todo!()
    }

    /// A wall of given parts, for what a policy file cannot say (a fixed wall of the kernel report or of a test).
    #[must_use]
    pub fn from_parts(ruleset: OwnedFd, programs: Vec<Program>, rlimits: Vec<Rlimit>) -> Self {
        Self { id: WallId::next(), ruleset, programs, rlimits }
    }

    /// This wall's name towards the spawner.
    pub(crate) fn id(&self) -> WallId {
        self.id
    }

    /// The Landlock ruleset for `landlock_restrict_self(2)`; close-on-exec.
    #[must_use]
    pub fn ruleset_fd(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.ruleset.as_fd()
    }

    /// The seccomp programs, to be installed in this order after the ruleset: one that restricts seccomp(2) itself
    /// comes last.
    #[must_use]
    pub fn programs(&self) -> &[Program] {
        &self.programs
    }

    /// The resource limits.
    #[must_use]
    pub fn rlimits(&self) -> &[Rlimit] {
        &self.rlimits
    }

    /// One line a mechanism, for `/v1/status`.
    #[must_use]
    pub fn summary(&self) -> Vec<String> {
        todo!()
    }
}

/// The environment that the policy gives an agent: what it passes on from this process, then what it sets.
#[must_use]
pub fn environment(_policy: &Policy, _places: &Places) -> Vec<(String, String)> {
    todo!()
}
