//! What no wall may grant, however it is named.
//!
//! A rule is compared with each closed path in three ways, since none alone is enough: by resolved name (the path need
//! not exist yet), by inode of the path and of the directories above it, and by location in the file system, which
//! sees through bind mounts. What is mounted below a granted directory is granted with it, so that is compared too.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::WallError;
use super::grants::Grant;
use super::mounts::{self, Location, Mounts};
use super::open::open_path;

type Inode = (u64, u64);

/// The closed paths, resolved once.
pub(super) struct Never {
    mounts: Mounts,
    closed: Vec<Closed>,
    /// Inodes of closed paths.
    inodes: HashMap<Inode, usize>,
    /// Inodes of closed paths and of every directory above them.
    with_parents: HashMap<Inode, usize>,
}

struct Closed {
    named: PathBuf,
    real: PathBuf,
    /// `None` where the path does not exist yet.
    location: Option<Location>,
}

// === impl Never ===

impl Never {
    pub(super) fn resolve(paths: &[PathBuf]) -> Result<Self, WallError> {
        let mountinfo = fs::read("/proc/thread-self/mountinfo").map_err(WallError::Mounts)?;
        let mounts = Mounts::parse(&mountinfo);
        let mut never = Self {
            mounts,
            closed: Vec::new(),
            inodes: HashMap::new(),
            with_parents: HashMap::new(),
        };
        for (index, named) in paths.iter().enumerate() {
            let trouble = |source| WallError::Path { path: named.clone(), source };
            let real = resolve_as_far_as_exists(named).map_err(trouble)?;
            let location = match open_path(&real) {
                Ok(fd) => Some(
                    never
                        .location(fd.as_fd(), &real)
                        .map_err(trouble)?
                        .ok_or_else(|| WallError::Elsewhere { path: named.clone() })?,
                ),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(trouble(error)),
            };
            if let Some(inode) = inode(&real).map_err(trouble)? {
                never.inodes.insert(inode, index);
            }
            for above in real.ancestors() {
                if let Some(inode) = inode(above).map_err(trouble)? {
                    never.with_parents.entry(inode).or_insert(index);
                }
            }
            never.closed.push(Closed { named: named.clone(), real, location });
        }
        Ok(never)
    }

    /// Closes what is mounted somewhere, by its location alone: what lies there cannot be looked at.
    pub(super) fn close_mount(&mut self, point: PathBuf, root: Location) {
        self.closed.push(Closed { named: point.clone(), real: point, location: Some(root) });
    }

    /// Refuses a grant, given as the descriptor that the rule will be bound to.
    pub(super) fn check(&self, grant: &Grant, fd: BorrowedFd<'_>) -> Result<(), WallError> {
        let trouble = |source| WallError::Path { path: grant.path.clone(), source };
        let real =
            fs::read_link(format!("/proc/thread-self/fd/{}", fd.as_raw_fd())).map_err(trouble)?;
        if !mounts::is_reachable(&real) {
            return Err(trouble(io::Error::from(io::ErrorKind::NotFound)));
        }
        let location = self
            .location(fd, &real)
            .map_err(trouble)?
            .ok_or_else(|| WallError::Elsewhere { path: grant.path.clone() })?;
        if let Some((index, real)) = self.meets(&real, &location).map_err(trouble)? {
            return Err(WallError::Never {
                path: grant.path.clone(),
                real,
                never: self.closed[index].named.clone(),
                line: grant.line,
            });
        }
        Ok(())
    }

    /// The closed path that a grant meets, and where.
    fn meets(&self, real: &Path, location: &Location) -> io::Result<Option<(usize, PathBuf)>> {
        let here = match self.by_name(real) {
            None => self.by_inode(real)?.or_else(|| self.by_location(location)),
            found => found,
        };
        Ok(here.map(|index| (index, real.to_path_buf())).or_else(|| self.by_mount_below(real)))
    }

    /// What is closed, as it was named.
    pub(super) fn named(&self) -> impl Iterator<Item = &Path> {
        self.closed.iter().map(|closed| closed.named.as_path())
    }

    /// Whether something closed lies below a path, so that there may be more in it that is not.
    pub(super) fn is_above(&self, path: &Path) -> bool {
        let above = |closed: &Closed| closed.real != path && closed.real.starts_with(path);
        self.closed.iter().any(above) || self.by_mount_below(path).is_some()
    }

    fn by_name(&self, real: &Path) -> Option<usize> {
        self.closed
            .iter()
            .position(|closed| real.starts_with(&closed.real) || closed.real.starts_with(real))
    }

