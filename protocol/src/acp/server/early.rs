//! An agent that answers a load before it has shown what it loaded ([`quirks::answers_early`]): its answer is held back until
//! it is quiet. Else what it shows would be too late for its client, and nobody could tell whether it has the conversation.

use super::calls::{Purpose, is_error};
use super::{Action, Server};
use crate::acp::continuity::quirks;
use crate::acp::frame::Frame;

/// How long it must be quiet, in milliseconds.
pub(super) const QUIET: u64 = 200;

/// How long its answer is held back, in milliseconds, however much it has to show.
pub(super) const LONGEST: u64 = 20_000;

/// An answer that waits.
#[derive(Debug)]
struct Held {
    session: String,
    line: Vec<u8>,
    until: u64,
    at_most: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Early(Vec<Held>);

// === impl Early ===

impl Early {
    /// The agent shows something of the conversation.
    pub(super) fn heard(&mut self, session: &str, now: u64) {
        for held in self.0.iter_mut().filter(|held| held.session == session) {
            held.until = now.saturating_add(QUIET).min(held.at_most);
        }
    }

    /// When the first of them is to be released.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.0.iter().map(|held| held.until).min()
    }
}

// === impl Server ===

impl Server {
    /// Keeps the agent's answer to a load, where it is one that comes early.
    pub(super) fn holds(&mut self, frame: &Frame<'_>, now: u64) -> bool {
        let call = frame.integer_id().and_then(|key| self.calls.open.get(&key));
        let Some(Purpose::Open(session)) = call.map(|call| &call.purpose) else { return false };
        let opening = self.conversations.opening.get(session);
        if is_error(frame)
            || !opening.is_some_and(|opening| opening.replays)
            || !quirks::answers_early(&self.handshake.agent_info())
        {
            return false;
        }
        self.early.0.push(Held {
            session: session.clone(),
            line: frame.text().as_bytes().to_vec(),
            until: now.saturating_add(QUIET),
            at_most: now.saturating_add(LONGEST),
        });
        true
    }

    /// Takes up the answers whose agent has been quiet.
    pub(super) fn release_held(&mut self, now: u64, out: &mut Vec<Action>) {
        while let Some(at) = self.early.0.iter().position(|held| held.until <= now) {
            let held = self.early.0.remove(at);
            let frame = Frame::parse(&held.line).expect("the held line was parsed before");
            self.answered(&frame, now, out);
        }
    }
}
