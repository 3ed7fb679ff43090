//! What the last allocator of a home wrote down, for whoever looks while none serves. Starts nothing and changes nothing.

use std::io;
use std::path::Path;

use casemate_protocol::api::SessionList;

use crate::StartError;
use crate::driver::{now, view};
use crate::home::{Home, HomeError};
use crate::store::{self, Stored};
use crate::worker::process;

/// The sessions of a home, newest first, as an allocator that was started now would find them; what only a worker can tell
/// is not in it. `None`: an allocator has the home and is to be asked.
///
/// # Errors
/// [`StartError::Home`] and [`StartError::Store`].
pub fn recorded(home: &Path) -> Result<Option<SessionList>, StartError> {
    let home = Home::seen(home);
    let path = home.store();
    let read = || match std::fs::read(&path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(HomeError::Io { path: path.clone(), source }),
    };
    let Some(content) = home.while_free(read)? else { return Ok(None) };
    let mut all = content.map_or(Ok(Vec::new()), |content| store::sessions_in(&content))?;
    all.iter_mut().for_each(look);
    let sessions = all.iter().map(|stored| view::unwatched(&home, stored)).collect();
    Ok(Some(SessionList { sessions }))
}

/// A worker may have ended since it was written down.
fn look(stored: &mut Stored) {
    let record = &mut stored.record;
    let lives = record.worker.as_ref().is_some_and(|worker| process::is_alive(&worker.process));
    if !lives {
        // Whatever phase it is in has a rule; one that had none would stay as it is.
        let _ = record.gone_unseen(record.generation, now());
    }
}
