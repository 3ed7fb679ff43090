//! The launcher after the start: it passes signals on and leaves with the worker's exit code.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use caps::errors::CapsError;
use caps::{CapSet, Capability, CapsHashSet};
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use crate::reap::{Exit, reap};
use crate::shield::calls::Role;
use crate::shield::{ShieldError, confine};

/// What is passed on. KILL and STOP cannot be; the launcher's death by KILL ends the worker by itself.
const FORWARDED: [Signal; 6] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// The worker as its launcher sees it.
#[derive(Debug)]
#[must_use = "a launcher that does not wait ends, and its worker with it"]
pub struct LauncherHandle {
    worker: Pid,
}

/// Why a launcher may not wait.
#[derive(Debug, thiserror::Error)]
pub enum LauncherError {
    /// Capabilities, or being dumpable.
    #[error("the launcher cannot give up what only the start needed")]
    Shed(#[source] CapsError),
    /// seccomp(2).
    #[error(transparent)]
    Filter(ShieldError),
}

/// Blocked from before the worker exists, so that none is lost and none runs a handler.
pub(super) fn signals() -> SigSet {
    FORWARDED.into_iter().chain([Signal::SIGCHLD]).collect()
}

impl LauncherHandle {
    pub(super) fn new(worker: Pid) -> Self {
        Self { worker }
    }

    /// The worker's pid as seen from outside.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.worker.as_raw()
    }

    /// Passes TERM, INT, HUP, QUIT, USR1 and USR2 on to the worker until it ends.
    ///
    /// The launcher's standard input and output become /dev/null, so that a reader of the worker's output sees its end.
    ///
    /// # Errors
    /// [`LauncherError`]: the launcher would be what an agent looks for. The worker is gone, and the standard output is back.
    pub fn wait_forwarding_signals(self) -> Result<Exit, LauncherError> {
        let output = let_go_of_stdio();
        let shielded = shed()
            .map_err(LauncherError::Shed)
            .and_then(|()| confine(Role::Launcher).map_err(LauncherError::Filter));
        if let Err(error) = shielded {
            self.kill();
            if let Some(output) = output {
                // Where that fails the log and the exit code tell.
                let _ = nix::unistd::dup2_stdout(output);
            }
            return Err(error);
        }
        drop(output);
        // The worker has its own copy of the old mask; this process keeps these blocked to its end.
        let signals = signals();
        loop {
            if let Some((_, exit)) =
                reap().into_iter().find(|(pid, _)| *pid == self.worker.as_raw())
            {
                return Ok(exit);
            }
            if let Some(signal) = signals.wait().ok().filter(|signal| *signal != Signal::SIGCHLD) {
                // It has ended: the next turn of the loop tells how.
                let _ = kill(self.worker, signal);
            }
        }
    }

    /// Ends the worker and everything in its namespaces, at once.
    pub fn kill(self) {
        let _ = kill(self.worker, Signal::SIGKILL);
        while waitpid(self.worker, Some(WaitPidFlag::empty())) == Err(Errno::EINTR) {}
    }
}

/// Gives up what only the start needed. Root's worker is another user, so the capability to signal it stays: the kernel
/// asks for it at each signal, through a pidfd as well (pidfd_send_signal(2)).
fn shed() -> Result<(), CapsError> {
    // Whoever may not shrink the bounding set has no way to gain from it: no_new_privs.
    let _ = caps::clear(None, CapSet::Bounding);
    let permitted = caps::read(None, CapSet::Permitted)?;
    let kept: CapsHashSet =
        permitted.into_iter().filter(|one| *one == Capability::CAP_KILL).collect();
    caps::clear(None, CapSet::Ambient)?;
    caps::clear(None, CapSet::Inheritable)?;
    caps::set(None, CapSet::Effective, &kept)?;
    caps::set(None, CapSet::Permitted, &kept)?;
    nix::sys::prctl::set_no_new_privs()
        .and_then(|()| nix::sys::prctl::set_dumpable(false))
        .map_err(|errno| CapsError::from(errno.desc()))
}

/// What standard output was, until it is certain that nothing is to be said there.
fn let_go_of_stdio() -> Option<OwnedFd> {
    let output = io::stdout().as_fd().try_clone_to_owned().ok();
    // Without /dev/null the launcher keeps what it has.
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        let _ = nix::unistd::dup2_stdin(&null);
        let _ = nix::unistd::dup2_stdout(&null);
    }
    output
}
