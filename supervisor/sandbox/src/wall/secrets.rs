//! Keys and tokens that are mounted on this machine or in this Pod: no wall grants them, whoever asks.
//!
//! Found are the fixed places that exist, and the volumes that a kubelet fills with Secrets and tokens, wherever a Pod has them. A kubelet
//! makes such a volume a tmpfs, mounts it read-only into containers, and swaps its content by a link `..data` to a directory whose name
//! begins with two dots too (Kubernetes, pkg/volume/util/atomic_writer.go). A single file of one (`subPath`) is mounted from below that
//! directory. Volumes of a ConfigMap or of the Pod's own fields lie on the node's disk and are left alone.

use std::fs;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use casemate_protocol::policy::secrets::MOUNTED;

use super::WallError;
use super::grants::Grant;
use super::mounts::{Mounts, Volume};
use super::never::Never;

/// What is there of them, resolved once.
pub(super) struct Secrets(Never);

// === impl Secrets ===

impl Secrets {
    pub(super) fn resolve() -> Result<Self, WallError> {
        Ok(Self(Never::resolve(&mounted_secrets()?)?))
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
    let mountinfo = fs::read("/proc/thread-self/mountinfo").map_err(WallError::Mounts)?;
    let mounts = Mounts::parse(&mountinfo);
    let volumes = mounts.in_memory_and_read_only().filter(is_filled_by_a_kubelet);
    let volumes = volumes.map(|volume| volume.point.to_owned());
    // What this user cannot find, the agent, who is nobody else, cannot either.
    let all = MOUNTED.map(PathBuf::from).into_iter().chain(volumes);
    Ok(all.filter(|path| path.exists()).collect())
}

/// A session cannot make what it does not hold read-only look like one: it writes nothing there.
fn is_filled_by_a_kubelet(volume: &Volume<'_>) -> bool {
    let is_link = || {
        let data = fs::symlink_metadata(volume.point.join("..data"));
        data.is_ok_and(|found| found.file_type().is_symlink())
    };
    volume.is_below_two_dots() || is_link()
}
