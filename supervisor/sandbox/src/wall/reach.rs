//! What a session may write, for whoever keeps a file beside it: a report, the policy of the next session.
//!
//! A file is beyond it where neither the file nor any directory in which a part of its path is looked up may be written, by whatever
//! name, link or bind mount: so nothing on the way to it is turned to something else, now or later. It tells of the policy's grants
//! alone: a session without Landlock writes what its user may.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use casemate_protocol::policy::Policy;
use rustix::fs::{FileType, Mode, OFlags};

use super::open::{NotOpened, Writable, is_of_processes, kind};
use super::{Places, WallError, grants};

/// What a session of some policy, in some places, may write. Resolved once.
#[derive(Debug)]
pub struct Reach(Writable);

/// Why a file is not beyond a session's reach.
#[derive(Debug, thiserror::Error)]
pub enum Reached {
    /// The file, or what on the way to it is in a directory that a session may write.
    #[error("a session may write {}", .0.display())]
    Written(PathBuf),
    /// The way to it could not be looked at.
    #[error(transparent)]
    Io(#[from] io::Error),
}

// === impl Reach ===

impl Reach {
    /// By the policy's `write` rules and the three places. What a rule names and is not there is nobody's to write.
    ///
    /// # Errors
    /// [`WallError::Mounts`], [`WallError::Path`].
    pub fn of(policy: &Policy, places: &Places) -> Result<Self, WallError> {
        let mut policy = policy.clone();
        policy.paths.iter_mut().for_each(|rule| rule.required = false);
        let (grants, _) = grants::expand(&policy, places)?;
        Ok(Self(Writable::resolve(&grants, places)?))
    }

    /// The link on a path's way that a session could have made. `None` as well where the path cannot be looked at, since then
    /// nothing comes of it.
    #[must_use]
    pub fn link(&self, path: &Path) -> Option<PathBuf> {
        match self.0.open(path) {
            Err(NotOpened::Moved(link)) => Some(link),
            _ => None,
        }
    }

    /// The directory of a file that is to be made or written, and its name there, both beyond a session's reach; so is what a link of that
    /// name leads to, a descriptor of this process (/dev/stdout) as well.
    ///
    /// # Errors
    /// [`Reached`].
    pub fn place_for(&self, file: &Path) -> Result<(OwnedFd, OsString), Reached> {
        let file = std::path::absolute(file)?;
        let (Some(parent), Some(name)) = (file.parent(), file.file_name()) else {
            return Err(Reached::Io(io::ErrorKind::IsADirectory.into()));
        };
        let directory = self.0.open_outside(parent)?;
        let look = |more| {
            let flags = OFlags::PATH | OFlags::CLOEXEC | more;
            rustix::fs::openat(&directory, name, flags, Mode::empty())
        };
        // A link that leads nowhere, or where this process may not look, is somebody's: whoever opens the file does not follow it.
        let there = look(OFlags::empty());
        let there = match is_of_processes(directory.as_fd())? {
            true => there,
            false => there.or_else(|_| look(OFlags::NOFOLLOW)),
        };
        match there {
            Ok(there) => {
                let is_file = kind(there.as_fd())? == FileType::RegularFile;
                if is_file && self.0.has(there.as_fd())? {
                    return Err(Reached::Written(file));
                }
            }
            Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(Reached::Io(error.into())),
        }
        Ok((directory, name.to_owned()))
    }

    /// Whether a file that is read lies beyond a session's reach.
    ///
    /// # Errors
    /// [`Reached`].
    pub fn lies_beyond(&self, file: &Path) -> Result<(), Reached> {
        Ok(self.0.open_outside(&std::path::absolute(file)?).map(drop)?)
    }
}

impl From<NotOpened> for Reached {
    fn from(error: NotOpened) -> Self {
        match error {
            NotOpened::Io(error) => Self::Io(error),
            NotOpened::Moved(path) => Self::Written(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    use casemate_protocol::policy::DEVELOPER;
    use nix::unistd::geteuid;

    use crate::wall::tests::places;

    /// Prints a line when the mount is there, and waits for its stdin to end.
    const ELSEWHERE: &str = r#"mount --bind "$1" "$2" && echo && cat"#;

    /// By /proc/PID/root a mount of another namespace is reached, of which no table of ours tells what it shows.
    #[test]
    fn what_another_mount_namespace_shows_is_not_taken_for_beyond_reach() {
        let dir = tempfile::tempdir().unwrap();
        let places = places(dir.path());
        let (work, other) = (&places.work, dir.path().join("other"));
        fs::create_dir(&other).unwrap();
        fs::write(work.join("file"), "").unwrap();
        let reach = Reach::of(&Policy::parse(DEVELOPER).unwrap(), &places).unwrap();
        let own: &[&str] = if geteuid().is_root() { &[] } else { &["--user", "--map-root-user"] };
        let mut elsewhere = Command::new("unshare")
            .args(own)
            .args(["--mount", "sh", "-c", ELSEWHERE, "sh"])
            .args([work, &other])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(elsewhere.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line.is_empty() {
            println!("SKIP: nobody may mount here");
            elsewhere.wait().unwrap();
            return;
        }
        let root = PathBuf::from(format!("/proc/{}/root", elsewhere.id()));
        let shown = root.join(other.strip_prefix("/").unwrap()).join("file");
        assert!(shown.exists(), "the session's own file, by another name");
        let said = reach.lies_beyond(&shown);
        let report = reach.place_for(&shown);
        drop(elsewhere.stdin.take());
        elsewhere.wait().unwrap();
        for refused in [said.unwrap_err(), report.map(drop).unwrap_err()] {
            let Reached::Io(error) = &refused else { panic!("{refused}") };
            assert!(error.to_string().contains("cannot tell which file system"), "{error}");
        }
    }
}
