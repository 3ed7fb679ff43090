//! Our own reading and writing below directories that an agent writes to.
//!
//! The agent has the same uid as we have and may swap any component for a symbolic link between two of our system calls. So
//! no path is ever given to the kernel whole and trusted: every lookup starts at a directory's descriptor and is made
//! with openat2(2) and `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS`, and what is opened is checked by descriptor to be what was
//! meant (a FIFO in place of a file would hold us, a device would be worse).
//!
//! A [`Dir`] owns its descriptor and nothing else; it stays the same directory wherever the agent moves it.

mod copy;
mod measure;
mod remove;

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

pub use measure::Measured;

/// A directory, below which everything that its methods touch lies.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    /// For messages; never given to the kernel again.
    path: PathBuf,
}

/// Why a file operation below a [`Dir`] failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {}{}", path.display(), hint(source))]
pub struct BeneathError {
    /// What was tried (`read`).
    pub what: &'static str,
    /// On what.
    pub path: PathBuf,
    /// What the kernel answered.
    #[source]
    pub source: io::Error,
}

/// What to do next, where the errno tells.
fn hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ELOOP | libc::EXDEV) => "; a symbolic link is in the way: remove it",
        Some(libc::ENOSPC | libc::EDQUOT) => "; the disk is full: make room",
        Some(libc::EROFS) => "; the volume is read-only: mount it writable",
        Some(libc::EFBIG) => "; it is larger than what is read of such a file",
        _ => "",
    }
}

const RESOLVE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

