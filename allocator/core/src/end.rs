//! Stop and close: two phases (quiesce, then end), and what becomes of the storage.

use casemate_protocol::api::Phase;
use casemate_protocol::end::EndReason;
use casemate_protocol::worker::Evidence;
use serde::{Deserialize, Serialize};

#[cfg(doc)]
use crate::record::Record;
use crate::record::{CloseRule, Storage};
use crate::standing::Standing;

/// An end that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ending {
    /// Why.
    pub reason: EndReason,
    /// The incarnation ends too; else only compute.
    pub close: bool,
    /// Delete the storage even where work is unpushed.
    pub discard: bool,
    /// End a busy worker too.
    pub force: bool,
    /// What the quiesced worker found in the worktree; `None`: not known.
    pub evidence: Option<Evidence>,
}

impl Ending {
    /// Known to lose nothing. Not known counts as unpushed.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.evidence.as_ref().is_some_and(Evidence::is_clean)
    }
}

/// What to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndDecision {
    /// Nothing ends.
    Nothing,
    /// Its worker serves: [`Record::begin_end`], quiesce, stop.
    Stop,
    /// No worker lives: [`Record::end_without_worker`].
    Conclude,
    /// Somebody is starting or stopping it: wait (with force: cut the start short), then ask again.
    Wait,
    /// This reason is none that a caller can give for this.
    Invalid,
}

/// Decides a stop or close of `session`.
#[must_use]
pub fn end<'a>(session: impl Into<Standing<'a>>, ending: &Ending) -> EndDecision {
    let session = session.into();
    let lawful = if ending.close {
        matches!(
            ending.reason,
            EndReason::Close | EndReason::Unused | EndReason::Retention | EndReason::Shutdown
        )
    } else {
        // Reset needs a fresh ACP state beside a kept worktree, which no worker can be told yet.
        !matches!(
            ending.reason,
            EndReason::Close | EndReason::Unused | EndReason::Retention | EndReason::Reset
        )
    };
    if !lawful {
        return EndDecision::Invalid;
    }
    match (session.phase, ending.close) {
        (_, false) if ending.reason == EndReason::Detach => EndDecision::Nothing,
        (Phase::Starting | Phase::Stopping, _) => EndDecision::Wait,
        (Phase::Active, _) => EndDecision::Stop,
        (Phase::Asleep, true) => EndDecision::Conclude,
        (Phase::Asleep | Phase::Ended, false) => EndDecision::Nothing,
        (Phase::Ended, true) => match session.storage {
            Storage::Retained { .. } if ending.discard => EndDecision::Conclude,
            _ => EndDecision::Nothing,
        },
    }
}

/// What becomes of the storage of a closed session.
#[must_use]
pub fn storage_after(ending: &Ending, now: Storage, rule: CloseRule) -> Storage {
    match now {
        Storage::Deleting | Storage::Deleted => now,
        _ if ending.discard => Storage::Deleting,
        _ if !ending.is_clean() => Storage::Retained { left: None },
        _ if ending.reason == EndReason::Unused => Storage::Deleting,
        _ => match rule {
            CloseRule::Delete => Storage::Deleting,
            CloseRule::Retain(seconds) => Storage::Retained { left: Some(seconds) },
        },
    }
}
