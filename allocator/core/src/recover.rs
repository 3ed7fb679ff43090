//! What an allocator that was started again does about each record. It asks until the answer is one of the last word
//! ([`Recovery::Nothing`], [`Recovery::Adopt`], [`Recovery::FinishEnd`]), carrying out what comes before it.

use casemate_protocol::api::Phase;
use casemate_protocol::ids::{BootId, Generation};

use crate::record::{Record, Storage};

/// What is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// The recorded process is alive.
    pub process: bool,
    /// Somebody holds the slot's lock.
    pub lock: bool,
    /// What answered at the recorded address with a control token of the recorded generation.
    pub answer: Option<Answer>,
}

/// The identity that a worker claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Its start.
    pub boot: BootId,
    /// Its generation.
    pub generation: Generation,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// All as recorded.
    Nothing,
    /// The worker is the recorded one: watch it, hand it out.
    Adopt,
    /// Something lives that must not: end it, prove it, look and ask again.
    Kill,
    /// Its worker is gone: [`Record::lost`].
    MarkLost,
    /// Its start was cut off: [`Record::start_failed`].
    FailStart,
    /// Its end was cut off and the worker lives: carry the end through.
    FinishEnd,
    /// Its end was cut off after the worker: [`Record::stopped`].
    Conclude,
    /// Its deletion was cut off: delete (again).
    Delete,
}

/// Decides.
#[must_use]
pub fn recover(record: &Record, seen: &Observed) -> Recovery {
    let alive = seen.process || seen.lock;
    let known = seen.lock && is_recorded(record, seen.answer.as_ref());
    match record.phase {
        Phase::Active if known => Recovery::Adopt,
        Phase::Stopping if known => Recovery::FinishEnd,
        _ if alive => Recovery::Kill,
        Phase::Active => Recovery::MarkLost,
        Phase::Starting => Recovery::FailStart,
        Phase::Stopping => Recovery::Conclude,
        Phase::Ended if record.storage == Storage::Deleting => Recovery::Delete,
        Phase::Asleep | Phase::Ended => Recovery::Nothing,
    }
}

/// Whether an answer is the recorded worker's own.
#[must_use]
pub fn is_recorded(record: &Record, answer: Option<&Answer>) -> bool {
    let serving = record.worker.as_ref().and_then(|worker| worker.serving.as_ref());
    match (serving, answer) {
        (Some(serving), Some(answer)) => {
            serving.boot == answer.boot && record.generation == answer.generation
        }
        _ => false,
    }
}
