//! Keys and tokens that are mounted on this machine or in this Pod: no wall grants them, whoever asks.
//!
//! Found are the fixed places that exist, and the volumes that a kubelet fills with Secrets and tokens, wherever a Pod has them. A kubelet
//! makes such a volume a tmpfs, mounts it read-only into containers, and swaps its content by a link `..data` to a directory whose name
//! begins with two dots too (Kubernetes, pkg/volume/util/atomic_writer.go). A single file of one (`subPath`) is mounted from below that
//! directory. Volumes of a ConfigMap or of the Pod's own fields lie on the node's disk and are left alone.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};

use casemate_protocol::policy::secrets::MOUNTED;

use super::WallError;
use super::grants::Grant;
use super::mounts::{Location, Mounts, Volume};
use super::never::Never;
use super::open::open_path;

/// What is there of them, resolved once.
pub(super) struct Secrets(Never);

// === impl Secrets ===

impl Secrets {
    pub(super) fn resolve() -> Result<Self, WallError> {
        let Found { seen, hidden } = find()?;
        let mut never = Never::resolve(&seen)?;
        for (point, root) in hidden {
            never.close_mount(point, root);
        }
        Ok(Self(never))
    }

    /// Refuses a grant, given as the descriptor that the rule will be bound to.
    pub(super) fn check(&self, grant: &Grant, fd: BorrowedFd<'_>) -> Result<(), WallError> {
        // On most machines there are none, and each look costs a start a few system calls.
        if self.paths().next().is_none() {
            return Ok(());
        }
        self.0.check(grant, fd).map_err(|error| match error {
            WallError::Never { path, real, never, line } => {
                WallError::Secret { path, real, secret: never, line }
            }
            other => other,
        })
    }

    /// Whether something of them lies below a path, so that there may be more in it that is not.
    pub(super) fn is_above(&self, path: &Path) -> bool {
        self.0.is_above(path)
    }

    /// Their paths, as they were found.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.named()
    }
}

/// Where they are, so that no wall built here grants anything of it.
///
/// # Errors
/// [`WallError::Mounts`].
pub fn mounted_secrets() -> Result<Vec<PathBuf>, WallError> {
    let Found { seen, hidden } = find()?;
    Ok(seen.into_iter().chain(hidden.into_iter().map(|(point, _)| point)).collect())
}

/// Whether a path can be shown to a session, or copied for it, without a mounted secret; links, bind mounts and what is mounted below
/// considered. For what is shown under another name, by which no wall would know it again.
///
/// # Errors
/// [`WallError::Secret`]; [`WallError::Path`], [`WallError::Mounts`] and [`WallError::Elsewhere`] where that cannot be told.
pub fn shows_no_secret(path: &Path) -> Result<(), WallError> {
    let grant = Grant { path: path.to_owned(), access: Vec::new(), required: true, line: None };
    let fd = open_path(path).map_err(|source| WallError::Path { path: path.to_owned(), source })?;
    Secrets::resolve()?.check(&grant, fd.as_fd())
}

struct Found {
    seen: Vec<PathBuf>,
    /// Volumes into which this user cannot look. Whoever owns a directory on the way can, by changing its mode.
    hidden: Vec<(PathBuf, Location)>,
}

fn find() -> Result<Found, WallError> {
    let mountinfo = fs::read("/proc/thread-self/mountinfo").map_err(WallError::Mounts)?;
    let mounts = Mounts::parse(&mountinfo);
    // One that cannot be looked at is named all the same, and refused as unclear where it is resolved.
    let fixed = MOUNTED.map(PathBuf::from).into_iter();
    let mut seen: Vec<_> =
        fixed.filter(|path| !fs::metadata(path).is_err_and(|error| is_absent(&error))).collect();
    let mut hidden = Vec::new();
    for volume in mounts.in_memory_and_read_only() {
        match is_filled_by_a_kubelet(&volume) {
            Some(true) => seen.push(volume.point.to_owned()),
            Some(false) => {}
            None => hidden.push((volume.point.to_owned(), volume.root.clone())),
        }
    }
    Ok(Found { seen, hidden })
}

/// A session cannot make what it does not hold read-only look like one: it writes nothing there. `None` where that cannot be seen.
fn is_filled_by_a_kubelet(volume: &Volume<'_>) -> Option<bool> {
    if volume.is_below_two_dots() {
        return Some(true);
    }
    match fs::symlink_metadata(volume.point.join("..data")) {
        Ok(found) => Some(found.file_type().is_symlink()),
        Err(error) if is_absent(&error) => Some(false),
        Err(_) => None,
    }
}

/// A single file that is mounted is no directory.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
