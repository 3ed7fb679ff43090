//! What a session takes of the machine, and what it may take: part of [`crate::worker::WorkerStatus`].

use std::fmt;

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
    /// How many more files the volume has room for; `None` where that cannot be read, or its file system sets no number.
    pub volume_free_files: Option<u64>,
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

/// `3 processes (14 of 2048 tasks), 1.2 MiB of 64 GiB, 340 of 4000000 files`; what was not measured yet is left out.
impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of =
            |limit: Option<String>| limit.map(|limit| format!(" of {limit}")).unwrap_or_default();
        let tasks = of(self.tasks_limit.map(|limit| limit.to_string()));
        write!(f, "{} processes ({}{tasks} tasks)", self.processes, self.tasks)?;
        let Some(disk) = &self.disk else { return Ok(()) };
        write!(f, ", {}{}", mebibytes(disk.bytes), of(self.disk_limit.map(mebibytes)))?;
        write!(f, ", {}{} files", disk.files, of(self.files_limit.map(|limit| limit.to_string())))?;
        if disk.unread > 0 {
            write!(f, ", {} directories unread", disk.unread)?;
        }
        Ok(())
    }
}

/// Bytes in MiB with one digit; nobody looks at less of a worktree.
fn mebibytes(bytes: u64) -> String {
    const TENTH: u64 = 1 << 20;
    let tenths = bytes.saturating_mul(10) / TENTH;
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_left_out() {
        let mut usage = Usage { processes: 3, tasks: 14, ..Usage::default() };
        assert_eq!(usage.to_string(), "3 processes (14 tasks)");
        usage.tasks_limit = Some(2048);
        usage.disk = Some(Disk { bytes: 1_310_720, files: 340, ..Disk::default() });
        usage.disk_limit = Some(64 << 20);
        assert_eq!(
            usage.to_string(),
            "3 processes (14 of 2048 tasks), 1.2 MiB of 64.0 MiB, 340 files"
        );
    }
}
