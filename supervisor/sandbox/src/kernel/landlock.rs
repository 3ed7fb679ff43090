//! Landlock: version, errata, and whether it really refuses (landlock(7)).

use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use landlock::{
    AccessFs, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _, RulesetCreated,
    RulesetError, Scope,
};
use nix::errno::Errno;

use super::trial::{Outcome, words};
use crate::spawner::SignalScope;
use crate::wall::{errata, lacks};

/// `LANDLOCK_CREATE_RULESET_VERSION` of linux/landlock.h.
const VERSION: u32 = 1;

/// The ABI; 0 where Landlock is off.
pub(super) fn abi() -> u32 {
    query(VERSION).unwrap_or(0)
}

/// `abi 7, errata fixed 1 2 3, does not restrict …`.
pub(super) fn version() -> String {
    match query(VERSION) {
        Err(errno) => format!("off: {}", words(errno)),
        Ok(abi) => {
            let missing = lacks(abi).map_or_else(String::new, |missing| format!(", {missing}"));
            format!("abi {abi}, {}{missing}", errata(abi))
        }
    }
}

fn query(flag: u32) -> Result<u32, Errno> {
    let no_attributes = std::ptr::null::<libc::c_void>();
    // SAFETY: with these flags the kernel takes no attributes and answers a number.
    let answer =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, no_attributes, 0_usize, flag) };
    u32::try_from(Errno::result(answer)?).map_err(|_| Errno::ERANGE)
}

/// A domain that may read nothing refuses to read.
pub(super) fn refusal() -> Outcome {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::ReadFile | AccessFs::ReadDir);
    enter(ruleset.and_then(Ruleset::create))?;
    match fs::read_dir("/") {
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
            Ok("reading refused".to_owned())
        }
        Err(error) => Err(format!("reading failed otherwise: {error}")),
        Ok(_) => Err("the domain does not refuse".to_owned()),
    }
}

/// Signalling the caller from inside a scope is refused; the scope itself tries it.
pub(super) fn signal_scope() -> Outcome {
    nix::sys::prctl::set_no_new_privs().map_err(words)?;
    SignalScope::enter().map(|_| "a signal to the caller refused".to_owned()).map_err(words)
}

/// Connecting to an abstract socket outside is refused.
pub(super) fn abstract_scope() -> Outcome {
    let name = format!("casemate-check-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).map_err(|error| error.to_string())?;
    let _listener = UnixListener::bind_addr(&address).map_err(|error| error.to_string())?;
    // Before the domain the connection works, or its refusal would prove nothing.
    UnixStream::connect_addr(&address).map_err(|error| error.to_string())?;
    // The listening socket was made outside the domain that this process enters now.
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .scope(Scope::AbstractUnixSocket);
    enter(ruleset.and_then(Ruleset::create))?;
    match UnixStream::connect_addr(&address) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Ok("a connection outwards refused".to_owned())
        }
        Err(error) => Err(format!("connecting failed otherwise: {error}")),
        Ok(_) => Err("the scope does not refuse".to_owned()),
    }
}

fn enter(ruleset: Result<RulesetCreated, RulesetError>) -> Result<(), String> {
    let ruleset = ruleset.map_err(|error| error.to_string())?;
    ruleset.restrict_self().map(drop).map_err(|error| error.to_string())
}
