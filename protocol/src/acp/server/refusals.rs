//! What the walls refused the agent, said to whoever prompts: inside the turn in which it was refused, or never.
//!
//! Each thing once a turn and the first few alone; of what is beyond only the number is told, before the turn's answer. A loop
//! that is refused ten thousand times is two lines. Like [`super::notices`] it is no word of the agent's and not journaled.

use super::{Action, Server, lines};

/// So many different ones are told in one turn.
const MOST: usize = 5;

/// Of the running turn. See the module.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    told: Vec<String>,
    beyond: u64,
    /// Over all turns, to name the updates.
    said: u64,
}

// === impl Server ===

impl Server {
    /// Something was refused, so many times.
    pub(super) fn refused(&mut self, what: &str, why: &str, times: u64, out: &mut Vec<Action>) {
        if self.turns.running().is_none() || self.refusals.told.iter().any(|told| told == what) {
            return;
        }
        if self.refusals.told.len() == MOST {
            return self.refused_more(times);
        }
        if self.tell_refusal(what, why, out) {
            self.refusals.told.push(what.to_owned());
        }
    }

    /// More was refused.
    pub(super) fn refused_more(&mut self, times: u64) {
        if self.turns.running().is_some() {
            self.refusals.beyond = self.refusals.beyond.saturating_add(times);
        }
    }

    /// The turn begins: nothing was told in it.
    pub(super) fn forget_refusals(&mut self) {
        self.refusals = Refusals { said: self.refusals.said, ..Refusals::default() };
    }

    /// The turn ends: what was only counted.
    pub(super) fn sum_refusals(&mut self, out: &mut Vec<Action>) {
        let beyond = std::mem::take(&mut self.refusals.beyond);
        if beyond > 0 {
            let what = format!("refused: {beyond} attempts more");
            let why = "The worker's audit log and casemate_actions_refused_total count them all.";
            self.tell_refusal(&what, why, out);
        }
    }

    /// Whether there is somebody to read it.
    fn tell_refusal(&mut self, what: &str, why: &str, out: &mut Vec<Action>) -> bool {
        let (Some(session), Some(client)) = (self.turns.running(), &self.client) else {
            return false;
        };
        if !client.attached.contains(session) {
            return false;
        }
        self.refusals.said += 1;
        let id = format!("casemate-refused-{}", self.refusals.said);
        let line = lines::refusal(&lines::quote(session), &id, what, why);
        out.push(Action::ToClient(client.conn, line.into()));
        true
    }
}
