//! Files that `exec` writes for whoever called it: where the command cannot, so that what they say is not its word, and no link
//! that an earlier one left leads elsewhere.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use casemate_protocol::codes::exit;
use casemate_sandbox::Places;
use nix::libc;

use super::{Refused, usage};

/// A file that was not there before. Where nothing comes of it, it goes again.
#[derive(Debug)]
pub(super) struct NewFile {
    file: File,
    path: PathBuf,
    filled: bool,
}

/// Opens a file, or makes it. A pipe, by /dev/fd, is a file as well.
pub(super) fn open(option: &str, path: &Path, places: &Places) -> Result<File, Refused> {
    outside(option, path, places)?;
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    // The kernel's links (/dev/fd, /dev/stdout) lead to what this process has; another was made by somebody, and leads where he likes.
    if !directory_of(path).is_ok_and(|directory| is_of_the_kernel(&directory)) {
        options.custom_flags(libc::O_NOFOLLOW);
    }
    options.open(path).map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => usage(format!(
            "{option} {}: it is a link, which could lead to anything the next time: name the file that it leads to",
            path.display()
        )),
        _ => cannot_create(option, path, &error),
    })
}

// === impl NewFile ===

impl NewFile {
    /// Makes it, and refuses whatever has its name.
    pub(super) fn create(option: &str, path: &Path, places: &Places) -> Result<Self, Refused> {
        outside(option, path, places)?;
        let path =
            std::path::absolute(path).map_err(|error| cannot_create(option, path, &error))?;
        match File::options().write(true).create_new(true).open(&path) {
            Ok(file) => Ok(Self { file, path, filled: false }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(Refused {
                code: exit::CANNOT_CREATE,
                message: format!("{option} {}: exists; name a new file", path.display()),
            }),
            Err(error) => Err(cannot_create(option, &path, &error)),
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

fn outside(option: &str, path: &Path, places: &Places) -> Result<(), Refused> {
    let directory = directory_of(path).map_err(|error| cannot_create(option, path, &error))?;
    let own = [("--work", &places.work), ("--home", &places.home), ("--scratch", &places.scratch)];
    match own.iter().find(|(_, place)| directory.starts_with(place)) {
        Some((name, place)) => Err(usage(format!(
            "{option} {}: it lies in {}, where the command may write ({name}): name a file outside of it, or another place",
            path.display(),
            place.display()
        ))),
        None => Ok(()),
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
