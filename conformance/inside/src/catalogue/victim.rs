//! A process to aim at, for whoever tries the attacks without a session of his own.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// Sleeps for as long as this lives. Leads a group of its own, so that what hurts groups hurts it alone.
#[derive(Debug)]
pub struct Victim(Child);

/// For it to sleep, whatever else the machine has to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether this process is what `mark` in its command line says, and has done what it had to do before it waits. Its image
/// is there when it is started, what proc tells of it a moment later.
///
/// # Errors
/// Where proc does not tell.
pub fn is_asleep(pid: i32, mark: &str) -> io::Result<bool> {
    let proc = Path::new("/proc").join(pid.to_string());
    let line = fs::read_to_string(proc.join("cmdline"))?;
    let status = fs::read_to_string(proc.join("status"))?;
    Ok(line.contains(mark) && status.contains("State:\tS"))
}

// === impl Victim ===

impl Victim {
    /// Starts it, and waits until it sleeps. `mark`: for how many seconds it would sleep, by which its command line is known; `owner`: whose it is,
    /// where that is not this process's user.
    ///
    /// # Errors
    /// Whatever fork(2), execve(2) or proc says; EPERM for an owner where this process may not change its user.
    pub fn start(mark: &str, owner: Option<u32>) -> io::Result<Self> {
        Self::run(Command::new("sleep"), mark, owner)
    }

    /// As [`Self::start`], of a copy of the program in this directory: it belongs to whoever runs it.
    ///
    /// # Errors
    /// As [`Self::start`]'s, and those of copying.
    pub fn with_its_own_program(directory: &Path, mark: &str) -> io::Result<Self> {
        let program = directory.join("sleep");
        let mut places = ["/usr/bin/sleep", "/bin/sleep"].into_iter();
        let sleep = places.find(|path| Path::new(path).exists()).ok_or(io::ErrorKind::NotFound)?;
        fs::copy(sleep, &program)?;
        Self::run(Command::new(program), mark, None)
    }

    fn run(mut command: Command, mark: &str, owner: Option<u32>) -> io::Result<Self> {
        command.arg(mark).stdin(Stdio::null()).process_group(0);
        if let Some(owner) = owner {
            command.uid(owner).gid(owner);
        }
        let victim = Self(command.spawn()?);
        let until = Instant::now() + PATIENCE;
        while !is_asleep(victim.pid(), mark)? {
            if Instant::now() > until {
                return Err(io::ErrorKind::TimedOut.into());
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(victim)
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
