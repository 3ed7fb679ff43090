//! Where a session's trees are in a slot that it shares, and how its storage goes.
//!
//! Landlock lets a process change the mode of a path that it knows, and look at it. A session's id is known to others (its branch
//! names it), so the path of its trees is not made of it: the place is random and kept in `state/<session>/place`, which no
//! agent may read.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use casemate_protocol::ids::{PlaceId, SessionId};
use casemate_protocol::worker::StartError;
use casemate_sandbox::beneath::{BeneathError, Dir};

use crate::directories;
use crate::durable::{self, Flush};

const NAME: &str = "place";

/// A session's own state in a slot.
#[must_use]
pub fn state(volume: &Path, session: &SessionId) -> PathBuf {
    volume.join("state").join(session.as_str())
}

/// The place of a session, chosen now where it has none; the flush has to be done before anything depends on it.
///
/// # Errors
/// [`StartError::Volume`].
pub fn of(volume: &Path, session: &SessionId) -> Result<(PlaceId, Option<Flush>), StartError> {
    let state = state(volume, session);
    let trouble = |error: io::Error| StartError::Volume {
        message: format!(
            "cannot keep the session's place: {error}: check the volume's space and owner"
        ),
    };
    directories::own(&state).map_err(trouble)?;
    if let Some(place) = find(volume, session).map_err(trouble)? {
        return Ok((place, None));
    }
    let place = PlaceId::random();
    let flush = durable::replace_now(&state.join(NAME), place.as_str().as_bytes());
    Ok((place, Some(flush.map_err(trouble)?)))
}

/// The place of a session that has one.
///
/// # Errors
/// Reading it; one that is no place is [`io::ErrorKind::InvalidData`].
pub fn find(volume: &Path, session: &SessionId) -> io::Result<Option<PlaceId>> {
    match fs::read_to_string(state(volume, session).join(NAME)) {
        // The power was lost before it was on the disk, and so before anything depended on it.
        Ok(text) if text.bytes().all(|byte| byte == 0) => Ok(None),
        Ok(text) => text
            .parse()
            .map(Some)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Deletes a session's trees, then its state. Blocks as long as that takes. Links are removed, never followed.
///
/// # Errors
/// Removing; what is left is found by the next try.
pub fn delete(volume: &Path, session: &SessionId, place: &PlaceId) -> Result<(), BeneathError> {
    Dir::open(&volume.join("sessions"))?.remove_tree(place.as_str())?;
    Dir::open(&volume.join("state"))?.remove_tree(session.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_place_is_kept_and_goes_with_the_storage_and_another_sessions_stays() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path();
        for name in ["state", "sessions"] {
            fs::create_dir(volume.join(name)).unwrap();
        }
        let (one, two) = (SessionId::random(), SessionId::random());
        let (place, flush) = of(volume, &one).unwrap();
        flush.unwrap().done().await.unwrap();
        let (again, nothing) = of(volume, &one).unwrap();
        assert!(again == place && nothing.is_none());
        let (other, _) = of(volume, &two).unwrap();
        for place in [&place, &other] {
            fs::create_dir_all(volume.join("sessions").join(place.as_str()).join("work")).unwrap();
        }
        std::os::unix::fs::symlink(
            volume.join("sessions").join(other.as_str()),
            volume.join("sessions").join(place.as_str()).join("work/link"),
        )
        .unwrap();
        delete(volume, &one, &place).unwrap();
        assert_eq!(find(volume, &one).unwrap(), None);
        assert!(!volume.join("sessions").join(place.as_str()).exists());
        assert!(volume.join("sessions").join(other.as_str()).join("work").exists());
        fs::write(state(volume, &two).join(NAME), "../../elsewhere").unwrap();
        assert!(find(volume, &two).is_err());
        fs::write(state(volume, &two).join(NAME), "").unwrap();
        assert_eq!(find(volume, &two).unwrap(), None);
    }
}
