//! Root starts workers for other users; in tier `domain` the worker becomes that user before anything else.
//!
//! An agent has its supervisor's uid there, and nothing but Landlock and seccomp between it and what that user may do. So
//! it is never root. Root of a container whose user namespace makes it an ordinary user outside is one.

use casemate_protocol::worker::StartError;
use nix::unistd::{Gid, Uid, geteuid, setgroups, setresgid, setresuid};

/// Whether a worker of tier `domain` that is told to be `wanted` would have an agent that is root.
///
/// # Errors
/// [`StartError::Config`] if so.
pub(crate) fn check(wanted: Option<u32>) -> Result<(), StartError> {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    if wanted.map_or(geteuid(), Uid::from_raw).is_root() && !is_ordinary_outside(&map) {
        return Err(StartError::Config {
            message: "host_uid: the agent would be root in tier domain; name the user that it shall be, or start the worker as that user".into(),
        });
    }
    Ok(())
}

/// Whether the map (user_namespaces(7): id inside, id outside, how many) gives uid 0 to somebody else outside. A map that
/// cannot be read tells nothing.
fn is_ordinary_outside(map: &str) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_ascii_whitespace();
        numbers.next() == Some("0") && numbers.next().is_some_and(|outside| outside != "0")
    })
}

/// Becomes `uid` (and the group of the same number) for good, without supplementary groups. Nothing to do where that
/// is who we are.
///
/// # Errors
/// [`StartError::Other`] where another user was asked for and this one may not become it.
pub(crate) fn assume(uid: Option<u32>) -> Result<(), StartError> {
    let Some(uid) = uid.map(Uid::from_raw) else { return Ok(()) };
    if uid == geteuid() {
        return Ok(());
    }
    let gid = Gid::from_raw(uid.as_raw());
    setgroups(&[])
        .and_then(|()| setresgid(gid, gid, gid))
        .and_then(|()| setresuid(uid, uid, uid))
        .map_err(|errno| StartError::Other {
            message: format!(
                "cannot become user {uid} ({errno}): start the worker as root or as that user"
            ),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_root_unless_its_namespace_makes_it_somebody_else() {
        assert!(!is_ordinary_outside("         0          0 4294967295\n"));
        assert!(!is_ordinary_outside("1000 1000 1\n0 0 1\n") && !is_ordinary_outside(""));
        assert!(is_ordinary_outside(
            "         0       1000          1\n         1     100000      65536\n"
        ));
    }
}