impl Dir {
    /// Opens a directory by a path that no agent can change.
    ///
    /// # Errors
    /// What open(2) answers.
    pub fn open(root: &Path) -> Result<Self, BeneathError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(root, flags, Mode::empty()) {
            Ok(fd) => Ok(Self { fd, path: root.to_owned() }),
            Err(errno) => {
                Err(BeneathError { what: "open", path: root.to_owned(), source: errno.into() })
            }
        }
    }

    /// What these trees take together; one that is not there takes nothing, one that cannot be looked into is
    /// [`Measured::unread`]. May take long: a file is about a microsecond.
    #[must_use]
    pub fn measure(trees: &[PathBuf]) -> Measured {
        let (mut seen, mut measured) = (HashSet::new(), Measured::default());
        for tree in trees {
            let done =
                measure::root(tree).and_then(|root| measure::tree(root, &mut seen, &mut measured));
            if !matches!(done, Ok(()) | Err(Errno::NOENT)) {
                measured.unread += 1;
            }
        }
        measured
    }

    /// Opens a directory below this one.
    ///
    /// # Errors
    /// `ELOOP` for a symbolic link, `ENOTDIR` for something else, and openat2(2)'s.
    pub fn dir(&self, path: impl AsRef<Path>) -> Result<Self, BeneathError> {
        let path = path.as_ref();
        let fd = open_dir(self.fd.as_fd(), path).map_err(self.failed("open", path))?;
        Ok(Self { fd, path: self.path.join(path) })
    }

    /// Creates a directory and its parents, mode as given (less the umask); one that is there stays as it is.
    ///
    /// # Errors
    /// `ELOOP` where a component is a symbolic link, and mkdirat(2)'s.
    pub fn create_dir_all(&self, path: impl AsRef<Path>, mode: u32) -> Result<Self, BeneathError> {
        let path = path.as_ref();
        let failed = self.failed("create the directory", path);
        let mut fd = match open_dir(self.fd.as_fd(), Path::new(".")) {
            Ok(fd) => fd,
            Err(errno) => return Err(failed(errno)),
        };
        for part in path.components() {
            match below(fd.as_fd(), part, Mode::from_raw_mode(mode)) {
                Ok(next) => fd = next,
                Err(errno) => return Err(failed(errno)),
            }
        }
        Ok(Self { fd, path: self.path.join(path) })
    }

    /// Writes a file so that a reader, or a crash, finds the old content or the new one: a new file beside it, synced,
    /// then renamed. Whatever was there is replaced, a symbolic link itself included.
    ///
    /// # Errors
    /// `EISDIR` where a directory is there, and what the system calls answer.
    pub fn write_file(
        &self,
        path: impl AsRef<Path>,
        content: &[u8],
        mode: u32,
    ) -> Result<(), BeneathError> {
        let path = path.as_ref();
        self.replace(path, mode, |file| {
            file.write_all(content)?;
            file.sync_all()
        })
        .map_err(|source| self.error("write", path, source))
    }

    /// Reads a regular file of at most `limit` bytes.
    ///
    /// # Errors
    /// `EINVAL` for anything but a regular file, `EFBIG` above the limit, and what the system calls answer.
    pub fn read_file(&self, path: impl AsRef<Path>, limit: u64) -> Result<Vec<u8>, BeneathError> {
        let path = path.as_ref();
        let read = || {
            let file = self.regular(path, OFlags::RDONLY, 0)?;
            let mut content = Vec::new();
            file.take(limit.saturating_add(1)).read_to_end(&mut content)?;
            match u64::try_from(content.len()) {
                Ok(length) if length <= limit => Ok(content),
                _ => Err(Errno::FBIG.into()),
            }
        };
        read().map_err(|source| self.error("read", path, source))
    }

    /// Opens a regular file for appending, creating it with the mode where it is missing.
    ///
    /// # Errors
    /// `EINVAL` for anything but a regular file, and what the system calls answer.
    pub fn open_append(&self, path: impl AsRef<Path>, mode: u32) -> Result<File, BeneathError> {
        let path = path.as_ref();
        self.regular(path, OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE, mode)
            .map_err(|source| self.error("append to", path, source))
    }

    /// Is anything there? A symbolic link is, wherever it points.
    ///
    /// # Errors
    /// What openat2(2) answers for a parent, other than that it is missing.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool, BeneathError> {
        let path = path.as_ref();
        let look = || {
            let (parent, name) = self.parent_of(path)?;
            rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)
        };
        match look() {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(self.failed("look at", path)(errno)),
        }
    }

    /// Removes a file, a link (not what it points to) or a whole tree, whatever modes the agent gave its directories and
    /// however deep it nested them. Nothing there is success.
    ///
    /// # Errors
    /// `ENOTEMPTY` where something keeps on writing into the tree, and what the system calls answer.
    pub fn remove_tree(&self, path: impl AsRef<Path>) -> Result<(), BeneathError> {
        let path = path.as_ref();
        let remove = || {
            let (parent, name) = self.parent_of(path)?;
            remove::tree(parent.as_fd(), name)
        };
        match remove() {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.failed("remove", path)(errno)),
        }
    }

    /// Copies a trusted tree of the host into a directory below this one, which is created where it is missing: files
    /// (permission bits without setuid and setgid), directories, and symbolic links as they are. Files that are there are replaced;
    /// a second call completes a first one that was cut off.
    ///
    /// # Errors
    /// `EINVAL` for a socket, FIFO or device in the source, `ELOOP` for a link in the way, and what the system calls answer.
    pub fn copy_tree_into(
        &self,
        source: &Path,
        path: impl AsRef<Path>,
    ) -> Result<(), BeneathError> {
        let target = self.create_dir_all(path, 0o700)?;
        let from = Self::open(source)?;
        copy::tree(&from, &target, 0)
    }

    // === shared by the parts ===

    /// A new file under a random name, filled, and renamed to its place.
    fn replace(
        &self,
        path: &Path,
        mode: u32,
        fill: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> io::Result<()> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let (parent, name) = self.parent_of(path)?;
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let temporary = format!(".casemate-{}-{count}.new", std::process::id());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        // What an earlier process of this pid left behind.
        let _ = rustix::fs::unlinkat(&parent, &temporary, AtFlags::empty());
        let fd =
            rustix::fs::openat2(&parent, &temporary, flags, Mode::from_raw_mode(mode), RESOLVE)?;
        let placed = fill(&mut File::from(fd))
            .and_then(|()| Ok(rustix::fs::renameat(&parent, &temporary, &parent, name)?));
        if placed.is_err() {
            let _ = rustix::fs::unlinkat(&parent, &temporary, AtFlags::empty());
        }
        placed
    }

    /// Opens what must be a regular file. O_NONBLOCK, for a FIFO would hold open(2) itself; it means nothing to a file.
    fn regular(&self, path: &Path, flags: OFlags, mode: u32) -> io::Result<File> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = rustix::fs::openat2(&self.fd, path, flags, Mode::from_raw_mode(mode), RESOLVE)?;
        let found = rustix::fs::fstat(&fd)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(Errno::INVAL.into());
        }
        Ok(File::from(fd))
    }

    /// The directory that holds the last component, and that component.
    fn parent_of<'p>(&self, path: &'p Path) -> Result<(OwnedFd, &'p Path), Errno> {
        let Some(Component::Normal(name)) = path.components().next_back() else {
            return Err(Errno::INVAL);
        };
        let parent = match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => open_dir(self.fd.as_fd(), parent)?,
            // Not opened anew: whoever watches the directory above (inotify(7)) would be told its name.
            None => rustix::io::fcntl_dupfd_cloexec(&self.fd, 0)?,
        };
        Ok((parent, Path::new(name)))
    }

    fn failed(&self, what: &'static str, path: &Path) -> impl Fn(Errno) -> BeneathError + use<> {
        let path = self.path.join(path);
        move |errno| BeneathError { what, path: path.clone(), source: errno.into() }
    }

    fn error(&self, what: &'static str, path: &Path, source: io::Error) -> BeneathError {
        BeneathError { what, path: self.path.join(path), source }
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn open_dir(from: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat2(from, path, flags, Mode::empty(), RESOLVE)
}

/// One component further down, made where it is missing.
fn below(from: BorrowedFd<'_>, part: Component<'_>, mode: Mode) -> Result<OwnedFd, Errno> {
    let name = match part {
        Component::Normal(name) => Path::new(name),
        Component::CurDir => return open_dir(from, Path::new(".")),
        Component::RootDir | Component::ParentDir | Component::Prefix(_) => {
            return Err(Errno::INVAL);
        }
    };
    match open_dir(from, name) {
        Err(Errno::NOENT) => match rustix::fs::mkdirat(from, name, mode) {
            Ok(()) | Err(Errno::EXIST) => open_dir(from, name),
            Err(errno) => Err(errno),
        },
        other => other,
    }
}

#[cfg(test)]
mod tests;
