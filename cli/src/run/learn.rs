//! `casemate run --learn`: one throw-away session without walls, and the policy that would have let it do what it did.
//!
//! The allocator is this process's own, in a home of its own, so that nobody else's session can come to run without walls.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use casemate_protocol::codes::exit;
use casemate_protocol::ids::SessionId;
use casemate_protocol::policy::Policy;
use casemate_protocol::policy::learn::kept;
use hyper::{Method, StatusCode};

use crate::attach::{Allocator, AttachError};
use crate::failure::Failure;
use crate::place::Place;
use crate::printable;

/// Where it goes, and what stays closed meanwhile.
#[derive(Debug)]
pub(super) struct Learn {
    file: PathBuf,
    kept: Vec<PathBuf>,
}

// === impl Learn ===

impl Learn {
    /// Warns, and looks whether the file can be new.
    pub(super) fn check(file: PathBuf, own: &Place) -> Result<Self, Failure> {
        let file = std::path::absolute(&file).map_err(|error| {
            Failure::because(exit::USAGE, format!("--learn {}", file.display()), &error)
        })?;
        let wrong = if file.symlink_metadata().is_ok() {
            Some("a file is there already and is not written over: remove it, or name another")
        } else if !file.parent().is_some_and(Path::is_dir) {
            Some("its directory is not there: make it, or name a file in another")
        } else {
            None
        };
        if let Some(why) = wrong {
            let text = format!("--learn {}: {why}", file.display());
            return Err(Failure::new(exit::CANNOT_CREATE, text));
        }
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let Some(home) = home.filter(|home| home.is_absolute()) else {
            return Err(Failure::new(
                exit::USAGE,
                "--learn: set HOME: what lies there of credentials stays closed",
            ));
        };
        eprintln!(
            "casemate: LEARNING, NO WALL: the agent may do whatever its user may, and what the policy would refuse is noted. \
             Run nothing that you would not run without casemate"
        );
        let kept = kept(Some(&home)).chain([own.home().to_owned()]).collect();
        Ok(Self { file, kept })
    }

    /// What no run may touch.
    pub(super) fn kept(&self) -> Vec<PathBuf> {
        self.kept.clone()
    }

    /// Asks the worker and writes the file.
    pub(super) async fn save(
        &self,
        allocator: &Allocator,
        session: &SessionId,
    ) -> Result<(), Failure> {
        let worker = allocator.worker_of(session).await.map_err(AttachError::into_failure)?;
        let (status, body) = worker.call(Method::GET, "/v1/learned", None).await?;
        let text = String::from_utf8_lossy(&body).into_owned();
        if status != StatusCode::OK {
            let why = printable::line(text.trim());
            return Err(Failure::new(exit::FAILED, format!("nothing is learned: {why}")));
        }
        Policy::parse(&text)
            .map_err(|error| Failure::because(exit::DATA, "what was learned", &error))?;
        let wrong = |error: std::io::Error| {
            Failure::because(
                exit::CANNOT_CREATE,
                format!("--learn {}", self.file.display()),
                &error,
            )
        };
        let mut file = std::fs::File::options()
            .write(true)
            .create_new(true)
            .open(&self.file)
            .map_err(wrong)?;
        file.write_all(text.as_bytes()).map_err(wrong)?;
        eprintln!(
            "casemate: learned: {}. Nothing is applied: read it, compare it with `casemate policy diff`, name it in a profile",
            self.file.display()
        );
        Ok(())
    }
}
