//! Opening a path as a place, not as a file; and that of a rule without links that a session could have made.
//!
//! A rule outlives sessions and its links are followed anew at each start, so one that leads through a directory which a session
//! may write would hold for whatever the last session turned it to. A descriptor comes of it, the very one that the rule is then bound to.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use casemate_protocol::policy::Access;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use rustix::fs::{CWD, FileType, OFlags, ResolveFlags};

use super::grants::Grant;
use super::mounts::{self, Location, Mounts};
use super::{Places, WallError};

/// As many links as the kernel follows in one path (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// `O_PATH`: no permission on the file itself is needed, and no device is woken (open(2)).
pub(super) fn open_path(path: &Path) -> io::Result<OwnedFd> {
    open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).map_err(io::Error::from)
}

/// Where sessions may write, so that links there are theirs: what the policy lets them write, and their own places, which another
/// policy may have let them write. Resolved once.
pub(super) struct Writable {
    mounts: Mounts,
    directories: Vec<Directory>,
}

/// By its name, and by its place in the file system, which is the same below each of its mounts.
struct Directory {
    real: PathBuf,
    location: Option<Location>,
}

/// Why a rule's path was not opened.
#[derive(Debug)]
pub(super) enum NotOpened {
    Io(io::Error),
    /// This link is in a directory that a session may write.
    Moved(PathBuf),
}

/// The link on a path's way that a session could have made, since it lies in one of these places; for paths that are named beside
/// a policy. `None` as well where the path or the table of mounts cannot be looked at, since then nothing is granted by it.
#[must_use]
pub fn link_of_a_session(path: &Path, places: &Places) -> Option<PathBuf> {
    match Writable::resolve(&[], places).ok()?.open(path) {
        Err(NotOpened::Moved(link)) => Some(link),
        _ => None,
    }
}

// === impl Writable ===

impl Writable {
    pub(super) fn resolve(grants: &[Grant], places: &Places) -> Result<Self, WallError> {
        let mountinfo = fs::read("/proc/thread-self/mountinfo").map_err(WallError::Mounts)?;
        let mut writable = Self { mounts: Mounts::parse(&mountinfo), directories: Vec::new() };
        let granted = grants.iter().filter(|grant| grant.access.contains(&Access::Write));
        let own = [&places.work, &places.home, &places.scratch];
        for path in granted.map(|grant| &grant.path).chain(own) {
            let trouble = |source| WallError::Path { path: path.clone(), source };
            // One that is not there, or that cannot be looked at, is nobody's to write; where it is granted, that is told then.
            let Ok(fd) = open_path(path) else { continue };
            if kind(fd.as_fd()).map_err(trouble)? == FileType::Directory {
                let real = name(fd.as_fd()).map_err(trouble)?;
                let location = writable.location(fd.as_fd(), &real).map_err(trouble)?;
                writable.directories.push(Directory { real, location });
            }
        }
        Ok(writable)
    }

    /// Opens a rule's path as a place. Between the look at a link and its use nothing can be exchanged: each part is opened
    /// relative to the descriptor of the directory that was judged, and what is opened is what is granted.
    pub(super) fn open(&self, path: &Path) -> Result<OwnedFd, NotOpened> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let mode = rustix::fs::Mode::empty();
        // Most rules have no link on their way.
        match rustix::fs::openat2(CWD, path, flags, mode, ResolveFlags::NO_SYMLINKS) {
            Ok(fd) => Ok(fd),
            Err(rustix::io::Errno::LOOP) => self.walk(path),
            Err(error) => Err(NotOpened::Io(error.into())),
        }
    }

    /// Part by part, as the kernel does it (path_resolution(7)), but for links that are a session's. Links of `/proc` are
    /// followed by what they say.
    fn walk(&self, path: &Path) -> Result<OwnedFd, NotOpened> {
        let root = || open_path(Path::new("/"));
        let mut here = root()?;
        let mut links = 0;
        let mut rest = parts(path);
        while let Some(part) = rest.pop() {
            if part == "/" {
                here = root()?;
                continue;
            }
            // Up and out of it: how far is for whoever moves directories there.
            if part == ".." && self.has(here.as_fd())? {
                return Err(NotOpened::Moved(name(here.as_fd())?.join(part)));
            }
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let next = rustix::fs::openat(&here, &part, flags, rustix::fs::Mode::empty())?;
            if kind(next.as_fd())? != FileType::Symlink {
                here = next;
                continue;
            }
            if self.has(here.as_fd())? {
                return Err(NotOpened::Moved(name(here.as_fd())?.join(part)));
            }
            links += 1;
            if links > MOST_LINKS {
                return Err(rustix::io::Errno::LOOP.into());
            }
            let target = rustix::fs::readlinkat(&next, "", Vec::new())?;
            rest.extend(parts(Path::new(&OsString::from_vec(target.into_bytes()))));
        }
        Ok(here)
    }

    /// Whether a directory is, or lies below, one that a session may write.
    fn has(&self, directory: BorrowedFd<'_>) -> io::Result<bool> {
        let real = name(directory)?;
        let location = self.location(directory, &real)?;
        Ok(self.directories.iter().any(|writable| {
            let both = location.as_ref().zip(writable.location.as_ref());
            real.starts_with(&writable.real)
                || both.is_some_and(|(here, above)| here.lies_in(above))
        }))
    }

    fn location(&self, fd: BorrowedFd<'_>, real: &Path) -> io::Result<Option<Location>> {
        let fdinfo = fs::read_to_string(format!("/proc/thread-self/fdinfo/{}", fd.as_raw_fd()))?;
        Ok(mounts::mount_id(&fdinfo).and_then(|id| self.mounts.location(id, real)))
    }
}

impl From<io::Error> for NotOpened {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<rustix::io::Errno> for NotOpened {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Io(error.into())
    }
}

/// The last one first.
fn parts(path: &Path) -> Vec<OsString> {
    let parts = path.components().filter(|part| *part != Component::CurDir);
    parts.rev().map(|part| OsStr::to_owned(part.as_os_str())).collect()
}

fn kind(fd: BorrowedFd<'_>) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode))
}

fn name(fd: BorrowedFd<'_>) -> io::Result<PathBuf> {
    let real = fs::read_link(format!("/proc/thread-self/fd/{}", fd.as_raw_fd()))?;
    if mounts::is_reachable(&real) { Ok(real) } else { Err(io::ErrorKind::NotFound.into()) }
}
