//! What no wall may grant, however it is named.
//!
//! A rule is compared with each closed path in three ways, since none alone is enough: by resolved name (the path need
//! not exist yet), by inode of the path and of the directories above it, and by location in the file system, which
//! sees through bind mounts. What is mounted below a granted directory is granted with it, so that is compared too.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
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
                Ok(fd) => never.location(fd_of(&fd), &real).map_err(trouble)?,
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

    /// Refuses a grant, given as the descriptor that the rule will be bound to.
    pub(super) fn check(&self, grant: &Grant, fd: BorrowedFd<'_>) -> Result<(), WallError> {
        let trouble = |source| WallError::Path { path: grant.path.clone(), source };
        let real =
            fs::read_link(format!("/proc/thread-self/fd/{}", fd.as_raw_fd())).map_err(trouble)?;
        if !mounts::is_reachable(&real) {
            return Err(trouble(io::Error::from(io::ErrorKind::NotFound)));
        }
        if let Some((index, real)) = self.meets(&real, fd).map_err(trouble)? {
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
    fn meets(&self, real: &Path, fd: BorrowedFd<'_>) -> io::Result<Option<(usize, PathBuf)>> {
        let by_name = self
            .closed
            .iter()
            .position(|closed| real.starts_with(&closed.real) || closed.real.starts_with(real));
        if let Some(index) = by_name {
            return Ok(Some((index, real.to_path_buf())));
        }
        if let Some(inode) = inode(real)?
            && let Some(index) = self.with_parents.get(&inode)
        {
            return Ok(Some((*index, real.to_path_buf())));
        }
        for above in real.ancestors() {
            if let Some(inode) = inode(above)?
                && let Some(index) = self.inodes.get(&inode)
            {
                return Ok(Some((*index, real.to_path_buf())));
            }
        }
        if let Some(location) = self.location(fd, real)?
            && let Some(index) = self.overlapping(&location)
        {
            return Ok(Some((index, real.to_path_buf())));
        }
        Ok(self.mounts.below(real).find_map(|(point, root)| {
            self.overlapping(root).map(|index| (index, point.to_path_buf()))
        }))
    }

    fn overlapping(&self, location: &Location) -> Option<usize> {
        self.closed.iter().position(|closed| {
            closed.location.as_ref().is_some_and(|there| there.overlaps(location))
        })
    }

    fn location(&self, fd: BorrowedFd<'_>, real: &Path) -> io::Result<Option<Location>> {
        let fdinfo = fs::read_to_string(format!("/proc/thread-self/fdinfo/{}", fd.as_raw_fd()))?;
        Ok(mounts::mount_id(&fdinfo).and_then(|id| self.mounts.location(id, real)))
    }
}

fn fd_of(fd: &std::os::fd::OwnedFd) -> BorrowedFd<'_> {
    use std::os::fd::AsFd;
    fd.as_fd()
}

fn inode(path: &Path) -> io::Result<Option<Inode>> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some((metadata.dev(), metadata.ino()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A closed path may be made later: its existing part is resolved, the rest kept.
fn resolve_as_far_as_exists(path: &Path) -> io::Result<PathBuf> {
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
