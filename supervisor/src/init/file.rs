//! Files that `exec` writes for whoever called it: where the command cannot, so that what they say is not its word, and no link
//! that an earlier one left leads elsewhere.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use casemate_protocol::codes::exit;
use casemate_sandbox::{Reach, Reached};
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use super::{Refused, usage};

/// A file that was not there before. Where nothing comes of it, it goes again.
#[derive(Debug)]
pub(super) struct NewFile {
    file: File,
    path: PathBuf,
    filled: bool,
}

/// Opens a file, or makes it. A pipe, by /dev/fd, is a file as well.
pub(super) fn open(option: &str, path: &Path, reach: &Reach) -> Result<File, Refused> {
    let mut flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC | OFlag::O_CLOEXEC;
    // The kernel's links (/dev/fd, /dev/stdout) lead to what this process has; another was made by somebody, and leads where he likes.
    if !directory_of(path).is_ok_and(|directory| is_of_the_kernel(&directory)) {
        flags |= OFlag::O_NOFOLLOW;
    }
    at(option, path, reach, flags)?.map_err(|errno| match errno {
        Errno::ELOOP => usage(format!(
            "{option} {}: it is a link, which could lead to anything the next time: name the file that it leads to",
            path.display()
        )),
        _ => cannot_create(option, path, &errno.into()),
    })
}

/// Relative to the directory that was found beyond the command's reach, which nobody can exchange any more.
fn at(
    option: &str,
    path: &Path,
    reach: &Reach,
    flags: OFlag,
) -> Result<Result<File, Errno>, Refused> {
    let (directory, name) = reach.place_for(path).map_err(|error| match error {
        Reached::Written(place) => within(option, path, &place),
        Reached::Io(error) => cannot_create(option, path, &error),
    })?;
    let mode = Mode::from_bits_truncate(0o666);
    Ok(openat(&directory, name.as_os_str(), flags, mode).map(File::from))
}

/// The refusal of a file that the command could write, or turn the way to.
pub(super) fn within(option: &str, path: &Path, place: &Path) -> Refused {
    usage(format!(
        "{option} {}: the command may write {} (its places, and what the policy's rules let it write): name a file outside of that, on \
         a way that it cannot change",
        path.display(),
        place.display()
    ))
}

// === impl NewFile ===

impl NewFile {
    /// Makes it, and refuses whatever has its name.
    pub(super) fn create(option: &str, path: &Path, reach: &Reach) -> Result<Self, Refused> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        match at(option, path, reach, flags)? {
            Ok(file) => {
                let path = std::path::absolute(path);
                let path = path.map_err(|error| cannot_create(option, Path::new("."), &error))?;
                Ok(Self { file, path, filled: false })
            }
            Err(Errno::EEXIST) => Err(Refused {
                code: exit::CANNOT_CREATE,
                message: format!(
                    "{option} {}: a file is there already and is not written over: remove it, or name another",
                    path.display()
                ),
            }),
            Err(errno) => Err(cannot_create(option, path, &errno.into())),
        }
    }

    /// Writes it, down to the disk.
    pub(super) fn fill(mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.file.sync_all()?;
        self.filled = true;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.filled {
            // Root that has become somebody else may not: then an empty file stays.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn directory_of(path: &Path) -> io::Result<PathBuf> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    directory.unwrap_or(Path::new(".")).canonicalize()
}

fn is_of_the_kernel(directory: &Path) -> bool {
    directory == Path::new("/dev") || directory.starts_with("/proc")
}

pub(super) fn cannot_create(option: &str, path: &Path, error: &io::Error) -> Refused {
    Refused { code: exit::CANNOT_CREATE, message: format!("{option} {}: {error}", path.display()) }
}
