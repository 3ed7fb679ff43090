//! Where casemate keeps its things on this machine. The layout is in ARCHITECTURE.md.

use std::env;
use std::path::{Path, PathBuf};

use casemate_protocol::codes::exit;

use crate::failure::Failure;

/// `CASEMATE_HOME`.
#[derive(Debug, Clone)]
pub(crate) struct Place(PathBuf);

// === impl Place ===

impl Place {
    /// The directory given, else what the environment says.
    pub(crate) fn find(given: Option<PathBuf>) -> Result<Self, Failure> {
        let named = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        let home = given
            .or_else(|| named("CASEMATE_HOME").map(PathBuf::from))
            .or_else(|| Some(PathBuf::from(named("XDG_STATE_HOME")?).join("casemate")))
            .or_else(|| Some(PathBuf::from(named("HOME")?).join(".local/state/casemate")))
            .ok_or_else(|| {
                Failure::new(exit::USAGE, "no place for sessions: set HOME or give --home DIR")
            })?;
        let home = std::path::absolute(&home).map_err(|error| {
            Failure::because(exit::USAGE, format!("--home {}", home.display()), &error)
        })?;
        Ok(Self(home))
    }

    /// A place of its own, for a throw-away allocator.
    pub(crate) fn at(home: PathBuf) -> Self {
        Self(home)
    }

    /// The directory itself.
    pub(crate) fn home(&self) -> &Path {
        &self.0
    }

    /// Where the allocator says how to reach it.
    pub(crate) fn endpoint(&self) -> PathBuf {
        self.0.join("run/allocator.json")
    }

    /// Held by the allocator for its life.
    pub(crate) fn up_lock(&self) -> PathBuf {
        self.0.join("run/up.lock")
    }

    /// Held by whoever starts an allocator.
    pub(crate) fn start_lock(&self) -> PathBuf {
        self.0.join("run/start.lock")
    }

    /// What a detached allocator says.
    pub(crate) fn log(&self) -> PathBuf {
        self.0.join("run/up.log")
    }
}
