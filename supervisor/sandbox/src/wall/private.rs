//! What belongs to casemate or to other sessions, with this session's own places in the midst of it.
//!
//! [`Never`] refuses everything around a closed path as well, so it cannot name a directory that holds the session itself.
//! Here a grant that meets a private directory passes exactly if it lies, links resolved, in the session's own places.

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use super::grants::Grant;
use super::never::{Never, resolve_as_far_as_exists};
use super::{Places, WallError};

/// The private directories and the session's own places, resolved once.
pub(super) struct Private {
    directories: Never,
    own: Vec<PathBuf>,
}

// === impl Private ===

impl Private {
    pub(super) fn resolve(places: &Places) -> Result<Self, WallError> {
        let own = [&places.work, &places.home, &places.scratch]
            .into_iter()
            .map(|path| {
                resolve_as_far_as_exists(path)
                    .map_err(|source| WallError::Path { path: path.clone(), source })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { directories: Never::resolve(&places.private)?, own })
    }

    /// Whether something private lies below a path, so that there may be more in it that is not.
    pub(super) fn is_above(&self, path: &Path) -> bool {
        self.directories.is_above(path)
    }

    /// Refuses a grant, given as the descriptor that the rule will be bound to.
    pub(super) fn check(&self, grant: &Grant, fd: BorrowedFd<'_>) -> Result<(), WallError> {
        match self.directories.check(grant, fd) {
            Err(WallError::Never { real, .. })
                if self.own.iter().any(|own| real.starts_with(own)) =>
            {
                Ok(())
            }
            other => other,
        }
    }
}
