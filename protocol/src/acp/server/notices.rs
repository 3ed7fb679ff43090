//! What the supervisor itself has to say to whoever prompts: a bound that comes near, a disk that is full.
//!
//! Said inside a turn, as a tool call that is complete: outside of one a client would show it as the beginning of the next.
//! What comes while no turn runs waits for the next one. It is no word of the agent's, so it is not journaled.

use super::{Action, Conn, Server, lines};

/// More than this is not kept for a next turn: the oldest go.
const MOST: usize = 8;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Notices {
    waiting: Vec<String>,
    said: u64,
}

// === impl Server ===

impl Server {
    /// Says it now or in the next turn.
    pub(super) fn notice(&mut self, text: &str, out: &mut Vec<Action>) {
        if self.notices.waiting.len() == MOST {
            self.notices.waiting.remove(0);
        }
        self.notices.waiting.push(text.to_owned());
        self.say_notices(out);
    }

    /// Says what waits where a turn runs and somebody is there to read it.
    pub(super) fn say_notices(&mut self, out: &mut Vec<Action>) {
        let (Some(session), Some(client)) = (self.turns.running(), &self.client) else { return };
        if !client.attached.contains(session) {
            return;
        }
        let (conn, session) = (client.conn, lines::quote(session));
        for text in std::mem::take(&mut self.notices.waiting) {
            self.say(conn, &session, &text, out);
        }
    }

    /// Says it to this client; `session` is raw JSON.
    pub(super) fn say(&mut self, conn: Conn, session: &str, text: &str, out: &mut Vec<Action>) {
        self.notices.said += 1;
        let id = format!("casemate-notice-{}", self.notices.said);
        out.push(Action::ToClient(conn, lines::notice(session, &id, text).into()));
    }
}
