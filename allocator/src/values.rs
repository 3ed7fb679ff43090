//! What callers hand to their agents by `--env`: values that may be secret, each session's in a file of its own.
//!
//! Never in the store: a database keeps the bytes of what was deleted in pages that it has freed. Here the end of a
//! session's storage is the end of a file. It is unlinked, not overwritten: the file system's free blocks keep the bytes
//! until they are used again, as those of every deleted file.
//!
//! Invariant: a row of the store whose intent names variables has its file, because the file is durable before the row is
//! and removed after the storage. One without a row is left of a crash and goes at the next start.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

use casemate_protocol::ids::SessionId;

use crate::home::{Home, HomeError, mend, write_private};

type Values = BTreeMap<String, String>;

/// Takes the values out of `env` and keeps them for the session. Nothing is written where there are none.
///
/// # Errors
/// [`HomeError::Io`]: the disk.
pub(crate) fn keep(home: &Home, session: &SessionId, env: &mut Values) -> Result<(), HomeError> {
    if env.is_empty() {
        return Ok(());
    }
    let text = serde_json::to_vec(env).expect("strings are plain data");
    write_private(&file(home, session), &text)?;
    env.values_mut().for_each(String::clear);
    Ok(())
}

/// The values of the variables that `names` has.
///
/// # Errors
/// [`HomeError::Io`]: the file is gone or damaged.
pub(crate) fn recall(
    home: &Home,
    session: &SessionId,
    names: &Values,
) -> Result<Values, HomeError> {
    if names.is_empty() {
        return Ok(Values::new());
    }
    let path = file(home, session);
    mend(&path, 0o600)?;
    let read = || serde_json::from_slice(&std::fs::read(&path)?).map_err(io::Error::from);
    read().map_err(|source| HomeError::Io { path: path.clone(), source })
}

/// Removes a session's values; none are removed already.
///
/// # Errors
/// [`HomeError::Io`].
pub(crate) fn forget(home: &Home, session: &SessionId) -> Result<(), HomeError> {
    remove(file(home, session))
}

/// Removes the values of all but these sessions.
///
/// # Errors
/// [`HomeError::Io`].
pub(crate) fn sweep(home: &Home, known: &BTreeSet<SessionId>) -> Result<(), HomeError> {
    let directory = home.values();
    let io_error = |source| HomeError::Io { path: directory.clone(), source };
    for entry in std::fs::read_dir(&directory).map_err(io_error)? {
        let entry = entry.map_err(io_error)?;
        let name = entry.file_name();
        let session = name.to_str().and_then(|name| name.parse().ok());
        if session.is_none_or(|session: SessionId| !known.contains(&session)) {
            remove(entry.path())?;
        }
    }
    Ok(())
}

fn remove(path: PathBuf) -> Result<(), HomeError> {
    match std::fs::remove_file(&path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(HomeError::Io { path, source })
        }
        _ => Ok(()),
    }
}

fn file(home: &Home, session: &SessionId) -> PathBuf {
    home.values().join(session.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_live_as_long_as_their_session_and_no_longer() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(&dir.path().join("home")).unwrap();
        let (kept, orphan) = (SessionId::random(), SessionId::random());
        let env = Values::from([("A".to_owned(), "secret".to_owned())]);
        let mut names = env.clone();
        keep(&home, &kept, &mut names).unwrap();
        keep(&home, &orphan, &mut env.clone()).unwrap();
        assert_eq!(names["A"], "");
        assert_eq!(recall(&home, &kept, &names).unwrap(), env);
        sweep(&home, &BTreeSet::from([kept.clone()])).unwrap();
        assert!(recall(&home, &orphan, &names).is_err());
        assert_eq!(recall(&home, &kept, &names).unwrap(), env);
        forget(&home, &kept).unwrap();
        forget(&home, &kept).unwrap();
        assert_eq!(std::fs::read_dir(home.values()).unwrap().count(), 0);
        assert!(recall(&home, &kept, &Values::new()).unwrap().is_empty());
    }
}
