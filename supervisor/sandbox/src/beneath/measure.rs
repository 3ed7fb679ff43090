//! How much a tree takes that somebody else shapes, while it is being shaped.
//!
//! Every step is from a held descriptor to a name that is no symbolic link, so the walk never leaves the tree. A directory
//! that its owner closed is opened up while it is looked into and closed again: else `chmod 0` would hide what is in it. Depth hides
//! nothing either: only the lowest levels hold a descriptor, and the way back up is by `..`, taken where it leads to the very directory
//! that the walk came from. What is on another file system, was moved meanwhile or went away is not counted.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, Dir as Entries, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// So many of the lowest levels hold a descriptor: a small part of those that a process has.
const HELD: usize = 100;
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

/// Opens a tree's root, which its owner may have closed like any directory in it. The way there is nobody's to change.
pub(super) fn root(path: &Path) -> Result<Opened, Errno> {
    let whole = || {
        let fd = rustix::fs::open(path, DIRECTORY.difference(OFlags::NOFOLLOW), Mode::empty())?;
        Ok(Opened { fd, closed: None })
    };
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return whole() };
    let name = CString::new(name.as_bytes()).map_err(|_| Errno::INVAL)?;
    // Also where it cannot be listed.
    let way = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = rustix::fs::open(parent, way, Mode::empty())?;
    let device = rustix::fs::statat(&above, &name, AtFlags::SYMLINK_NOFOLLOW)?.st_dev;
    match open(&above, &name, device) {
        Ok(opened) => opened.ok_or(Errno::NOENT),
        // A link that whoever named the tree has made.
        Err(Errno::LOOP | Errno::NOTDIR) => whole(),
        Err(errno) => Err(errno),
    }
}

/// Adds a tree to what was measured. `seen` holds the files with several names, over all trees of one measurement.
pub(super) fn tree(
    root: Opened,
    seen: &mut HashSet<(u64, u64)>,
    measured: &mut Measured,
) -> Result<(), Errno> {
    let own = rustix::fs::fstat(&root.fd)?;
    measured.add(&own);
    let mut here = root;
    let mut above: Vec<Above> = Vec::new();
    let mut directories = level(&here, &own, seen, measured)?;
    loop {
        let Some(name) = directories.pop() else {
            let Some(mut up) = above.pop() else { return Ok(()) };
            let Some(opened) = up.again(&here) else {
                // Moved to where the way back is another: what is left of the levels above is not looked into.
                measured.unread += above.len() as u64 + 1;
                return Ok(());
            };
            (here, directories) = (opened, up.directories);
            continue;
        };
        match open(&here.fd, &name, own.st_dev) {
            Ok(Some(opened)) => match level(&opened, &own, seen, measured) {
                Ok(below) => {
                    let identity = identity(&rustix::fs::fstat(&here.fd)?);
                    let opened = std::mem::replace(&mut here, opened);
                    let directories = std::mem::replace(&mut directories, below);
                    above.push(Above { opened: Some(opened), identity, directories });
                    let high = above.len().checked_sub(HELD).and_then(|at| above.get_mut(at));
                    high.into_iter().for_each(|high| high.opened = None);
                }
                Err(_) => measured.unread += 1,
            },
            // Another file system, or gone.
            Ok(None) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(_) => measured.unread += 1,
        }
    }
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A directory on the way down, and what is still to be looked into.
struct Above {
    /// `None` far above the lowest.
    opened: Option<Opened>,
    identity: (u64, u64),
    directories: Vec<CString>,
}

impl Above {
    /// Itself, from a directory in it; `None` where that is in another one by now.
    fn again(&mut self, below: &Opened) -> Option<Opened> {
        if let Some(opened) = self.opened.take() {
            return Some(opened);
        }
        let opened = open(&below.fd, c"..", self.identity.0).ok()??;
        let found = rustix::fs::fstat(&opened.fd).ok()?;
        (identity(&found) == self.identity).then_some(opened)
    }
}

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// An open directory, and the mode that it had where that had to be widened; it gets it back.
pub(super) struct Opened {
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

/// Counts what a directory holds; the directories in it.
fn level(
    opened: &Opened,
    root: &Stat,
    seen: &mut HashSet<(u64, u64)>,
    measured: &mut Measured,
) -> Result<Vec<CString>, Errno> {
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
        } else if stat.st_nlink > 1 && !seen.insert(identity(&stat)) {
            continue;
        }
        measured.add(&stat);
    }
    Ok(directories)
}

/// Opens a directory for listing; `None` where it is on another file system by now.
fn open(above: &OwnedFd, name: &CStr, device: u64) -> Result<Option<Opened>, Errno> {
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
fn closed(above: &OwnedFd, name: &CStr) -> Result<Opened, Errno> {
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
        Dir::measure(&[path.to_owned()])
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
    fn a_root_is_found_closed_by_a_link_and_not_at_all() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("root");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("file"), vec![1; 1 << 20]).unwrap();
        symlink(&root, outer.path().join("link")).unwrap();
        assert_eq!(measured(&outer.path().join("link")).files, 2);
        assert_eq!(measured(&outer.path().join("none")), Measured::default());
        assert_eq!(measured(&root.join("file")).unread, 1);
        for mode in [0o300, 0o400, 0o000] {
            fs::set_permissions(&root, fs::Permissions::from_mode(mode)).unwrap();
            let found = measured(&root);
            assert_eq!((found.files, found.unread), (2, 0), "{mode:o}");
            assert_eq!(fs::metadata(&root).unwrap().permissions().mode() & 0o777, mode);
        }
        fs::set_permissions(&root, fs::Permissions::from_mode(0o700)).unwrap();
    }

    #[test]
    fn depth_hides_nothing_and_closed_directories_stay_closed_on_the_way_back() {
        let root = tempfile::tempdir().unwrap();
        let mut path = root.path().to_owned();
        let mut all = Vec::new();
        for _ in 0..3 * super::HELD {
            path.push("d");
            fs::create_dir(&path).unwrap();
            fs::create_dir(path.join("beside")).unwrap();
            all.push(path.clone());
        }
        fs::write(path.join("file"), vec![1; 1 << 20]).unwrap();
        let closed = &all[10];
        fs::set_permissions(closed, fs::Permissions::from_mode(0o000)).unwrap();
        let found = measured(root.path());
        assert_eq!((found.files, found.unread), (6 * super::HELD as u64 + 2, 0));
        assert!(found.bytes >= 1 << 20);
        assert_eq!(fs::metadata(closed).unwrap().permissions().mode() & 0o777, 0);
        fs::set_permissions(closed, fs::Permissions::from_mode(0o700)).unwrap();
    }
}
