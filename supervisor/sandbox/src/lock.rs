//! `run/lock`: one live worker a slot.
//!
//! An flock(2) belongs to the open file description that launcher, supervisor and spawner share by fork, so the kernel gives
//! it back when the last of the three is gone, however they die. The spawner goes only after its sessions' processes, and
//! agents get no descriptor: a free lock means that nothing of the slot's worker lives. Nobody ever removes the file: a
//! lock on a removed file protects nothing.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// A held lock; dropping it lets go of this process's share.
#[derive(Debug)]
pub struct HeldLock {
    file: File,
}

/// Why a lock is not had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds it.
    #[error("{} is held by {}; stop that worker first", path.display(), holder.map_or("another process".to_owned(), |pid| format!("process {pid}")))]
    Busy {
        /// The lock file.
        path: PathBuf,
        /// The pid that the holder wrote, if it has.
        holder: Option<u32>,
    },
    /// The file cannot be opened or written.
    #[error("cannot lock {}; check the directory's owner and the disk", path.display())]
    File {
        /// The lock file.
        path: PathBuf,
        /// What the kernel answered.
        #[source]
        source: io::Error,
    },
}

impl AsFd for HeldLock {
    /// Whoever gets a copy holds the lock as well.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Takes the lock, creating the file (mode 0600), and writes this process's pid into it.
///
/// # Errors
/// [`LockError::Busy`] at once where it is held; [`LockError::File`] for trouble with the file.
pub fn hold(path: &Path) -> Result<HeldLock, LockError> {
    let trouble = |source| LockError::File { path: path.to_owned(), source };
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
        .map_err(trouble)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            // A holder that has not written its pid yet is no less a holder.
            let _ = file.read_to_string(&mut text);
            return Err(LockError::Busy {
                path: path.to_owned(),
                holder: text.trim().parse().ok(),
            });
        }
        Err(TryLockError::Error(error)) => return Err(trouble(error)),
    }
    file.set_len(0).map_err(trouble)?;
    file.rewind().map_err(trouble)?;
    writeln!(file, "{}", std::process::id()).map_err(trouble)?;
    Ok(HeldLock { file })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_taker_learns_who_holds_it_and_gets_it_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        std::fs::write(&path, "a long text of an earlier holder\n").unwrap();
        let first = hold(&path).unwrap();
        let me = std::process::id();
        match hold(&path).unwrap_err() {
            LockError::Busy { holder, .. } => assert_eq!(holder, Some(me)),
            other => panic!("{other}"),
        }
        drop(first);
        hold(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{me}\n"));
    }

    #[test]
    fn a_planted_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), &path).unwrap();
        assert!(matches!(hold(&path).unwrap_err(), LockError::File { .. }));
        assert!(!dir.path().join("elsewhere").exists());
    }
}
