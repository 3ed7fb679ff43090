//! What a session takes of the machine, and what it may take: part of [`crate::worker::WorkerStatus`].

use serde::{Deserialize, Serialize};

/// Now, beside its bounds. A limit that is `None` is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Processes, zombies included; at most ten seconds old.
    pub processes: u32,
    /// Processes and threads.
    pub tasks: u32,
    /// The most of them since the worker started.
    pub peak_tasks: u32,
    /// How many it may have.
    pub tasks_limit: Option<u32>,
    /// Who stops it there.
    pub tasks_held_by: HeldBy,
    /// What its worktree, HOME and scratch take on disk.
    pub disk: Option<Disk>,
    /// How many bytes they may take.
    pub disk_limit: Option<u64>,
    /// How many files they may have.
    pub files_limit: Option<u64>,
    /// What is left on the volume for all, in bytes; `None` where it cannot be read.
    pub volume_free: Option<u64>,
}

/// Who stops a session at its number of tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeldBy {
    /// A thread that counts: above the limit the session's processes are ended.
    #[default]
    Watch,
    /// The kernel as well (RLIMIT_NPROC, where it counts this session alone): at the limit fork(2) fails with `EAGAIN`.
    Kernel,
}

/// A walk over a session's trees.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// As `du` counts them: blocks, a hard link once.
    pub bytes: u64,
    /// Files and directories.
    pub files: u64,
    /// Directories that could not be looked into.
    pub unread: u64,
    /// How old the walk is, in milliseconds. Little was written on the volume since.
    pub age_ms: u64,
}
