//! The walls: Landlock and seccomp, the spawner that puts an agent behind them, and the one owner of every wait.
#![allow(missing_docs)]

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

pub mod wall;

pub use wall::{Places, Program, Rlimit, Wall, WallError, environment};

/// A command to run behind a wall. Nothing is inherited: no environment, no descriptor but the three.
#[derive(Debug)]
pub struct Command {
    pub program: PathBuf,
    pub argv: Vec<CString>,
    pub env: Vec<CString>,
    pub cwd: PathBuf,
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

/// Why a command could not be started: which step, which errno.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {source}")]
pub struct SpawnError {
    pub step: &'static str,
    #[source]
    pub source: io::Error,
}

/// Handle of the spawner process. Start it before any thread and any runtime.
#[derive(Debug)]
pub struct Spawner {}

impl Spawner {
    pub fn start() -> io::Result<Self> {
        todo!()
    }
    /// A thread in an outer signal-scope domain of its own.
    pub fn session(&self) -> Result<SessionSpawner, SpawnError> {
        todo!()
    }
    /// The spawner's process id, so that the reaper's owner knows its end from a session's.
    pub fn pid(&self) -> i32 {
        todo!()
    }
}

/// Starts and ends the processes of one session. Calls block for about a millisecond.
#[derive(Debug)]
pub struct SessionSpawner {}

impl SessionSpawner {
    /// Starts a command behind a wall; its parent is the caller's process, which alone waits for it.
    pub fn spawn(&self, _command: Command, _wall: &Wall) -> Result<i32, SpawnError> {
        todo!()
    }
    /// Tries to open each path (reading, then writing) behind the wall; the errno of each try, 0 where it opened.
    pub fn probe(&self, _paths: &[PathBuf], _wall: &Wall) -> Result<Vec<ProbeAnswer>, SpawnError> {
        todo!()
    }
    /// SIGKILL to every process of the session, daemons included, and to nothing else.
    pub fn kill_all(&self) -> Result<(), SpawnError> {
        todo!()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeAnswer {
    pub path: PathBuf,
    pub read_errno: i32,
    pub write_errno: i32,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
}
