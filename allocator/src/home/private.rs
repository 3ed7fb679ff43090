//! Files and directories that are this user's alone: made so, written whole, set right.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::AT_FDCWD;
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat};

use super::HomeError;

pub(super) fn io_at(path: &Path) -> impl FnOnce(io::Error) -> HomeError + '_ {
    move |source| HomeError::Io { path: path.to_owned(), source }
}

pub(super) fn private_dir(path: &Path) -> Result<(), HomeError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io_at(path))
}

/// Sets the mode of one of this user's files or directories right, with a warning. In tier `domain` an agent can change
/// it by the path, though not look inside, and would otherwise keep the next allocator from starting.
pub(crate) fn mend(path: &Path, mode: u32) -> Result<(), HomeError> {
    let meta = match path.symlink_metadata() {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io_at(path)(error)),
    };
    let found = meta.mode() & 0o7777;
    let is_own = meta.uid() == nix::unistd::geteuid().as_raw();
    // What is not ours is refused where it is used.
    if found == mode || !is_own || !(meta.is_file() || meta.is_dir()) {
        return Ok(());
    }
    // Not through a link that took its place meanwhile.
    fchmodat(AT_FDCWD, path, Mode::from_bits_truncate(mode), FchmodatFlags::NoFollowSymlink)
        .map_err(|errno| io_at(path)(errno.into()))?;
    tracing::warn!(
        path = %path.display(),
        found = format!("{found:o}"),
        set = format!("{mode:o}"),
        "the mode of a private file was changed and is set right: if that was not you, it was an agent in tier domain, \
         or another program of yours; if it was open to others, stop all workers and replace what they may have read"
    );
    Ok(())
}

/// Writes a file of mode 0600 so that a reader, or a crash, sees the old one or the new one.
pub(crate) fn write_private(path: &Path, content: &[u8]) -> Result<(), HomeError> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    let write = || {
        // A left-over of a crash may have any mode.
        match std::fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file =
            OpenOptions::new().create_new(true).write(true).mode(0o600).open(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
    };
    write().map_err(io_at(path))
}
