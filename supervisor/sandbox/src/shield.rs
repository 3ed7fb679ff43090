//! The supervisor's own shield: the agent has the same uid, so nothing but these settings and the walls stands between.
//!
//! Two steps: [`harden`] before the spawner, whose agents keep what it sets, and [`confine`] after it, as they must not.
//!
//! Called once, by the single thread of PID 1 (or of the plain process), after its uid_map has been written:
//! capabilities and no_new_privs belong to threads and are inherited by those started later.

pub mod calls;
mod filter;
mod refused;

use std::fmt;

use caps::{CapSet, CapsHashSet};
use nix::errno::Errno;

pub use filter::{Confined, confine};
pub use refused::refused_calls;

use crate::single::require_single_thread;
use crate::wall::WallError;

/// What was set, asserted and found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShieldReport {
    /// Memory-Deny-Write-Execute.
    pub mdwe: Mdwe,
    /// The capability bounding set.
    pub bounding: Bounding,
}

/// Memory-Deny-Write-Execute (PR_SET_MDWE in prctl(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mdwe {
    /// No page of this process becomes executable after it was writable.
    On,
    /// The kernel cannot set it for this process alone (before Linux 6.6); agents with a JIT would inherit it.
    Unsupported,
}

/// The capability bounding set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bounding {
    /// Empty: not even a file with capabilities could give one.
    Empty,
    /// This many capabilities are left in it, as dropping them needs CAP_SETPCAP; no_new_privs makes them unreachable.
    Kept(usize),
}

impl ShieldReport {
    /// One line a mechanism, for `/v1/status`.
    #[must_use]
    pub fn summary(&self) -> Vec<String> {
        vec![
            "non-dumpable".to_owned(),
            "no new privileges".to_owned(),
            "capabilities none".to_owned(),
            self.bounding.to_string(),
            self.mdwe.to_string(),
        ]
    }
}

impl fmt::Display for Mdwe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::On => "memory never writable and executable",
            Self::Unsupported => "memory-deny-write-execute not available (needs Linux 6.6)",
        })
    }
}

impl fmt::Display for Bounding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("capability bounding set empty"),
            Self::Kept(count) => write!(f, "capability bounding set {count}, out of reach"),
        }
    }
}

/// Why the shield does not hold; the process must not go on.
#[derive(Debug, thiserror::Error)]
pub enum ShieldError {
    /// Threads exist already; they would keep what this one drops.
    #[error("the shield must be raised before any thread is started")]
    Threads(#[source] std::io::Error),
    /// PR_SET_DUMPABLE.
    #[error("the process cannot be made non-dumpable")]
    Dumpable(#[source] Errno),
    /// PR_SET_NO_NEW_PRIVS.
    #[error("no_new_privs cannot be set")]
    NoNewPrivs(#[source] Errno),
    /// sigaction(2) or the signal mask.
    #[error("refused calls cannot be answered")]
    Handler(#[source] Errno),
    /// A line of a list of calls is none.
    #[error("the list of the supervisor's calls cannot be read; report this")]
    List(#[from] calls::BadLine),
    /// The list makes no program.
    #[error("the list of the supervisor's calls cannot be compiled; report this")]
    Compile(#[from] WallError),
    /// seccomp(2).
    #[error("the {role}'s filter cannot be put on")]
    Filter {
        /// Whose.
        role: &'static str,
        /// The kernel's answer.
        #[source]
        source: Errno,
    },
    /// PR_SET_MDWE failed other than by being unknown.
    #[error("memory-deny-write-execute cannot be set")]
    Mdwe(#[source] Errno),
    /// capset(2), capget(2) or the ambient set.
    #[error("the {0} capabilities cannot be dropped")]
    Capabilities(&'static str, #[source] caps::errors::CapsError),
    /// Dropping went through and something is still there.
    #[error("capabilities are left in the {set} set: {left}; start the worker without them")]
    CapabilitiesLeft {
        /// Which set.
        set: &'static str,
        /// What is in it.
        left: String,
    },
}

/// Raises the shield and checks that it holds.
///
/// # Errors
/// [`ShieldError`]: a part of it does not hold. Only MDWE and the bounding set may be missing, and are reported.
pub fn harden() -> Result<ShieldReport, ShieldError> {
    require_single_thread().map_err(ShieldError::Threads)?;
    nix::sys::prctl::set_dumpable(false).map_err(ShieldError::Dumpable)?;
    nix::sys::prctl::set_no_new_privs().map_err(ShieldError::NoNewPrivs)?;
    let mdwe = deny_write_execute()?;
    let bounding = drop_capabilities()?;
    Ok(ShieldReport { mdwe, bounding })
}

/// `PR_MDWE_REFUSE_EXEC_GAIN | PR_MDWE_NO_INHERIT`: without the second, agents inherit the setting through execve, and
/// every just-in-time compiler among them dies.
pub(crate) fn deny_write_execute() -> Result<Mdwe, ShieldError> {
    const REFUSE_EXEC_GAIN: libc::c_ulong = 1;
    const NO_INHERIT: libc::c_ulong = 2;
    let zero: libc::c_ulong = 0;
    // SAFETY: plain numbers; the setting forbids future mappings and changes none that exists.
    let set =
        unsafe { libc::prctl(libc::PR_SET_MDWE, REFUSE_EXEC_GAIN | NO_INHERIT, zero, zero, zero) };
    match Errno::result(set) {
        Ok(_) => Ok(Mdwe::On),
        // EPERM: it is set already and cannot be changed; then it was inherited, which Linux 6.3 to 6.5 does.
        Err(Errno::EINVAL | Errno::EPERM) => Ok(Mdwe::Unsupported),
        Err(errno) => Err(ShieldError::Mdwe(errno)),
    }
}

/// Empties every set. The bounding set first: it takes CAP_SETPCAP, which goes with the others.
pub(crate) fn drop_capabilities() -> Result<Bounding, ShieldError> {
    let _ = caps::clear(None, CapSet::Bounding);
    let ambient = |error| ShieldError::Capabilities("ambient", error);
    caps::clear(None, CapSet::Ambient).map_err(ambient)?;
    for (name, set) in [
        ("effective", CapSet::Effective),
        ("permitted", CapSet::Permitted),
        ("inheritable", CapSet::Inheritable),
    ] {
        caps::clear(None, set).map_err(|error| ShieldError::Capabilities(name, error))?;
    }
    for (name, set) in [
        ("effective", CapSet::Effective),
        ("permitted", CapSet::Permitted),
        ("inheritable", CapSet::Inheritable),
        ("ambient", CapSet::Ambient),
    ] {
        let left = read(name, set)?;
        if !left.is_empty() {
            let left = left.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            return Err(ShieldError::CapabilitiesLeft { set: name, left });
        }
    }
    Ok(match read("bounding", CapSet::Bounding)?.len() {
        0 => Bounding::Empty,
        count => Bounding::Kept(count),
    })
}

fn read(name: &'static str, set: CapSet) -> Result<CapsHashSet, ShieldError> {
    caps::read(None, set).map_err(|error| ShieldError::Capabilities(name, error))
}
