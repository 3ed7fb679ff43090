//! One turn at a time, over all conversations of the agent.
//!
//! A turn whose client is gone runs to its end. A prompt that waits belongs to its connection: it is dropped with it,
//! so nothing that nobody waits for is started.

use std::collections::VecDeque;

use super::calls::Purpose;
use super::{Action, Conn, Server, lines};
use crate::acp::fault::{Fault, error_line};
use crate::acp::frame::{self, Frame};
use crate::codes::{Delivery, rpc};

/// The turn at the agent.
#[derive(Debug)]
pub(super) struct Running {
    call: u64,
    session: String,
}

/// A prompt that waits for the turn before it.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) conn: Conn,
    pub(super) id: String,
    pub(super) session: String,
    /// The client's line as it came.
    line: Vec<u8>,
    /// The tool call id of the visible notice.
    notice: String,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Turns {
    running: Option<Running>,
    pub(super) waiting: VecDeque<Waiting>,
    notices: u64,
}

// === impl Turns ===

impl Turns {
    /// Whether a turn runs or waits.
    pub(super) fn busy(&self) -> bool {
        self.running.is_some() || !self.waiting.is_empty()
    }

    /// Whether a turn of this conversation runs.
    pub(super) fn runs(&self, session: &str) -> bool {
        self.running.as_ref().is_some_and(|running| running.session == session)
    }

    /// The agent is gone.
    pub(super) fn abandon(&mut self) {
        self.running = None;
    }
}

// === impl Server ===

impl Server {
    /// A client prompts.
    pub(super) fn prompt(
        &mut self,
        conn: Conn,
        frame: &Frame<'_>,
        now: u64,
        out: &mut Vec<Action>,
    ) {
        let id = frame.id().unwrap_or("null");
        let Some(session) = frame.session().and_then(frame::string) else {
            let message = "params.sessionId is missing or not a string";
            return self.refuse(conn, id, rpc::INVALID_PARAMS, message, out);
        };
        if self.quiesced {
            let fault = Fault { reattach: true, ..Fault::new(Delivery::NotDelivered) };
            let message = "this worker is being stopped: attach again and send the prompt again";
            let line = error_line(id, rpc::WORKER, message, Some(&fault));
            return out.push(Action::ToClient(conn, line));
        }
        if self.turns.running.is_none() {
            return self.start_turn(conn, frame, &session, out);
        }
        self.turns.notices += 1;
        let notice = format!("casemate-wait-{now}-{}", self.turns.notices);
        out.push(Action::ToClient(
            conn,
            lines::waiting(frame.session().unwrap_or("\"\""), &notice),
        ));
        self.turns.waiting.push_back(Waiting {
            conn,
            id: id.to_owned(),
            session: session.into_owned(),
            line: frame.text().as_bytes().to_vec(),
            notice,
        });
    }

    fn start_turn(&mut self, conn: Conn, frame: &Frame<'_>, session: &str, out: &mut Vec<Action>) {
        if !self.saved.prompted {
            self.saved.prompted = true;
            out.push(Action::Save(self.saved.clone()));
        }
        if self.conversations.is_live(session) {
            let prompt = frame.get(&["params", "prompt"]).and_then(frame::array);
            for block in prompt.unwrap_or_default() {
                out.push(Action::Journal {
                    session: session.to_owned(),
                    line: lines::user_chunk(frame.session().unwrap_or("\"\""), block),
                });
            }
        }
        let call = self.forward(conn, frame, Purpose::Prompt, Vec::new(), out);
        self.turns.running = Some(Running { call, session: session.to_owned() });
        self.attach(conn, session, out);
    }

    /// The agent answered a prompt: the next one's turn.
    pub(super) fn turn_ended(&mut self, call: u64, out: &mut Vec<Action>) {
        if self.turns.running.as_ref().is_none_or(|running| running.call != call) {
            return;
        }
        self.turns.running = None;
        if let Some(next) = self.turns.waiting.pop_front() {
            let frame = Frame::parse(&next.line).expect("the waiting line was parsed before");
            let session = frame.session().unwrap_or("\"\"");
            out.push(Action::ToClient(
                next.conn,
                lines::waited(session, &next.notice, "completed"),
            ));
            self.start_turn(next.conn, &frame, &next.session, out);
        }
    }

    /// Takes the waiting prompts of a conversation (of all) out and answers them `cancelled`.
    pub(super) fn drop_waiting(&mut self, session: Option<&str>, out: &mut Vec<Action>) {
        self.drop_waiting_where(|one| session.is_none_or(|session| one.session == session), out);
    }

    /// Takes waiting prompts out and answers them `cancelled`; true where there was one.
    pub(super) fn drop_waiting_where(
        &mut self,
        unwanted: impl Fn(&Waiting) -> bool,
        out: &mut Vec<Action>,
    ) -> bool {
        let (dropped, kept): (Vec<_>, VecDeque<_>) = {
            let mut dropped = Vec::new();
            let mut kept = VecDeque::new();
            for one in self.turns.waiting.drain(..) {
                if unwanted(&one) { dropped.push(one) } else { kept.push_back(one) }
            }
            (dropped, kept)
        };
        self.turns.waiting = kept;
        for one in &dropped {
            let session = lines::quote(&one.session);
            out.push(Action::ToClient(one.conn, lines::waited(&session, &one.notice, "failed")));
            self.reply(one.conn, &one.id, r#"{"stopReason":"cancelled"}"#, out);
        }
        !dropped.is_empty()
    }

    /// Forgets the waiting prompts of a connection that is gone.
    pub(super) fn forget_waiting(&mut self, conn: Conn, out: &mut Vec<Action>) {
        let before = self.turns.waiting.len();
        self.turns.waiting.retain(|one| one.conn != conn);
        let gone = before - self.turns.waiting.len();
        if gone > 0 {
            out.push(Action::Log(format!(
                "{gone} waiting prompts were dropped with the connection that sent them"
            )));
        }
    }
}
