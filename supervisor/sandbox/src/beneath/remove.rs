//! Removing a tree that somebody else shaped.
//!
//! Recursion would let the tree's depth choose our stack and our descriptors, and `..` would let a rename choose our way
//! back. So nothing goes deeper than two levels: a directory in a directory in the top one is moved up into the top one under
//! a name of ours, until the top one is empty.

use std::ffi::CString;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir as Entries, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// How often a pass over the top directory may end without having removed anything.
const PATIENCE: u32 = 8;

/// Removes one entry of a directory, whatever it is.
pub(super) fn tree(parent: BorrowedFd<'_>, name: &Path) -> Result<(), Errno> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        // EISDIR is Linux's answer for a directory, EPERM is POSIX's.
        Err(Errno::ISDIR | Errno::PERM) => {}
        other => return other,
    }
    let top = open_writable(parent, name)?;
    let mut moved = 0_u64;
    let mut idle = 0;
    while idle < PATIENCE {
        let mut progress = false;
        for entry in entries(&top)? {
            progress |= remove_entry(&top, &entry, &mut moved)?;
        }
        match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            other => return other,
        }
        idle = if progress { 0 } else { idle + 1 };
    }
    Err(Errno::NOTEMPTY)
}

/// Takes an entry out of the top directory; what is in a directory's directories lands in the top one.
fn remove_entry(top: &OwnedFd, name: &CString, moved: &mut u64) -> Result<bool, Errno> {
    if gone(rustix::fs::unlinkat(top, name, AtFlags::empty()))? {
        return Ok(true);
    }
    if gone(rustix::fs::unlinkat(top, name, AtFlags::REMOVEDIR))? {
        return Ok(true);
    }
    let directory = match open_writable_c(top, name) {
        Ok(directory) => directory,
        // Swapped for something else, or taken away: the next pass sees what it is now.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(true),
        Err(errno) => return Err(errno),
    };
    for entry in entries(&directory)? {
        if gone(rustix::fs::unlinkat(&directory, &entry, AtFlags::empty()))?
            || gone(rustix::fs::unlinkat(&directory, &entry, AtFlags::REMOVEDIR))?
        {
            continue;
        }
        // Moving a directory writes to its own `..`, so it must be writable as well.
        drop(open_writable_c(&directory, &entry));
        *moved += 1;
        let place = format!(".casemate-removed-{moved}");
        match rustix::fs::renameat(&directory, &entry, top, &place) {
            // A name that is taken is the agent's; the counter goes on, and the next pass tries another.
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
            Err(errno) => return Err(errno),
        }
    }
    gone(rustix::fs::unlinkat(top, name, AtFlags::REMOVEDIR))
}

/// True where it is gone now, false where it is a directory that is not empty, or no directory.
fn gone(result: Result<(), Errno>) -> Result<bool, Errno> {
    match result {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ISDIR | Errno::PERM | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {
            Ok(false)
        }
        Err(errno) => Err(errno),
    }
}

/// The names in a directory, as of now.
fn entries(directory: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let mut names = Vec::new();
    for entry in Entries::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

fn open_writable_c(from: &OwnedFd, name: &CString) -> Result<OwnedFd, Errno> {
    use std::os::fd::AsFd as _;
    use std::os::unix::ffi::OsStrExt as _;
    open_writable(from.as_fd(), Path::new(std::ffi::OsStr::from_bytes(name.to_bytes())))
}

/// Opens a directory to list and empty it; one that its owner closed is opened up first.
fn open_writable(from: BorrowedFd<'_>, name: &Path) -> Result<OwnedFd, Errno> {
    let open = |flags| {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        rustix::fs::openat2(
            from,
            name,
            flags | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
            resolve,
        )
    };
    let handle = open(OFlags::PATH)?;
    let mode = rustix::fs::fstat(&handle)?.st_mode;
    if mode & 0o700 != 0o700 {
        // chmod takes a path, and by a name it could hit what the agent has put there since. This path is the
        // descriptor itself (proc(5), /proc/PID/fd); O_PATH descriptors have no fchmod(2) of their own.
        let itself = format!("/proc/self/fd/{}", handle.as_raw_fd());
        rustix::fs::chmod(itself, Mode::from_raw_mode(0o700))?;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat2(
        &handle,
        ".",
        flags,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
    )
}