    fn by_inode(&self, real: &Path) -> io::Result<Option<usize>> {
        let above_closed = inode(real)?.and_then(|inode| self.with_parents.get(&inode));
        if above_closed.is_some() {
            return Ok(above_closed.copied());
        }
        for above in real.ancestors() {
            let below_closed = inode(above)?.and_then(|inode| self.inodes.get(&inode));
            if below_closed.is_some() {
                return Ok(below_closed.copied());
            }
        }
        Ok(None)
    }

    fn by_location(&self, location: &Location) -> Option<usize> {
        self.closed.iter().position(|closed| {
            closed.location.as_ref().is_some_and(|there| there.overlaps(location))
        })
    }

    /// What is mounted below is granted too: the kernel looks for rules up the tree, across mounts.
    fn by_mount_below(&self, real: &Path) -> Option<(usize, PathBuf)> {
        self.mounts
            .below(real)
            .find_map(|(point, root)| Some((self.by_location(root)?, point.to_path_buf())))
    }

    fn location(&self, fd: BorrowedFd<'_>, real: &Path) -> io::Result<Option<Location>> {
        let fdinfo = fs::read_to_string(format!("/proc/thread-self/fdinfo/{}", fd.as_raw_fd()))?;
        Ok(mounts::mount_id(&fdinfo).and_then(|id| self.mounts.location(id, real)))
    }
}

/// Whether a path can be granted, shown or copied without anything of what is closed; links, bind mounts and what is mounted below
/// considered. For what a caller names, whose refusal is then in the caller's words.
///
/// # Errors
/// [`WallError::Never`]; [`WallError::Path`], [`WallError::Mounts`] and [`WallError::Elsewhere`] where that cannot be told.
pub fn shows_nothing_of(path: &Path, closed: &[PathBuf]) -> Result<(), WallError> {
    let grant = Grant { path: path.to_owned(), access: Vec::new(), required: true, line: None };
    let fd = open_path(path).map_err(|source| WallError::Path { path: path.to_owned(), source })?;
    Never::resolve(closed)?.check(&grant, fd.as_fd())
}

fn inode(path: &Path) -> io::Result<Option<Inode>> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some((metadata.dev(), metadata.ino()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A closed path may be made later: its existing part is resolved, the rest kept.
pub(super) fn resolve_as_far_as_exists(path: &Path) -> io::Result<PathBuf> {
    let mut rest = Vec::new();
    for above in path.ancestors() {
        match fs::canonicalize(above) {
            Ok(real) => return Ok(rest.iter().rev().fold(real, |path, name| path.join(name))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let name = above.file_name().ok_or(error)?;
                rest.push(name.to_owned());
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::from(io::ErrorKind::NotFound))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wall::tests::{bind, in_a_mount_namespace};

    fn closed(paths: &[PathBuf]) -> Never {
        Never::resolve(paths).unwrap()
    }

    fn location(never: &Never, path: &Path) -> Location {
        never.location(open_path(path).unwrap().as_fd(), path).unwrap().unwrap()
    }

    /// Each of the three ways finds something on its own that is enough for a refusal.
    #[test]
    fn every_way_of_comparing_refuses() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        for name in ["keys/deep", "bound"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        let (keys, bound) = (root.join("keys"), root.join("bound"));
        let never = closed(&[keys.join("later")]);
        assert_eq!(never.by_name(&keys), Some(0));
        assert_eq!(never.by_name(&bound), None);

        let found = in_a_mount_namespace(|| {
            bind(&keys, &bound);
            let (above, below) =
                (closed(&[keys.join("deep")]), closed(std::slice::from_ref(&keys)));
            above.by_name(&bound).is_none()
                && above.by_inode(&bound).unwrap() == Some(0)
                && below.by_inode(&bound.join("deep")).unwrap() == Some(0)
        });
        assert_eq!(found, Some(true), "by inode");

        // Neither the names nor any inode above tell that the parent of what is closed is mounted elsewhere.
        let found = in_a_mount_namespace(|| {
            bind(&keys.join("deep"), &bound);
            let never = closed(std::slice::from_ref(&bound));
            never.by_name(&keys).is_none()
                && never.by_inode(&keys).unwrap().is_none()
                && never.by_location(&location(&never, &keys)) == Some(0)
        });
        assert_eq!(found, Some(true), "by location");

        let found = in_a_mount_namespace(|| {
            bind(&keys, &bound);
            let never = closed(&[keys.join("deep")]);
            let (index, point) = never.by_mount_below(&root).unwrap();
            index == 0 && point == bound
        });
        assert_eq!(found, Some(true), "by mount below");
    }
}
