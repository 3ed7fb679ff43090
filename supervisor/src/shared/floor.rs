//! The newest generation of each session that a slot has hosted, kept so that a worker that is started again lets in nobody of
//! an earlier one.
//!
//! `state/floors/<session>` holds `incarnation generation`, whatever kind of worker the slot has. The worker owns it; no agent may read
//! it. It is on the disk before the generation is served, and stays when the session's storage is deleted: it goes with the slot.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use casemate_protocol::ids::{Generation, Incarnation, SessionId};

use crate::durable;

/// Below the slot's `state`, which all of this is given.
pub const DIRECTORY: &str = "floors";

/// An incarnation and a generation of it.
pub type Floor = (Incarnation, Generation);

fn path(state: &Path, session: &SessionId) -> PathBuf {
    state.join(DIRECTORY).join(session.as_str())
}

/// The floor that a generation is not above, and may not be served for that.
#[must_use]
pub fn above(newest: Option<Floor>, asked: Floor) -> Option<Floor> {
    newest.filter(|newest| asked <= *newest)
}

/// All of them.
///
/// # Errors
/// Reading; one that is damaged is [`io::ErrorKind::InvalidData`]: taken for none it would let old tokens in.
pub fn read(state: &Path) -> io::Result<BTreeMap<SessionId, Floor>> {
    let mut floors = BTreeMap::new();
    for entry in fs::read_dir(state.join(DIRECTORY))? {
        let path = entry?.path();
        // Cut off before it took the old one's place.
        if path.extension().is_some_and(|extension| extension == "new") {
            continue;
        }
        let name = path.file_name().and_then(|name| name.to_str());
        let session = name.and_then(|name| name.parse().ok());
        let floor = parse(&fs::read_to_string(&path)?);
        let (session, floor) = session.zip(floor).ok_or_else(|| {
            let message = format!("{} is damaged", path.display());
            io::Error::new(io::ErrorKind::InvalidData, message)
        })?;
        floors.insert(session, floor);
    }
    Ok(floors)
}

fn parse(text: &str) -> Option<Floor> {
    let (incarnation, generation) = text.split_once(' ')?;
    Some((Incarnation(incarnation.parse().ok()?), Generation(generation.parse().ok()?)))
}

fn text((incarnation, generation): Floor) -> String {
    format!("{incarnation} {generation}")
}

/// Sets a session's; when this returns it is on the disk. Dropped, it leaves the old one or the new one.
///
/// # Errors
/// Writing and flushing.
pub async fn raise(state: &Path, session: &SessionId, to: Floor) -> io::Result<()> {
    durable::replace_aside(&path(state, session), text(to).as_bytes()).await
}

/// Puts back what was there before a generation that was never served, so that it may be asked for again. Where the power is
/// lost meanwhile it may not.
///
/// # Errors
/// Writing.
pub fn restore(state: &Path, session: &SessionId, to: Option<Floor>) -> io::Result<()> {
    let path = path(state, session);
    match to {
        // In one step: a full disk leaves the higher one, and never half of one.
        Some(floor) => {
            let beside = path.with_extension("new");
            fs::write(&beside, text(floor))?;
            fs::rename(&beside, &path)
        }
        None => match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_raised_is_read_again_and_damage_is_not_taken_for_absence() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path();
        fs::create_dir_all(state.join(DIRECTORY)).unwrap();
        assert_eq!(read(state).unwrap(), BTreeMap::new());
        let (one, two) = (SessionId::random(), SessionId::random());
        let floor = |incarnation, generation| (Incarnation(incarnation), Generation(generation));
        raise(state, &one, floor(1, 2)).await.unwrap();
        raise(state, &one, floor(2, 1)).await.unwrap();
        raise(state, &two, floor(1, 7)).await.unwrap();
        fs::write(path(state, &one).with_extension("new"), "cut").unwrap();
        assert_eq!(
            read(state).unwrap(),
            [(one.clone(), floor(2, 1)), (two.clone(), floor(1, 7))].into()
        );
        restore(state, &one, Some(floor(1, 2))).unwrap();
        restore(state, &two, None).unwrap();
        restore(state, &two, None).unwrap();
        assert_eq!(read(state).unwrap(), [(one.clone(), floor(1, 2))].into());
        for damaged in ["", "1", "1 x", "1 2 3"] {
            fs::write(path(state, &one), damaged).unwrap();
            assert_eq!(read(state).unwrap_err().kind(), io::ErrorKind::InvalidData, "{damaged}");
        }
    }
}
