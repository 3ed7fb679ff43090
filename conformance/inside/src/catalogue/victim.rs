//! A process to aim at, for whoever tries the attacks without a session of his own.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

/// Sleeps for as long as this lives. Leads a group of its own, so that what hurts groups hurts it alone.
#[derive(Debug)]
pub struct Victim(Child);

// === impl Victim ===

impl Victim {
    /// Starts it. `mark`: for how many seconds it would sleep, by which its command line is known; `owner`: whose it is,
    /// where that is not this process's user.
    ///
    /// # Errors
    /// Whatever fork(2) or execve(2) says; EPERM for an owner where this process may not change its user.
    pub fn start(mark: &str, owner: Option<u32>) -> io::Result<Self> {
        let mut command = Command::new("sleep");
        command.arg(mark).stdin(Stdio::null()).process_group(0);
        if let Some(owner) = owner {
            command.uid(owner).gid(owner);
        }
        command.spawn().map(Self)
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }

    /// Whether it has not ended yet.
    ///
    /// # Errors
    /// ECHILD where somebody else has waited for it.
    pub fn is_alive(&mut self) -> io::Result<bool> {
        Ok(self.0.try_wait()?.is_none())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // Nothing to do about one that has ended already, or whose end another has taken.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
