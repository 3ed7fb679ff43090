//! Tries the attacks.

use std::fs::{self, DirBuilder};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use casemate_raw::{Ended, child};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use super::shot::Shot;
use super::{Attack, Decoys, attacks};
use crate::attempt::SUCCEEDED;

/// [`Answer::outcome`] where this machine has nothing to try it on.
pub const UNTRIED: &str = "untried";

/// How often, and how soon, a fork that finds no room (`EAGAIN`) is tried again.
const FORKS: u32 = 20;
const BETWEEN_FORKS: Duration = Duration::from_millis(50);

/// How often an attack is tried again that met a shortage, and what tells of one.
const ROUNDS: u32 = 3;
const SHORTAGES: [&str; 6] = ["EAGAIN", "ENOMEM", "EMFILE", "ENFILE", "ENOBUFS", "EINTR"];

/// No errno: the exit codes of a child that succeeded, found nothing to try, panicked.
const CODE_SUCCEEDED: u8 = 0;
const CODE_UNTRIED: u8 = 254;

/// What came of one attack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// [`Attack::id`].
    pub id: String,
    /// [`SUCCEEDED`], an errno's name, a signal's, or [`UNTRIED`].
    pub outcome: String,
}

/// Why nothing was tried.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// There is no place to write.
    #[error("no folder of its own below {}: set TMPDIR to one that can be written", .0.display())]
    Own(PathBuf, #[source] io::Error),
    /// fork(2), or this process has threads.
    #[error("cannot fork for {0}")]
    Fork(&'static str, #[source] io::Error),
}

/// Tries every attack that `wanted` chooses, one after another, in the catalogue's order. This process must have one thread.
///
/// An attack that takes longer than `limit` hangs and is ended: SIGALRM is its outcome. Real time, whole seconds: where
/// nobody waits for the answers it is long, since a loaded machine may take seconds for what it does in milliseconds.
///
/// # Errors
/// [`RunError`].
pub fn run(
    decoys: &Decoys,
    limit: Duration,
    wanted: impl Fn(&Attack) -> bool,
) -> Result<Vec<Answer>, RunError> {
    // No name that is known before: an earlier run of the same number may have been killed and left its own.
    let place = std::env::temp_dir().join("inside-XXXXXX");
    let own = nix::unistd::mkdtemp(&place).map_err(|error| RunError::Own(place, error.into()))?;
    let answers = attacks().filter(|attack| wanted(attack)).map(|attack| {
        let outcome = until_told(|round| {
            // What an earlier try left is in its way.
            let own = own.join(round.to_string());
            let made = DirBuilder::new().recursive(true).create(&own);
            made.map_err(|error| RunError::Own(own.clone(), error))?;
            let shot = Shot { decoys, id: attack.id, own: &own };
            let ended = forked(|| child(|| shoot(attack, limit, &shot)));
            Ok(outcome(ended.map_err(|error| RunError::Fork(attack.id, error))?))
        })?;
        Ok(Answer { id: attack.id.to_owned(), outcome })
    });
    let answers = answers.collect();
    let _ = fs::remove_dir_all(&own);
    answers
}

/// Tries again what the machine had no room or time for: that says nothing of the attack.
fn until_told(mut attack: impl FnMut(u32) -> Result<String, RunError>) -> Result<String, RunError> {
    for round in 0..ROUNDS {
        let outcome = attack(round)?;
        if !SHORTAGES.contains(&outcome.as_str()) {
            return Ok(outcome);
        }
        std::thread::sleep(BETWEEN_FORKS);
    }
    attack(ROUNDS)
}

/// What its user's other processes have used up may be free again a moment later.
fn forked(mut fork: impl FnMut() -> io::Result<Ended>) -> io::Result<Ended> {
    for _ in 0..FORKS {
        match fork() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                std::thread::sleep(BETWEEN_FORKS);
            }
            other => return other,
        }
    }
    fork()
}

fn shoot(attack: &Attack, limit: Duration, shot: &Shot<'_>) -> u8 {
    nix::unistd::alarm::set(u32::try_from(limit.as_secs()).unwrap_or(u32::MAX).max(1));
    match (attack.run)(shot) {
        Ok(()) => CODE_SUCCEEDED,
        Err(error) => {
            error.raw_os_error().and_then(|number| number.try_into().ok()).unwrap_or(CODE_UNTRIED)
        }
    }
}

fn outcome(ended: Ended) -> String {
    match ended {
        Ended::Code(CODE_SUCCEEDED) => SUCCEEDED.to_owned(),
        Ended::Code(CODE_UNTRIED) => UNTRIED.to_owned(),
        Ended::Code(255) => "panicked".to_owned(),
        Ended::Code(number) => format!("{:?}", Errno::from_raw(number.into())),
        Ended::Signal(number) => {
            Signal::try_from(number).map_or("signal", Signal::as_str).to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_is_no_answer_while_there_is_hope() {
        let mut outcomes = ["EAGAIN", "EMFILE", "EACCES"].into_iter();
        let told = until_told(|_| Ok(outcomes.next().unwrap().to_owned()));
        assert_eq!(told.unwrap(), "EACCES");
        let mut tries = Vec::new();
        let told = until_told(|round| {
            tries.push(round);
            Ok("ENOMEM".to_owned())
        });
        assert_eq!((told.unwrap().as_str(), tries), ("ENOMEM", vec![0, 1, 2, 3]));
    }

    #[test]
    fn an_end_has_a_name() {
        for (ended, name) in [
            (Ended::Code(0), SUCCEEDED),
            (Ended::Code(13), "EACCES"),
            (Ended::Code(254), UNTRIED),
            (Ended::Signal(31), "SIGSYS"),
        ] {
            assert_eq!(outcome(ended), name);
        }
    }
}
