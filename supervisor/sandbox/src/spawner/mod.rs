//! Starts and ends the processes of sessions, from a process of its own.
mod command;

pub use command::{Command, ProbeAnswer, SpawnError, Step};

use std::io;
use std::path::PathBuf;

use crate::Wall;

/// Handle of the spawner process. Start it before any thread and any runtime.
#[derive(Debug)]
pub struct Spawner {}

impl Spawner {
    /// Forks the spawner process.
    ///
    /// # Errors
    /// The fork's; `EBUSY` where this process has threads already.
    pub fn start() -> io::Result<Self> {
        todo!()
    }

    /// A thread in an outer signal-scope domain of its own.
    ///
    /// # Errors
    /// [`Step::SignalScope`] where the kernel has no Landlock signal scope (ABI 6, Linux 6.12).
    pub fn session(&self) -> Result<SessionSpawner, SpawnError> {
        todo!()
    }

    /// The spawner's process id, so that the reaper's owner knows its end from a session's.
    #[must_use]
    pub fn pid(&self) -> i32 {
        todo!()
    }
}

/// Starts and ends the processes of one session. Calls block for about a millisecond.
#[derive(Debug)]
pub struct SessionSpawner {}

impl SessionSpawner {
    /// Starts a command behind a wall; its parent is the caller's process, which alone waits for it.
    ///
    /// # Errors
    /// The step that failed and its errno.
    pub fn spawn(&self, _command: Command, _wall: &Wall) -> Result<i32, SpawnError> {
        todo!()
    }

    /// Tries to open each path (reading, then writing) behind the wall; the errno of each try, 0 where it opened.
    ///
    /// # Errors
    /// The step that failed and its errno.
    pub fn probe(&self, _paths: &[PathBuf], _wall: &Wall) -> Result<Vec<ProbeAnswer>, SpawnError> {
        todo!()
    }

    /// SIGKILL to every process of the session, daemons included, and to nothing else.
    ///
    /// # Errors
    /// The spawner is gone.
    pub fn kill_all(&self) -> Result<(), SpawnError> {
        todo!()
    }
}
