//! What the observed idleness of a worker leads to. Only the worker's own monotonic clock counts: neither the
//! allocator's downtime nor a step of the wall clock spends anything.

use casemate_protocol::api::{NextAction, Phase};
use casemate_protocol::end::EndReason;
use casemate_protocol::worker::{Activity, AgentState};

use crate::record::Storage;
use crate::standing::Standing;

/// What a look at a worker found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// Busy or idle.
    pub activity: Activity,
    /// The agent's process.
    pub agent: AgentState,
    /// Connected clients.
    pub attachments: u32,
    /// Prompted at least once, or a command ran in it.
    pub used: bool,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tick {
    /// Nothing now.
    Nothing,
    /// Stop the worker, keep the session.
    Stop(EndReason, String),
    /// Close the session: it was never used.
    Close(EndReason, String),
}

/// Decides about an active session after a look at its worker.
#[must_use]
pub fn tick<'a>(session: impl Into<Standing<'a>>, seen: &Observation) -> Tick {
    let session = session.into();
    if session.phase != Phase::Active {
        return Tick::Nothing;
    }
    if let AgentState::Exited { cause } = &seen.agent {
        return Tick::Stop(EndReason::Failed, cause.clone());
    }
    let for_ms = match seen.activity {
        Activity::Idle { for_ms } => for_ms,
        Activity::Busy { .. } => return Tick::Nothing,
        // It refuses prompts and nobody is stopping it: an end was cut off. Finish it.
        Activity::Quiesced => return Tick::Stop(EndReason::Idle, "was quiesced".to_owned()),
    };
    let ttl = session.terms.idle_ttl_ms;
    if for_ms < ttl {
        return Tick::Nothing;
    }
    // Somebody is still connected: an editor that was left open may yet prompt, so the session must stay findable.
    if !seen.used && !session.used && seen.attachments == 0 {
        Tick::Close(EndReason::Unused, format!("never used in {} s", ttl / 1000))
    } else {
        Tick::Stop(EndReason::Idle, format!("idle for {} s", for_ms / 1000))
    }
}

/// What will happen to a session unless something changes.
#[must_use]
pub fn next<'a>(
    session: impl Into<Standing<'a>>,
    seen: Option<&Observation>,
) -> Option<NextAction> {
    let session = session.into();
    match (session.phase, session.storage) {
        (Phase::Active, _) => {
            let ttl = session.terms.idle_ttl_ms;
            let (spent, because) = match seen.map(|seen| seen.activity) {
                Some(Activity::Idle { for_ms }) => {
                    (for_ms, format!("idle for {} s of {} s", for_ms / 1000, ttl / 1000))
                }
                Some(Activity::Busy { for_ms }) => {
                    let seconds = for_ms / 1000;
                    let because = format!(
                        "busy for {seconds} s with a turn or a command; idleness counts after it"
                    );
                    (0, because)
                }
                Some(Activity::Quiesced) => (ttl, "quiesced".to_owned()),
                None => (0, "its worker has not been looked at yet".to_owned()),
            };
            let unused = seen.is_some_and(|seen| !seen.used && seen.attachments == 0);
            let action = if unused && !session.used { "close as unused" } else { "stop" };
            Some(NextAction {
                action: action.to_owned(),
                after_idle_seconds: ttl.saturating_sub(spent).div_ceil(1000),
                because,
            })
        }
        (Phase::Ended, Storage::Retained { left: Some(left) }) => Some(NextAction {
            action: "delete storage".to_owned(),
            after_idle_seconds: left,
            because: "closed; its profile keeps the storage for a while".to_owned(),
        }),
        _ => None,
    }
}
