//! Cancels, bound at receipt: to the running turn, to a waiting prompt, or to nothing.
//!
//! A late cancel must not reach the agent: there it would hit the next turn.

use super::{Action, Conn, Server, lines};
use crate::acp::frame::{self, Frame, same_id};

// === impl Server ===

impl Server {
    /// `session/cancel` of a client.
    pub(super) fn cancel(&mut self, frame: &Frame<'_>, out: &mut Vec<Action>) {
        let Some(session) = frame.session().and_then(frame::string) else {
            return out
                .push(Action::Log("a session/cancel without a sessionId was dropped".into()));
        };
        let waited = self.drop_waiting_where(|one| one.session == session, out);
        if self.turns.runs(&session) {
            out.push(Action::ToAgent(frame.line()));
            self.turns.mark_cancelled(None);
            self.cancel_asks(&session, out);
        } else if !waited {
            out.push(Action::Log("a session/cancel came after its turn and was dropped".into()));
        }
    }

    /// The running turn is cancelled by the worker itself.
    pub(super) fn blocked(&mut self, why: &str, out: &mut Vec<Action>) {
        let Some(session) = self.turns.running().map(str::to_owned) else { return };
        self.notice(why, out);
        let line = lines::cancel(&lines::quote(&session));
        out.push(Action::ToAgent(line.into()));
        self.turns.mark_cancelled(None);
        self.cancel_asks(&session, out);
    }

    /// `$/cancel_request` of a client.
    pub(super) fn cancel_request(&mut self, conn: Conn, frame: &Frame<'_>, out: &mut Vec<Action>) {
        let Some(range) = frame.locate(&["params", "requestId"]) else { return };
        let wanted = &frame.text()[range.clone()];
        if self.drop_waiting_where(|one| one.conn == conn && same_id(&one.id, wanted), out) {
            return;
        }
        let call =
            self.calls.open.iter().find(|(_, call)| call.conn == conn && same_id(&call.id, wanted));
        match call {
            Some((key, _)) => {
                self.turns.mark_cancelled(Some(*key));
                out.push(Action::ToAgent(frame.splice(vec![(range, key.to_string())]).into()));
            }
            None => {
                out.push(Action::Log("a $/cancel_request names no open request: dropped".into()))
            }
        }
    }
}
