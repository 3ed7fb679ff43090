//! Where casemate keeps its things on this machine. The layout is in ARCHITECTURE.md.

use std::env;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use casemate_protocol::codes::exit;
use casemate_protocol::home;

use crate::failure::Failure;

/// `CASEMATE_HOME`.
#[derive(Debug, Clone)]
pub(crate) struct Place(PathBuf);

// === impl Place ===

impl Place {
    /// The directory given, else what the environment says.
    pub(crate) fn find(given: Option<PathBuf>) -> Result<Self, Failure> {
        let named = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        // What is started in the background works in another directory and would take it for another one.
        if let Some(home) = named("HOME").filter(|home| Path::new(home).is_relative()) {
            let text = format!("HOME is `{}`, not an absolute path; set it right", home.display());
            return Err(Failure::new(exit::USAGE, text));
        }
        let home = given.or_else(|| home::named(&named).next()).ok_or_else(|| {
            Failure::new(exit::USAGE, "no place for sessions: set HOME or give --home DIR")
        })?;
        let home = std::path::absolute(&home).map_err(|error| {
            Failure::because(exit::USAGE, format!("--home {}", home.display()), &error)
        })?;
        Ok(Self(home))
    }

    /// Nobody else's directories are used: root with the HOME of a user (`sudo` keeps it where it is told so) would leave
    /// what that user can neither read nor remove. System directories may hold the place, where they let it be made.
    pub(crate) fn check_owner(&self) -> Result<(), Failure> {
        let own = nix::unistd::geteuid().as_raw();
        let existing =
            self.0.ancestors().find_map(|path| Some((path, path.metadata().ok()?.uid())));
        match existing {
            Some((path, owner)) if owner != own && owner != 0 => {
                let text = format!(
                    "{} belongs to user id {owner} and this command runs as {own}: run it as that user (without sudo), or \
                     name a directory of your own with --home",
                    path.display()
                );
                Err(Failure::new(exit::DENIED, text))
            }
            _ => Ok(()),
        }
    }

    /// A place of its own, for a throw-away allocator.
    pub(crate) fn at(home: PathBuf) -> Self {
        Self(home)
    }

    /// The directory itself.
    pub(crate) fn home(&self) -> &Path {
        &self.0
    }

    /// The administrator's profiles.
    pub(crate) fn profiles(&self) -> PathBuf {
        self.0.join("profiles")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_below_somebody_elses_directory_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::at(directory.path().join(".local/state/casemate"));
        assert!(place.check_owner().is_ok());
        // Only root can give a directory away.
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(directory.path(), Some(1000), None).unwrap();
            let refused = place.check_owner().unwrap_err();
            assert_eq!(refused.code(), exit::DENIED);
            assert!(refused.to_string().contains("1000"), "{refused}");
        }
    }
}
