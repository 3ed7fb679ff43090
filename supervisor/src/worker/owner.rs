//! A worker that belongs to one process ends with it, however that one ends.

use casemate_protocol::worker::StartError;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::getppid;

/// Ties this process's life to its owner's. To be said again after a change of user, which unties it (prctl(2)). KILL
/// ends all of a worker in both tiers, and an owner that is gone can do nothing about one that takes its time.
///
/// # Errors
/// [`StartError::Other`] where the owner is gone already.
pub(super) fn follow(owner: Option<u32>) -> Result<(), StartError> {
    let Some(owner) = owner else { return Ok(()) };
    set_pdeathsig(Signal::SIGKILL).map_err(|errno| StartError::Other {
        message: format!("the worker cannot be tied to its owner ({errno})"),
    })?;
    // One that ended before the line above sends no signal.
    if u32::try_from(getppid().as_raw()) == Ok(owner) {
        return Ok(());
    }
    Err(StartError::Other { message: "the process that owns this worker is gone".into() })
}
