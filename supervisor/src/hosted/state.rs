//! The last step before the agent: the supervisor's state, the source and the template leave the session's view.
//!
//! Landlock closes their contents; but by path alone the same uid could still look at them, change their modes and times,
//! watch them and connect to sockets in them. In tier `namespace` their mounts are taken away, and the supervisor goes on
//! with a descriptor of its state, which it owns for life. Tier `domain` has nothing to take away.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use casemate_protocol::worker::StartError;
use casemate_sandbox::namespaces::Withdrawal;

use crate::layout::Layout;
use crate::words::chain;

/// The supervisor's state, as only the supervisor reaches it.
#[derive(Debug)]
pub struct State {
    path: PathBuf,
    /// What `path` goes through.
    _held: Option<File>,
}

// === impl State ===

impl State {
    /// Takes away what the agent has no business with, and looks whether it is gone.
    ///
    /// # Errors
    /// [`StartError::Shield`] where anything of it can still be found.
    pub fn keep(layout: &Layout, withdrawal: Option<Withdrawal>) -> Result<Self, StartError> {
        let Some(withdrawal) = withdrawal else {
            return Ok(Self { path: layout.inside.state.clone(), _held: None });
        };
        let held = File::open(&layout.inside.state).map_err(|error| StartError::Volume {
            message: format!("cannot open state/: {error}: check its owner and mode"),
        })?;
        withdrawal.withdraw().map_err(|error| StartError::Shield { message: chain(&error) })?;
        layout.passing().into_iter().try_for_each(gone)?;
        // A link of proc that leads on from the descriptor itself (proc_pid_fd(5)); in another process it is that one's.
        let path = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
        Ok(Self { path, _held: Some(held) })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The supervisor wears no wall, and has the agent's uid and no capability: what it cannot find, nobody inside can.
fn gone(path: &Path) -> Result<(), StartError> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => error.to_string(),
        Ok(_) => "there".to_owned(),
    };
    Err(StartError::Shield {
        message: format!(
            "{} should be gone before the agent starts and is not ({found}): report this",
            path.display()
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_found_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(gone(&dir.path().join("nothing")), Ok(()));
        assert!(matches!(gone(dir.path()), Err(StartError::Shield { .. })));
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(matches!(gone(&dir.path().join("file/below")), Err(StartError::Shield { .. })));
    }
}
