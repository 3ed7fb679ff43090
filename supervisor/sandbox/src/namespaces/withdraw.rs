//! What is shown inside for a while only: taken away whole, before anybody who must not reach it is there.
//!
//! A mount can be taken away by CAP_SYS_ADMIN alone, and the worker keeps no capability. So while it still has them all
//! it forks a *keeper* that keeps this one, waits for one word, detaches one mount (with all that is mounted below) and is
//! gone. A mode of 0000 would do less: whoever may make a user namespace has CAP_DAC_OVERRIDE in it over its own files.
//!
//! Descriptors that were opened below before stay good; no path leads there any more.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use caps::{CapSet, Capability, CapsHashSet};
use nix::mount::MntFlags;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid};

use super::error::{Failure, NamespaceStep as Step};
use super::ids::Ids;
use super::io_errno;

/// The means to take [`Plan::withdrawn`](super::Plan::withdrawn) away. Dropped without a word, the keeper ends and the
/// place stays.
#[derive(Debug)]
#[must_use = "the place stays until it is withdrawn"]
pub struct Withdrawal {
    socket: UnixStream,
    keeper: Pid,
    place: PathBuf,
}

/// Why a place is still there.
#[derive(Debug, thiserror::Error)]
#[error("cannot take {} away", place.display())]
pub struct WithdrawError {
    /// Which.
    pub place: PathBuf,
    /// umount2(2)'s answer, or the keeper's end.
    #[source]
    pub source: io::Error,
}

// === impl Withdrawal ===

impl Withdrawal {
    /// Forks the keeper. To be called with one thread, all capabilities, and a root that is complete.
    pub(super) fn prepare(place: &Path, ids: Ids) -> Result<Self, Failure> {
        let failed = |errno| Step::Keeper.failed(errno);
        let (mut ours, theirs) =
            UnixStream::pair().map_err(|error| Step::Keeper.failed(io_errno(&error)))?;
        // SAFETY: this process has one thread, so the child's copy of every lock is free and it may run any code.
        match unsafe { nix::unistd::fork() }.map_err(failed)? {
            ForkResult::Parent { child } => {
                drop(theirs);
                // What it cannot do is known before anything is built upon it.
                ours.read_exact(&mut [0]).map_err(|error| failed(io_errno(&error)))?;
                Ok(Self { socket: ours, keeper: child, place: place.to_owned() })
            }
            ForkResult::Child => {
                drop(ours);
                keep(place, ids, theirs);
                // SAFETY: leaves without the worker's atexit handlers and buffers, which are not this process's.
                unsafe { libc::_exit(0) }
            }
        }
    }

    /// Takes the place away and waits for the keeper's end.
    ///
    /// # Errors
    /// [`WithdrawError`]: it is to be taken as still there.
    pub fn withdraw(mut self) -> Result<(), WithdrawError> {
        let answer = self.ask();
        // Closed first: a keeper that waits for a word must not be waited for.
        drop(self.socket);
        // Gone already where somebody else waits for every child.
        let _ = waitpid(self.keeper, None);
        answer.map_err(|source| WithdrawError { place: self.place, source })
    }

    fn ask(&mut self) -> io::Result<()> {
        self.socket.write_all(&[0])?;
        let mut answer = [0; 4];
        self.socket.read_exact(&mut answer)?;
        match i32::from_ne_bytes(answer) {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

/// The keeper's life. Silence is a failure: the other side then reads an end.
fn keep(place: &Path, ids: Ids, mut socket: UnixStream) {
    if shed(ids).is_none() || socket.write_all(&[0]).is_err() {
        return;
    }
    if socket.read_exact(&mut [0]).is_err() {
        return;
    }
    let errno = match nix::mount::umount2(place, MntFlags::MNT_DETACH) {
        Ok(()) => 0,
        Err(errno) => errno as i32,
    };
    let _ = socket.write_all(&errno.to_ne_bytes());
}

/// The worker's own identity and one capability; nothing that the worker's children could use or look into.
fn shed(ids: Ids) -> Option<()> {
    nix::sys::prctl::set_keepcaps(true).ok()?;
    ids.take_on().ok()?;
    let one = CapsHashSet::from_iter([Capability::CAP_SYS_ADMIN]);
    caps::clear(None, CapSet::Ambient).ok()?;
    caps::clear(None, CapSet::Inheritable).ok()?;
    caps::set(None, CapSet::Effective, &one).ok()?;
    caps::set(None, CapSet::Permitted, &one).ok()?;
    nix::sys::prctl::set_no_new_privs().ok()?;
    nix::sys::prctl::set_dumpable(false).ok()
}
