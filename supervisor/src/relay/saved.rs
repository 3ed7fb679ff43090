//! `state/saved.json`: what the ACP role keeps over generations.

use std::io;
use std::path::Path;

use casemate_protocol::acp::server::Saved;
use casemate_protocol::worker::StartError;

use crate::durable;

const NAME: &str = "saved.json";

/// Reads what an earlier generation saved.
///
/// # Errors
/// [`StartError::Volume`] where it is unreadable: starting without it would lose the conversation in silence.
pub fn read(state: &Path) -> Result<Saved, StartError> {
    let bytes = match std::fs::read(state.join(NAME)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Saved::default()),
        Err(error) => {
            return Err(StartError::Volume {
                message: format!("cannot read state/{NAME}: {error}: check the volume"),
            });
        }
    };
    serde_json::from_slice(&bytes).map_err(|error| StartError::Volume {
        message: format!(
            "state/{NAME} is damaged ({error}): remove it to begin a new conversation in the same worktree"
        ),
    })
}

/// Replaces it, durably.
///
/// # Errors
/// Writing and flushing.
pub fn write(state: &Path, saved: &Saved) -> io::Result<()> {
    durable::replace(&state.join(NAME), &serde_json::to_vec(saved)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_and_damage_is_not_taken_for_absence() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), Saved::default());
        let untold = [("x".to_owned(), "lost".to_owned())].into();
        let saved = Saved { acp_session: Some("x".into()), prompted: true, untold };
        write(dir.path(), &saved).unwrap();
        assert_eq!(read(dir.path()).unwrap(), saved);
        std::fs::write(dir.path().join(NAME), "{").unwrap();
        assert!(read(dir.path()).is_err());
    }
}
