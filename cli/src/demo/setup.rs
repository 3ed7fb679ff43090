//! The throw-away house: a directory with a home for the allocator, a sample repository, skills, and a copy of this
//! program where a session may run it.
//!
//! Everything lies below one directory that is removed when [`House`] is dropped.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::throw_away::ThrowAway;

/// Why it could not be built.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SetupError {
    #[error("{}", .0.display())]
    Io(PathBuf, #[source] io::Error),
    #[error("git is needed for the demo; install it")]
    Git(#[source] io::Error),
    #[error("git {0}: {1}")]
    GitFailed(String, String),
}

/// Where everything of one demo lies.
#[derive(Debug)]
pub(crate) struct House {
    base: ThrowAway,
    path: PathBuf,
    /// This program, as a host starts it.
    pub(crate) casemate: PathBuf,
    /// Its copy, as a session sees it.
    pub(crate) program: PathBuf,
}

// === impl House ===

impl House {
    /// Builds it. Not below /tmp: inside a session that is the session's own.
    pub(crate) fn build() -> Result<Self, SetupError> {
        let parent = [Path::new("/var/tmp")]
            .into_iter()
            .find(|path| writable(path))
            .map_or_else(std::env::temp_dir, Path::to_path_buf);
        let base = ThrowAway::make(&parent, "casemate-demo-");
        let base = base.map_err(|error| SetupError::Io(parent, error))?;
        let path = base.path().to_path_buf();
        let casemate = std::env::current_exe()
            .map_err(|error| SetupError::Io(PathBuf::from("/proc/self/exe"), error))?;
        let program = path.join("bin/casemate");
        let house = Self { base, path, casemate, program };
        for folder in ["home", "bin", "repository", "skills/greeting", "outside"] {
            make_folder(&house.path.join(folder))?;
        }
        // The sessions' own user may be another one: it has to get to its program. The home is for nobody else.
        set_mode(house.base(), 0o755)?;
        set_mode(&house.home(), 0o700)?;
        fs::copy(&house.casemate, &house.program)
            .map_err(|error| SetupError::Io(house.program.clone(), error))?;
        write(&house.skills().join("greeting/SKILL.md"), "# Greeting\n\nSay hello first.\n")?;
        house.sample_repository()?;
        Ok(house)
    }

    /// All of it.
    pub(crate) fn base(&self) -> &Path {
        &self.path
    }

    /// A second of the epoch before which nothing of this demo was there. By the file system's own clock, as far as it is another
    /// one than the machine's.
    pub(crate) fn since(&self) -> i64 {
        let made = fs::metadata(&self.program).map(|copy| copy.mtime().min(copy.ctime()));
        made.unwrap_or(0).saturating_sub(60)
    }

    /// `CASEMATE_HOME`.
    pub(crate) fn home(&self) -> PathBuf {
        self.path.join("home")
    }

    /// The sample repository.
    pub(crate) fn repository(&self) -> PathBuf {
        self.path.join("repository")
    }

    /// The skills.
    pub(crate) fn skills(&self) -> PathBuf {
        self.path.join("skills")
    }

    /// A directory of the machine's owner, in which no session has any business.
    pub(crate) fn outside(&self) -> PathBuf {
        self.path.join("outside")
    }

    /// Leaves it where it is.
    pub(crate) fn keep(self) -> PathBuf {
        self.base.keep()
    }

    fn sample_repository(&self) -> Result<(), SetupError> {
        let repository = self.repository();
        write(&repository.join("README.md"), "# Sample\n\nA repository for the demo.\n")?;
        write(&repository.join("greet.sh"), "#!/bin/sh\necho \"hello, ${1:-world}\"\n")?;
        set_mode(&repository.join("greet.sh"), 0o755)?;
        self.git(&["init", "--quiet", "--initial-branch=main"])?;
        self.git(&["add", "--all"])?;
        self.git(&["commit", "--quiet", "--message=First"])
    }

    /// git without this machine's configuration: a signing key or a template would make another repository.
    fn git(&self, args: &[&str]) -> Result<(), SetupError> {
        let output = Command::new("git")
            .args(["-c", "user.name=demo", "-c", "user.email=demo@localhost"])
            .args(args)
            .current_dir(self.repository())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .output()
            .map_err(SetupError::Git)?;
        if output.status.success() {
            return Ok(());
        }
        let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(SetupError::GitFailed(args.join(" "), words))
    }
}

fn writable(folder: &Path) -> bool {
    nix::unistd::access(folder, nix::unistd::AccessFlags::W_OK | nix::unistd::AccessFlags::X_OK)
        .is_ok()
}

fn make_folder(path: &Path) -> Result<(), SetupError> {
    fs::create_dir_all(path).map_err(|error| SetupError::Io(path.to_owned(), error))?;
    set_mode(path, 0o755)
}

fn set_mode(path: &Path, mode: u32) -> Result<(), SetupError> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(|error| SetupError::Io(path.to_owned(), error))
}

fn write(path: &Path, text: &str) -> Result<(), SetupError> {
    fs::write(path, text).map_err(|error| SetupError::Io(path.to_owned(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_built_and_leaves_nothing() {
        let house = House::build().unwrap();
        let base = house.base().to_owned();
        let refs = fs::read_dir(house.repository().join(".git/refs/heads")).unwrap().count();
        assert_eq!(refs, 1);
        drop(house);
        assert!(!base.exists());
    }
}
