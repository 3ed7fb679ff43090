//! How much a tree takes that somebody else shapes, while it is being shaped.
//!
//! Every step is from a held descriptor to a name that is no symbolic link, so the walk never leaves the tree. A directory
//! that its owner closed is opened up while it is looked into and closed again: else `chmod 0` would hide what is in it. The depth is
//! bounded, since each level holds a descriptor; what lies deeper, on another file system, or went away is not counted.

use std::collections::HashSet;
use std::ffi::CString;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir as Entries, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// Deeper than any source tree, and a small part of the descriptors that a process has.
const DEEPEST: usize = 200;
/// `st_blocks` counts in these, whatever the file system's own size (inode(7)).
const BLOCK: u64 = 512;

/// What was found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Measured {
    /// Bytes on disk; a file with several names counts once.
    pub bytes: u64,
    /// Files and directories.
    pub files: u64,
    /// Directories that were not looked into.
    pub unread: u64,
}

/// Adds a tree to what was measured. `seen` holds the files with several names, over all trees of one measurement.
pub(super) fn tree(
    root: BorrowedFd<'_>,
    seen: &mut HashSet<(u64, u64)>,
    measured: &mut Measured,
) -> Result<(), Errno> {
    let own = rustix::fs::fstat(root)?;
    measured.add(&own);
    let root = rustix::fs::openat(root, ".", DIRECTORY, Mode::empty())?;
    let root = Opened { fd: root, closed: None };
    let mut levels = vec![level(root, &own, seen, measured)?];
    while let Some(above) = levels.last_mut() {
        let Some(name) = above.directories.pop() else {
            levels.pop();
            continue;
        };
        let deeper = open(&above.opened.fd, &name, own.st_dev);
        match deeper {
            Ok(Some(opened)) if levels.len() < DEEPEST => match level(opened, &own, seen, measured)
            {
                Ok(level) => levels.push(level),
                Err(_) => measured.unread += 1,
            },
            Ok(Some(_)) => measured.unread += 1,
            // Another file system, or gone.
            Ok(None) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(_) => measured.unread += 1,
        }
    }
    Ok(())
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A directory on the way down, and what is still to be looked into.
struct Level {
    opened: Opened,
    directories: Vec<CString>,
}

/// An open directory, and the mode that it had where that had to be widened; it gets it back.
struct Opened {
    fd: OwnedFd,
    closed: Option<Mode>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(mode) = self.closed {
            // It is the owner's own directory either way.
            let _ = rustix::fs::fchmod(&self.fd, mode);
        }
    }
}

/// Counts what a directory holds.
fn level(
    opened: Opened,
    root: &Stat,
    seen: &mut HashSet<(u64, u64)>,
    measured: &mut Measured,
) -> Result<Level, Errno> {
    let mut directories = Vec::new();
    let fd = &opened.fd;
    for entry in Entries::read_from(fd)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let Ok(stat) = rustix::fs::statat(fd, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        if stat.st_dev != root.st_dev {
            continue;
        }
        if FileType::from_raw_mode(stat.st_mode).is_dir() {
            directories.push(name.to_owned());
        } else if stat.st_nlink > 1 && !seen.insert((stat.st_dev, stat.st_ino)) {
            continue;
        }
        measured.add(&stat);
    }
    Ok(Level { opened, directories })
}

/// Opens a directory for listing; `None` where it is on another file system by now.
fn open(above: &OwnedFd, name: &CString, device: u64) -> Result<Option<Opened>, Errno> {
    let opened = match rustix::fs::openat(above, name, DIRECTORY, Mode::empty()) {
        // One may be listed and yet not be searched.
        Ok(fd) if Mode::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode).contains(Mode::XUSR) => {
            Opened { fd, closed: None }
        }
        Ok(_) | Err(Errno::ACCESS) => closed(above, name)?,
        Err(errno) => return Err(errno),
    };
    Ok((rustix::fs::fstat(&opened.fd)?.st_dev == device).then_some(opened))
}

/// One that its owner closed.
fn closed(above: &OwnedFd, name: &CString) -> Result<Opened, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = rustix::fs::openat(above, name, flags, Mode::empty())?;
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&handle)?.st_mode);
    // The descriptor itself as a path (proc(5), /proc/PID/fd): by its name something else could be hit by now.
    let itself = format!("/proc/self/fd/{}", handle.as_raw_fd());
    rustix::fs::chmod(&itself, mode | Mode::RWXU)?;
    let fd = rustix::fs::openat(&handle, ".", DIRECTORY, Mode::empty())?;
    Ok(Opened { fd, closed: Some(mode) })
}

impl Measured {
    fn add(&mut self, stat: &Stat) {
        self.files += 1;
        let blocks = u64::try_from(stat.st_blocks).unwrap_or(0);
        self.bytes = self.bytes.saturating_add(blocks.saturating_mul(BLOCK));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::super::Dir;
    use super::Measured;

    fn measured(path: &std::path::Path) -> Measured {
        Dir::measure(&[path.to_owned()]).unwrap()
    }

    #[test]
    fn files_directories_and_blocks_are_counted_and_names_of_one_file_once() {
        let root = tempfile::tempdir().unwrap();
        let before = measured(root.path());
        assert_eq!((before.files, before.unread), (1, 0));
        fs::create_dir_all(root.path().join("a/b/c")).unwrap();
        fs::write(root.path().join("a/b/file"), vec![1; 1 << 20]).unwrap();
        fs::hard_link(root.path().join("a/b/file"), root.path().join("again")).unwrap();
        let after = measured(root.path());
        assert_eq!((after.files, after.unread), (5, 0));
        let grown = after.bytes - before.bytes;
        assert!(((1 << 20)..(2 << 20)).contains(&grown), "{grown}");
        // A sparse file takes nothing, however long it says it is.
        fs::File::create(root.path().join("sparse")).unwrap().set_len(1 << 40).unwrap();
        assert!(measured(root.path()).bytes - after.bytes < 1 << 20);
    }

    #[test]
    fn links_out_of_the_tree_are_not_followed() {
        let root = tempfile::tempdir().unwrap();
        symlink("/usr", root.path().join("out")).unwrap();
        assert_eq!(measured(root.path()).files, 2);
    }

    #[test]
    fn a_closed_directory_is_looked_into_and_stays_closed() {
        let root = tempfile::tempdir().unwrap();
        let closed = root.path().join("closed");
        fs::create_dir_all(closed.join("inner")).unwrap();
        fs::write(closed.join("inner/file"), vec![1; 1 << 20]).unwrap();
        for (directory, mode) in [(closed.join("inner"), 0o400), (closed.clone(), 0o000)] {
            fs::set_permissions(directory, fs::Permissions::from_mode(mode)).unwrap();
        }
        let found = measured(root.path());
        assert_eq!((found.files, found.unread), (4, 0));
        assert!(found.bytes >= 1 << 20);
        assert_eq!(fs::metadata(&closed).unwrap().permissions().mode() & 0o777, 0);
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
        fs::set_permissions(closed.join("inner"), fs::Permissions::from_mode(0o700)).unwrap();
    }

    #[test]
    fn a_tree_that_is_too_deep_says_so() {
        let root = tempfile::tempdir().unwrap();
        let mut path = root.path().to_owned();
        for _ in 0..super::DEEPEST + 20 {
            path.push("d");
            fs::create_dir(&path).unwrap();
        }
        let found = measured(root.path());
        assert_eq!(found.unread, 1);
        assert!(found.files >= super::DEEPEST as u64);
    }
}
