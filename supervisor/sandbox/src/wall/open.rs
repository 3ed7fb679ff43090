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
use rustix::fs::{CWD, FileType, OFlags, PROC_SUPER_MAGIC, ResolveFlags};

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
#[derive(Debug)]
pub(super) struct Writable {
    mounts: Mounts,
    places: Vec<Written>,
}

/// A directory, or a file by itself: by its name, and by its place in the file system, which is the same below each of its mounts.
#[derive(Debug)]
struct Written {
    real: PathBuf,
    location: Location,
}

/// Why a path was not opened.
#[derive(Debug)]
pub(super) enum NotOpened {
    Io(io::Error),
    /// This part of it is looked up in a directory that a session may write.
    Moved(PathBuf),
}

/// Whose directories a path may lead through.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Anybody's; but no link in a session's is followed.
    Rule,
    /// None that a session may write.
    Outside,
}

// === impl Writable ===

impl Writable {
    pub(super) fn resolve(grants: &[Grant], places: &Places) -> Result<Self, WallError> {
        let mountinfo = fs::read("/proc/thread-self/mountinfo").map_err(WallError::Mounts)?;
        let mut writable = Self { mounts: Mounts::parse(&mountinfo), places: Vec::new() };
        let granted = grants.iter().filter(|grant| grant.access.contains(&Access::Write));
        let own = [&places.work, &places.home, &places.scratch];
        for path in granted.map(|grant| &grant.path).chain(own) {
            let trouble = |source| WallError::Path { path: path.clone(), source };
            // One that is not there, or that cannot be looked at, is nobody's to write; where it is granted, that is told then.
            let Ok(fd) = open_path(path) else { continue };
            // What is written to a device is in no file.
            let kind = kind(fd.as_fd()).map_err(trouble)?;
            if !matches!(kind, FileType::CharacterDevice | FileType::BlockDevice) {
                let real = name(fd.as_fd()).map_err(trouble)?;
                let location = writable.location(fd.as_fd(), &real).map_err(trouble)?;
                let location =
                    location.ok_or_else(|| WallError::Elsewhere { path: path.clone() })?;
                writable.places.push(Written { real, location });
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
            Err(rustix::io::Errno::LOOP) => self.walk(path, Way::Rule),
            Err(error) => Err(NotOpened::Io(error.into())),
        }
    }

    /// Opens an absolute path as a place that is, and lies, in none that a session may write, nor does any part of the way to it.
    pub(super) fn open_outside(&self, path: &Path) -> Result<OwnedFd, NotOpened> {
        let found = self.walk(path, Way::Outside)?;
        // What goes into a pipe or a device stays in no file.
        let stays = matches!(kind(found.as_fd())?, FileType::Directory | FileType::RegularFile);
        if stays && self.has(found.as_fd())? {
            return Err(NotOpened::Moved(name(found.as_fd())?));
        }
        Ok(found)
    }

    /// Part by part, as the kernel does it (path_resolution(7)), but for links that are a session's. For rules links of `/proc` are
    /// followed by what they say; else by what they are, a descriptor of this process say (proc_pid_fd(5)).
    fn walk(&self, path: &Path, way: Way) -> Result<OwnedFd, NotOpened> {
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
            if (way == Way::Outside || part == "..") && self.has(here.as_fd())? {
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
            if way == Way::Outside && is_of_processes(here.as_fd())? {
                let flags = OFlags::PATH | OFlags::CLOEXEC;
                here = rustix::fs::openat(&here, &part, flags, rustix::fs::Mode::empty())?;
                continue;
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

    /// Whether what was opened is, or lies below, what a session may write: by its name, by its place in the file system, or since its
    /// place is mounted once more below such a directory. Where its place does not show (a mount of another mount namespace, or one that is
    /// newer than the look), its name alone tells nothing, which is an error.
    pub(super) fn has(&self, opened: BorrowedFd<'_>) -> io::Result<bool> {
        let real = name(opened)?;
        if self.places.iter().any(|written| real.starts_with(&written.real)) {
            return Ok(true);
        }
        let Some(here) = self.location(opened, &real)? else {
            let path = real;
            return Err(io::Error::other(WallError::Elsewhere { path }));
        };
        Ok(self.places.iter().any(|written| {
            let mut below = self.mounts.written_below(&written.real);
            here.lies_in(&written.location) || below.any(|above| here.lies_in(above))
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

/// `/proc/self/fd` and the like, whose links lead to what a process has.
pub(super) fn is_of_processes(directory: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(rustix::fs::fstatfs(directory)?.f_type == PROC_SUPER_MAGIC)
}

pub(super) fn kind(fd: BorrowedFd<'_>) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode))
}

fn name(fd: BorrowedFd<'_>) -> io::Result<PathBuf> {
    let real = fs::read_link(format!("/proc/thread-self/fd/{}", fd.as_raw_fd()))?;
    if mounts::is_reachable(&real) { Ok(real) } else { Err(io::ErrorKind::NotFound.into()) }
}
