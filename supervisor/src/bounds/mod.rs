//! A session's bounds: what it takes of the machine, against what its policy lets it take.
//!
//! Tasks are counted and ended by the spawner ([`casemate_sandbox::SessionSpawner::bound`]), whatever goes on here; disk is
//! watched from here ([`watch`]). [`Bounds`] holds what is known, for the status, the metrics and the words of an end.
//! What to do about it is decided in [`verdict`].

pub mod backstop;
mod verdict;
pub mod watch;

use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;

use casemate_protocol::policy;
use casemate_protocol::usage::{Disk, HeldBy, Usage};
use casemate_sandbox::SpawnError;
use casemate_sandbox::beneath::Measured;
use tokio::time::Instant;

use crate::process::reaper::Session;

/// The bounds of one session.
#[derive(Debug)]
pub struct Bounds {
    session: Rc<Session>,
    limits: policy::Bounds,
    held_by: HeldBy,
    /// The kernel's limit of all that the user runs, where the session is held by count.
    backstop: Option<u32>,
    /// Worktree, HOME and scratch, as the supervisor sees them.
    trees: Vec<PathBuf>,
    tasks: Cell<casemate_sandbox::Usage>,
    measured: Cell<Option<(Measured, Instant)>>,
    volume_free: Cell<Option<u64>>,
    volume_free_files: Cell<Option<u64>>,
}

// === impl Bounds ===

impl Bounds {
    /// Sets the bound of tasks; from then on the spawner holds the session to it.
    ///
    /// # Errors
    /// The spawner is gone.
    pub fn set(
        limits: policy::Bounds,
        held_by: HeldBy,
        backstop: Option<u32>,
        trees: Vec<PathBuf>,
        session: Rc<Session>,
    ) -> Result<Rc<Self>, SpawnError> {
        // Without a limit it is counted all the same.
        match limits.processes.filter(|_| held_by == HeldBy::Watch) {
            Some(processes) => session.spawner.bound(processes)?,
            None => session.spawner.count(limits.processes)?,
        }
        Ok(Rc::new(Self {
            session,
            limits,
            held_by,
            backstop,
            trees,
            tasks: Cell::default(),
            measured: Cell::default(),
            volume_free: Cell::default(),
            volume_free_files: Cell::default(),
        }))
    }

    /// The spawner's last count.
    fn tasks(&self) -> casemate_sandbox::Usage {
        // A spawner that is gone ends the generation by itself; the last count stays.
        if let Ok(counted) = self.session.spawner.usage() {
            self.tasks.set(counted);
        }
        self.tasks.get()
    }

    /// Begins a walk over the trees; whether it could.
    fn measure(&self) -> bool {
        let begun = self.session.spawner.measure(&self.trees);
        begun
            .inspect_err(|error| tracing::warn!(%error, "the session's trees are not measured"))
            .is_ok()
    }

    /// Why the session's processes were ended, where it was for passing its bound.
    #[must_use]
    pub fn broken(&self) -> Option<String> {
        let limit = self.limits.processes.filter(|_| self.tasks().exceeded > 0)?;
        Some(format!(
            "the session ran more than {limit} processes and threads, which its policy's [bounds] allow, and was ended"
        ))
    }

    /// For the status and the metrics.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let tasks = self.tasks();
        let disk = self.measured.get().map(|(measured, at)| Disk {
            bytes: measured.bytes,
            files: measured.files,
            unread: measured.unread,
            age_ms: u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX),
        });
        Usage {
            processes: tasks.processes,
            tasks: tasks.tasks,
            peak_tasks: tasks.peak,
            tasks_limit: self.limits.processes,
            tasks_held_by: self.held_by,
            disk,
            disk_limit: self.limits.disk,
            files_limit: self.limits.files,
            volume_free: self.volume_free.get(),
            volume_free_files: self.volume_free_files.get(),
        }
    }

    /// One line for the status, of what holds and who holds it.
    #[must_use]
    pub fn summary(&self) -> String {
        Self::words(&self.limits, self.held_by, self.backstop)
    }

    /// That line, of limits that are still to be set.
    #[must_use]
    pub fn words(limits: &policy::Bounds, held_by: HeldBy, backstop: Option<u32>) -> String {
        let by = match (held_by, backstop) {
            (HeldBy::Kernel, _) => "by the kernel and by count".to_owned(),
            (HeldBy::Watch, None) => "by count".to_owned(),
            (HeldBy::Watch, Some(all)) => {
                format!("by count, and all of the user's by the kernel at {all}")
            }
        };
        format!("bounds {limits}; processes held {by}")
    }
}
