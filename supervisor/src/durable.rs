//! Small files that are whole or not there, also after a crash.
//!
//! A flush takes as long as the disk likes. Where other sessions are served meanwhile, or there is something else to do, it runs
//! on a thread of its own; whatever depends on it waits for it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use tokio::task::{JoinHandle, spawn_blocking};

/// A flush that has begun. Dropping it ends nothing.
#[derive(Debug)]
pub struct Flush(JoinHandle<io::Result<()>>);

// === impl Flush ===

impl Flush {
    /// Begins.
    #[must_use]
    pub fn of(file: File) -> Self {
        Self(spawn_blocking(move || file.sync_all()))
    }

    /// Returns when it is on the disk.
    ///
    /// # Errors
    /// fsync(2)'s.
    pub async fn done(self) -> io::Result<()> {
        self.0.await.map_err(io::Error::other)?
    }
}

/// Replaces a file: written beside it, flushed to the disk, renamed, and the directory flushed (rename(2), fsync(2)).
///
/// # Errors
/// Any of the steps'; the old file is untouched then.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (file, beside) = written_beside(path, bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    directory(path)?.sync_all()
}

/// As [`replace`], without blocking. Whoever drops this finds the old file or the new one, and none that comes later.
///
/// # Errors
/// As there.
pub async fn replace_aside(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (file, beside) = written_beside(path, bytes)?;
    Flush::of(file).done().await?;
    fs::rename(&beside, path)?;
    Flush::of(directory(path)?).done().await
}

/// Puts a file there whole at once, for every process; when it is on the disk the flush tells, together with one of the directory.
/// Where the power is lost before, it may be there and empty.
///
/// # Errors
/// As [`replace`], but for the flush.
pub fn replace_now(path: &Path, bytes: &[u8]) -> io::Result<Flush> {
    let (file, beside) = written_beside(path, bytes)?;
    fs::rename(&beside, path)?;
    Ok(Flush::of(file))
}

fn written_beside(path: &Path, bytes: &[u8]) -> io::Result<(File, PathBuf)> {
    let beside = path.with_extension("new");
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(bytes)?;
    Ok((file, beside))
}

fn directory(path: &Path) -> io::Result<File> {
    File::open(path.parent().unwrap_or(Path::new(".")))
}
