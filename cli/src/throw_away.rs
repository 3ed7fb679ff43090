//! Directories of one command's life: removed at its end, and by the next command where it was killed.
//!
//! A directory is ours to remove only where that is certain: made by this user, marked, and the mark's lock free. The
//! lock is held for as long as the owner lives; its workers end with it (`WorkerConfig::owner`).

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// The mark.
const MARK: &str = ".casemate-throw-away";

/// One such directory.
#[derive(Debug)]
pub(crate) struct ThrowAway {
    // Dropped first: until the last file is gone nobody else removes it.
    directory: TempDir,
    _lock: File,
}

// === impl ThrowAway ===

impl ThrowAway {
    /// Makes `parent/prefix…`, listed by nobody else, after removing what killed commands left there.
    ///
    /// # Errors
    /// The directory or its mark cannot be made.
    pub(crate) fn make(parent: &Path, prefix: &str) -> io::Result<Self> {
        sweep(parent, prefix);
        // Whatever the umask. Root's slots have users of their own, who have to get through it.
        let mode = if nix::unistd::geteuid().is_root() { 0o711 } else { 0o700 };
        let directory = tempfile::Builder::new()
            .prefix(prefix)
            .permissions(Permissions::from_mode(mode))
            .tempdir_in(parent)?;
        // Locked before it has its name: nobody finds it without its owner.
        let unnamed = directory.path().join(".new");
        let lock = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&unnamed)?;
        lock.lock()?;
        fs::rename(&unnamed, directory.path().join(MARK))?;
        Ok(Self { directory, _lock: lock })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Leaves it for good: no later command removes it.
    pub(crate) fn keep(self) -> PathBuf {
        // Without its mark it is nobody's to sweep.
        let _ = fs::remove_file(self.path().join(MARK));
        self.directory.keep()
    }

    /// Removes it now.
    ///
    /// # Errors
    /// Something in it cannot be removed.
    pub(crate) fn close(self) -> io::Result<()> {
        self.directory.close()
    }
}

/// Removes what killed commands of this user left.
fn sweep(parent: &Path, prefix: &str) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(prefix) {
            continue;
        }
        let path = entry.path();
        let Some(lock) = left_over(&path) else { continue };
        if let Err(error) = fs::remove_dir_all(&path) {
            tracing::warn!(%error, path = %path.display(), "left by a killed command, and not to be removed");
        }
        drop(lock);
    }
}

/// The mark's lock, where the directory is one of ours whose owner is gone.
fn left_over(path: &Path) -> Option<File> {
    let own = nix::unistd::geteuid().as_raw();
    let directory = path.symlink_metadata().ok()?;
    if !directory.is_dir() || directory.uid() != own {
        return None;
    }
    let mark = path.join(MARK);
    let meta = mark.symlink_metadata().ok()?;
    if !meta.is_file() || meta.uid() != own {
        return None;
    }
    let lock = File::open(mark).ok()?;
    lock.try_lock().is_ok().then_some(lock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_marked_and_free_is_swept() {
        let parent = tempfile::tempdir().unwrap();
        let alive = ThrowAway::make(parent.path(), "t-").unwrap();
        let kept = ThrowAway::make(parent.path(), "t-").unwrap().keep();
        let foreign = parent.path().join("t-foreign");
        fs::create_dir(&foreign).unwrap();
        // As a KILL leaves it: marked, and the lock is gone with its holder.
        let dead = parent.path().join("t-dead");
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join(MARK), "").unwrap();
        fs::write(dead.join("file"), "").unwrap();
        std::os::unix::fs::symlink(&kept, parent.path().join("t-link")).unwrap();
        fs::write(kept.join("work"), "").unwrap();

        let next = ThrowAway::make(parent.path(), "t-").unwrap();
        assert!(!dead.exists());
        assert!(alive.path().exists() && kept.join("work").exists() && foreign.exists());
        let gone = next.path().to_owned();
        next.close().unwrap();
        assert!(!gone.exists());
    }
}
