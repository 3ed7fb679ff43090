//! The launcher after the start: it passes signals on and leaves with the worker's exit code.

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use crate::reap::{Exit, reap};

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
    pub fn wait_forwarding_signals(self) -> Exit {
        let_go_of_stdio();
        // The worker has its own copy of the old mask; this process keeps these blocked to its end.
        let signals = signals();
        loop {
            if let Some((_, exit)) =
                reap().into_iter().find(|(pid, _)| *pid == self.worker.as_raw())
            {
                return exit;
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

fn let_go_of_stdio() {
    let Ok(null) = std::fs::File::options().read(true).write(true).open("/dev/null") else {
        return;
    };
    // Without /dev/null the launcher keeps what it has.
    let _ = nix::unistd::dup2_stdin(&null);
    let _ = nix::unistd::dup2_stdout(&null);
}
