//! The one owner of every wait.
//!
//! A supervisor has exactly one caller of [`reap`]; nothing else in its process waits for a child (two waiters steal
//! each other's exit codes: waitpid(2) with -1 takes whatever ended first). A child may end before
//! [`crate::SessionSpawner::spawn`] has returned its pid: whoever registers pids keeps the ends of unknown ones until no
//! spawn is under way.

use std::fmt;
use std::io;

use nix::errno::Errno;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// exit(3) with this code, 0 to 255.
    Code(i32),
    /// Killed by this signal.
    Signal(i32),
}

impl Exit {
    /// The code that a shell reports: the exit code, or 128 + signal (sh(1)).
    #[must_use]
    pub fn code(self) -> u8 {
        let code = match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        };
        u8::try_from(code).unwrap_or(u8::MAX)
    }

    /// Ended by itself with code 0.
    #[must_use]
    pub fn is_success(self) -> bool {
        self == Self::Code(0)
    }
}

/// `exit code 3`, `signal 9 (SIGKILL)`.
impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(number) => match nix::sys::signal::Signal::try_from(*number) {
                Ok(signal) => write!(f, "signal {number} ({signal})"),
                Err(_) => write!(f, "signal {number}"),
            },
        }
    }
}

/// Takes the end of every child that has ended, orphans included, without waiting.
#[must_use]
pub fn reap() -> Vec<(i32, Exit)> {
    let mut ended = Vec::new();
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) => ended.push((pid.as_raw(), Exit::Code(code))),
            Ok(WaitStatus::Signaled(pid, signal, _)) => {
                ended.push((pid.as_raw(), Exit::Signal(signal as i32)));
            }
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return ended,
            // Stops and continues are not asked for; an interrupted call is repeated.
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return ended,
        }
    }
}

/// Makes orphaned descendants this process's children where it is not PID 1, so that it reaps them
/// (PR_SET_CHILD_SUBREAPER in prctl(2)).
///
/// # Errors
/// What prctl(2) answers; on Linux 3.4 and later it does not fail.
pub fn adopt_orphans() -> io::Result<()> {
    if std::process::id() == 1 {
        return Ok(());
    }
    nix::sys::prctl::set_child_subreaper(true).map_err(io::Error::from)
}
