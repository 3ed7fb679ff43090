//! The agent's conversations that live in this generation, and what a later `session/load` of one is told.

use std::collections::{BTreeMap, BTreeSet};

use super::Conn;
use crate::acp::continuity::replay::Replay;
use crate::acp::frame;

/// How many conversations an agent may name in updates before the answer that creates them.
const EARLY: usize = 16;

/// A `session/load` or `session/resume` that the agent works on.
#[derive(Debug)]
pub(super) struct Opening {
    /// Who asked.
    pub(super) conn: Conn,
    /// Who asked wants to see the conversation's past.
    pub(super) shows: bool,
    /// The agent was asked by `session/load`: what it sends now is the conversation's past.
    pub(super) replays: bool,
    /// How many prompts are recorded, and which of them the agent has shown; `None` where there is no record.
    pub(super) recorded: Option<(usize, Replay)>,
    /// Who asked for the same meanwhile: connection, id, wants a replay.
    pub(super) waiters: Vec<(Conn, String, bool)>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Conversations {
    /// The setup result without `sessionId`, an object, by the agent's id.
    live: BTreeMap<String, String>,
    pub(super) opening: BTreeMap<String, Opening>,
    /// Whose journal was begun, or taken over on purpose, in this generation. Any other journal of the same name is
    /// of an earlier agent that happened to choose it.
    owned: BTreeSet<String>,
    early: usize,
}

// === impl Conversations ===

impl Conversations {
    /// Its journal belongs to this generation from now on; true where it did not before.
    pub(super) fn own(&mut self, session: &str) -> bool {
        self.owned.insert(session.to_owned())
    }

    /// As [`Self::own`] for a conversation that the agent has not announced yet; `None` where that is one too many.
    pub(super) fn own_early(&mut self, session: &str) -> Option<bool> {
        if self.owned.contains(session) {
            return Some(false);
        }
        self.early += 1;
        (self.early <= EARLY).then(|| self.own(session))
    }

    /// It lives: `result` is the agent's answer to its setup.
    pub(super) fn begin(&mut self, session: &str, result: &str) {
        self.live.insert(session.to_owned(), without_session_id(result));
    }

    /// It lives no more.
    pub(super) fn end(&mut self, session: &str) {
        self.live.remove(session);
    }

    pub(super) fn is_live(&self, session: &str) -> bool {
        self.live.contains_key(session)
    }

    /// What a load of it is answered.
    pub(super) fn result(&self, session: &str) -> Option<&str> {
        self.live.get(session).map(String::as_str)
    }

    /// A choice changed after setup: what is told later must show it. Results without that member stay as they are.
    pub(super) fn choose(&mut self, session: &str, path: &[&str], value: &str) {
        let Some(result) = self.live.get_mut(session) else { return };
        let Some(old) = frame::member(result, path) else { return };
        let start = old.as_ptr() as usize - result.as_ptr() as usize;
        let range = start..start + old.len();
        result.replace_range(range, value);
    }
}

/// A setup result for whoever knows the id already. Agents answer a load with null, `{}`, or modes and options.
fn without_session_id(result: &str) -> String {
    let kept: Vec<String> = frame::object(result)
        .unwrap_or_default()
        .into_iter()
        .filter(|(name, _)| name != "sessionId")
        .map(|(name, value)| format!("{}:{value}", super::lines::quote(&name)))
        .collect();
    format!("{{{}}}", kept.join(","))
}
