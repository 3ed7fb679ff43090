//! Root starts workers for other users; in tier `domain` the worker becomes that user before anything else.

use casemate_protocol::worker::StartError;
use nix::unistd::{Gid, Uid, geteuid, setgroups, setresgid, setresuid};

/// Becomes `uid` (and the group of the same number) for good, without supplementary groups. Nothing to do where that
/// is who we are.
///
/// # Errors
/// [`StartError::Other`] where another user was asked for and this one may not become it.
pub(super) fn assume(uid: Option<u32>) -> Result<(), StartError> {
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
