//! `state/provisioned.json`: written last, so that what is half made is known.
//!
//! Without it nothing below `sessions/` was ever touched by an agent, and all of it is made anew. With it, nothing is
//! touched again.

use std::path::Path;

use casemate_protocol::ids::{Incarnation, SessionId};
use casemate_protocol::tier::Tier;
use casemate_protocol::worker::{StartError, WorkerConfig};
use serde::{Deserialize, Serialize};

use crate::durable;

const NAME: &str = "provisioned.json";

/// What was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    /// For whom.
    pub session: SessionId,
    /// In which life.
    pub incarnation: Incarnation,
    /// In which tier: it decides the paths that agents key their conversations by.
    pub tier: Tier,
    /// The commit that the session's branch began at: what is not reachable from it is new.
    pub base: Option<String>,
}

// === impl Marker ===

impl Marker {
    /// Reads the marker; `None` where provisioning has never come to its end.
    ///
    /// # Errors
    /// [`StartError::Volume`] where it cannot be read, or belongs to somebody else.
    pub fn read(state: &Path, config: &WorkerConfig) -> Result<Option<Self>, StartError> {
        let path = state.join(NAME);
        let volume = |message| StartError::Volume { message };
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(volume(format!("cannot read state/{NAME}: {error}"))),
        };
        let marker: Self = serde_json::from_slice(&bytes).map_err(|error| {
            volume(format!("state/{NAME} is damaged ({error}): restore it, or use a new slot"))
        })?;
        marker.check(config)?;
        Ok(Some(marker))
    }

    fn check(&self, config: &WorkerConfig) -> Result<(), StartError> {
        if (&self.session, self.incarnation) != (&config.session, config.incarnation) {
            return Err(StartError::Volume {
                message: format!(
                    "the slot holds session {} incarnation {}: use a new slot for this one",
                    self.session, self.incarnation
                ),
            });
        }
        if self.tier != config.tier {
            return Err(StartError::Tier {
                wanted: config.tier,
                message: format!(
                    "the session was made in tier {}, and its paths with it: ask for that tier",
                    self.tier
                ),
            });
        }
        Ok(())
    }

    /// Writes the marker so that it survives a crash.
    ///
    /// # Errors
    /// [`StartError::Volume`].
    pub async fn write(&self, state: &Path) -> Result<(), StartError> {
        let trouble = |error: std::io::Error| StartError::Volume {
            message: format!("cannot write state/{NAME}: {error}"),
        };
        let bytes = serde_json::to_vec(self).map_err(|error| trouble(error.into()))?;
        durable::replace_aside(&state.join(NAME), &bytes).await.map_err(trouble)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::config;

    #[tokio::test]
    async fn a_marker_of_another_session_incarnation_or_tier_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(dir.path());
        assert_eq!(Marker::read(dir.path(), &config).unwrap(), None);
        let marker = Marker {
            session: config.session.clone(),
            incarnation: config.incarnation,
            tier: config.tier,
            base: Some("abc".into()),
        };
        marker.write(dir.path()).await.unwrap();
        assert_eq!(Marker::read(dir.path(), &config).unwrap(), Some(marker));
        config.tier = Tier::Namespace;
        assert!(matches!(Marker::read(dir.path(), &config), Err(StartError::Tier { .. })));
        config.tier = Tier::Domain;
        config.session = SessionId::random();
        assert!(matches!(Marker::read(dir.path(), &config), Err(StartError::Volume { .. })));
    }

    #[test]
    fn a_damaged_marker_is_not_taken_for_a_missing_one() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(NAME), "{").unwrap();
        let read = Marker::read(dir.path(), &config(dir.path()));
        assert!(matches!(read, Err(StartError::Volume { .. })));
    }
}
