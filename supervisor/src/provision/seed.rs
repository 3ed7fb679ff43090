//! The empty repository that a worker of many sessions keeps, so that git makes it once and not for every session.
//!
//! Owns `state/seed/`: the objects and the configuration of the first empty repository that was made, taken before any agent
//! ran in it. What is planted from it differs from what git makes in its reflog alone, which begins later.

use std::cell::RefCell;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use casemate_sandbox::beneath::{BeneathError, Dir};

/// A repository's configuration is not longer, in bytes.
const LONGEST: u64 = 64 * 1024;

/// The seed of one worker.
#[derive(Debug)]
pub struct Seed {
    directory: PathBuf,
    /// The commit in it, once there is one.
    base: RefCell<Option<String>>,
}

// === impl Seed ===

impl Seed {
    /// None yet: what an earlier worker kept is not looked at.
    #[must_use]
    pub fn new(state: &Path) -> Self {
        Self { directory: state.join("seed"), base: RefCell::default() }
    }

    /// Keeps what git has just made in `work`, with `base` as its one commit.
    ///
    /// # Errors
    /// Reading and writing; there is no seed then.
    pub(super) fn keep(&self, work: &Path, base: &str) -> Result<(), BeneathError> {
        if self.base.borrow().is_some() {
            return Ok(());
        }
        let what = |what| {
            let path = self.directory.clone();
            move |source| BeneathError { what, path, source }
        };
        match fs::remove_dir_all(&self.directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(what("remove")(error));
            }
            _ => {}
        }
        fs::create_dir(&self.directory).map_err(what("make"))?;
        let seed = Dir::open(&self.directory)?;
        let config = Dir::open(work)?.read_file(".git/config", LONGEST)?;
        seed.write_file("config", &config, 0o644)?;
        seed.copy_tree_into(&work.join(".git/objects"), "objects")?;
        self.base.replace(Some(base.to_owned()));
        Ok(())
    }

    /// Makes the repository in the empty directory `work`, on `branch`; its commit, or `None` where there is no seed yet.
    ///
    /// # Errors
    /// Reading and writing.
    pub(super) fn plant(&self, work: &Path, branch: &str) -> Result<Option<String>, BeneathError> {
        let Some(base) = self.base.borrow().clone() else { return Ok(None) };
        let work = Dir::open(work)?;
        work.copy_tree_into(&self.directory, ".git")?;
        let git = work.dir(".git")?;
        git.create_dir_all("refs/tags", 0o755)?;
        let name = Path::new("refs/heads").join(branch);
        if let Some(above) = name.parent() {
            git.create_dir_all(above, 0o755)?;
        }
        put(&git, &name, &format!("{base}\n"))?;
        put(&git, Path::new("HEAD"), &format!("ref: {}\n", name.display()))?;
        Ok(Some(base))
    }
}

/// Writes a new file. As git does, without a flush: the session's marker is written later, and is missing where this was cut off.
fn put(git: &Dir, path: &Path, text: &str) -> Result<(), BeneathError> {
    let written = git.open_append(path, 0o644)?.write_all(text.as_bytes());
    written.map_err(|source| BeneathError { what: "write", path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn git(work: &Path, args: &[&str]) -> String {
        let done = Command::new("git")
            .args(["-c", "user.name=n", "-c", "user.email=e"])
            .args(args)
            .current_dir(work)
            .output()
            .unwrap();
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn what_is_planted_is_what_git_made_but_for_its_branch() {
        let dir = tempfile::tempdir().unwrap();
        let [state, first, second] = ["state", "first", "second"].map(|name| dir.path().join(name));
        for path in [&state, &first, &second] {
            fs::create_dir(path).unwrap();
        }
        git(&first, &["init", "-q", "--template=", "--initial-branch", "casemate/one"]);
        git(&first, &["commit", "-q", "--allow-empty", "-m", "Start"]);
        let base = git(&first, &["rev-parse", "HEAD"]);
        let seed = Seed::new(&state);
        assert_eq!(seed.plant(&second, "casemate/two").unwrap(), None);
        seed.keep(&first, &base).unwrap();
        assert_eq!(seed.plant(&second, "casemate/two").unwrap(), Some(base.clone()));
        assert_eq!(git(&second, &["rev-parse", "HEAD"]), base);
        assert_eq!(git(&second, &["symbolic-ref", "HEAD"]), "refs/heads/casemate/two");
        assert_eq!(git(&second, &["status", "--porcelain"]), "");
        assert_eq!(git(&second, &["fsck", "--strict", "--no-dangling"]), "");
        assert_eq!(
            git(&second, &["for-each-ref", "--format=%(refname)"]),
            "refs/heads/casemate/two"
        );
        fs::write(second.join("file"), "x").unwrap();
        git(&second, &["add", "file"]);
        git(&second, &["commit", "-q", "-m", "one"]);
        git(&second, &["gc", "-q"]);
        assert_eq!(git(&second, &["rev-list", "--count", "HEAD"]), "2");
    }
}
