//! `session/update` notifications: into the journal, and to the client that attached their conversation.

use super::{Action, Server};
use crate::acp::frame::{self, Frame};

/// Updates that are part of a turn. Outside of one they are stragglers of the turn before, and a client would show
/// them as the beginning of the next.
const CONTENT: [&str; 6] = [
    "agent_message_chunk",
    "agent_thought_chunk",
    "user_message_chunk",
    "tool_call",
    "tool_call_update",
    "plan",
];

// === impl Server ===

impl Server {
    /// The agent sent an update.
    pub(super) fn updated(&mut self, frame: &Frame<'_>, now: u64, out: &mut Vec<Action>) {
        let Some(session) = frame.session().and_then(frame::string) else {
            return out.push(Action::Log("an update without a sessionId was dropped".into()));
        };
        let kind = frame.update_kind().unwrap_or_default();
        let content = CONTENT.contains(&kind);
        if content {
            self.turns.heard_content(now);
        }
        let live = self.conversations.is_live(&session);
        let opening = self.conversations.opening.get_mut(&*session);
        let shows = opening.as_ref().is_some_and(|opening| opening.shows);
        let opened_by = opening.map(|opening| {
            if let (true, Some((_, replay))) = (content, &mut opening.recorded) {
                replay.hear(kind, frame.get(&["params", "update"]).unwrap_or_default());
            }
            opening.conn
        });
        if opened_by.is_some() {
            self.early.heard(&session, now);
        }
        let creating = !live && opened_by.is_none() && self.creates().next().is_some();

        let journal = if creating {
            match self.conversations.own_early(&session) {
                Some(true) => {
                    out.push(Action::ForgetJournal { session: session.to_string() });
                    true
                }
                Some(false) => true,
                None => false,
            }
        } else {
            live || opened_by.is_some()
        };
        if journal {
            out.push(Action::Journal { session: session.to_string(), line: frame.line() });
        }
        if let Some(client) = &self.client {
            let seen = if let Some(conn) = opened_by {
                client.conn == conn && (shows || !content)
            } else if live {
                client.attached.contains(&*session) && (!content || self.turns.runs(&session))
            } else {
                !content && self.creates().any(|conn| conn == client.conn)
            };
            if seen {
                out.push(Action::ToClient(client.conn, frame.line()));
            }
        }
        if live || opened_by.is_some() {
            self.follow_choice(&session, kind, frame);
        }
    }

    /// Who waits for a conversation that has no name yet.
    fn creates(&self) -> impl Iterator<Item = super::Conn> + '_ {
        let new = |call: &&super::calls::Call| call.purpose == super::calls::Purpose::New;
        self.calls.open.values().filter(new).map(|call| call.conn)
    }

    /// Keeps what a later load is told in step with what the agent says.
    fn follow_choice(&mut self, session: &str, kind: &str, frame: &Frame<'_>) {
        let (member, path): (_, &[&str]) = match kind {
            "current_mode_update" => ("currentModeId", &["modes", "currentModeId"]),
            "config_option_update" => ("configOptions", &["configOptions"]),
            _ => return,
        };
        if let Some(value) = frame.get(&["params", "update", member]) {
            self.conversations.choose(session, path, value);
        }
    }
}
