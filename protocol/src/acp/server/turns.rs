//! One turn at a time, over all conversations of the agent.
//!
//! A turn whose client is gone runs to its end. A prompt that waits belongs to its connection: it is dropped with it,
//! so nothing that nobody waits for is started.
//!
//! After a turn the next prompt waits until the agent is quiet: one was seen to send 1.8 MB of a cancelled turn after that turn's
//! answer, which no one could tell from the next turn's own.

use std::collections::VecDeque;

use super::calls::Purpose;
use super::{Action, Conn, Server, lines};
use crate::acp::continuity::prompt::Prompt;
use crate::acp::continuity::record::Entry;
use crate::acp::fault::{Fault, error_line};
use crate::acp::frame::{self, Frame};
use crate::codes::{Delivery, rpc};

/// How long an agent must be quiet after a cancelled turn, and after what it says behind any turn's answer, in milliseconds.
pub(super) const QUIET: u64 = 100;

/// How long after a turn that ended by itself: what follows its answer follows at once.
pub(super) const PAUSE: u64 = 20;

/// How long it may keep the next prompt waiting by not being quiet, in milliseconds.
pub(super) const NOISY: u64 = 5_000;

/// How many prompts may wait at once. People send one or two.
pub(super) const MOST_WAITING: usize = 64;

/// How many bytes they may have together; one that waits alone may be as long as a line.
pub(super) const MOST_BYTES: usize = 16 * 1024 * 1024;

/// The turn at the agent.
#[derive(Debug)]
struct Running {
    call: u64,
    session: String,
    cancelled: bool,
}

/// The time after a turn.
#[derive(Debug, Clone, Copy)]
struct Settling {
    until: u64,
    at_most: u64,
}

/// A prompt that waits for the turn before it.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) conn: Conn,
    pub(super) id: String,
    pub(super) session: String,
    /// Which of its client's lines it is, counted from 1.
    arrival: u64,
    /// The client's line as it came.
    line: Vec<u8>,
    /// The tool call id of the visible notice; none where it only waits for the rest of a turn.
    notice: Option<String>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Turns {
    running: Option<Running>,
    settling: Option<Settling>,
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

    /// The conversation whose turn runs.
    pub(super) fn running(&self) -> Option<&str> {
        self.running.as_ref().map(|running| running.session.as_str())
    }

    /// The running turn was cancelled; `call`: only if it is this one.
    pub(super) fn mark_cancelled(&mut self, call: Option<u64>) {
        if let Some(running) = &mut self.running {
            running.cancelled |= call.is_none_or(|call| call == running.call);
        }
    }

    /// The agent said something that belongs into a turn.
    pub(super) fn heard_content(&mut self, now: u64) {
        if let Some(settling) = &mut self.settling {
            settling.until = now.saturating_add(QUIET).min(settling.at_most);
        }
    }

    /// When the next prompt may start, where that takes time alone.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.settling.map(|settling| settling.until)
    }

    /// Whether one more prompt, of so many bytes, may wait.
    fn has_room(&self, length: usize) -> bool {
        let bytes: usize = self.waiting.iter().map(|one| one.line.len()).sum();
        self.waiting.is_empty()
            || (self.waiting.len() < MOST_WAITING && bytes + length <= MOST_BYTES)
    }

    /// The agent is gone.
    pub(super) fn abandon(&mut self) {
        self.running = None;
        self.settling = None;
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
            return out.push(Action::ToClient(conn, line.into()));
        }
        let queue = self.turns.busy();
        if !queue && self.turns.settling.is_none() {
            return self.start_turn(conn, frame, &session, out);
        }
        if !self.turns.has_room(frame.text().len()) {
            let message =
                "too many prompts wait for the running turn: send this one when it has ended";
            let fault = Fault::new(Delivery::NotDelivered);
            let line = error_line(id, rpc::WORKER, message, Some(&fault));
            return out.push(Action::ToClient(conn, line.into()));
        }
        let notice = queue.then(|| {
            self.turns.notices += 1;
            format!("casemate-wait-{now}-{}", self.turns.notices)
        });
        if let Some(notice) = &notice {
            let line = lines::waiting(frame.session().unwrap_or("\"\""), notice);
            out.push(Action::ToClient(conn, line.into()));
        }
        self.turns.waiting.push_back(Waiting {
            conn,
            id: id.to_owned(),
            session: session.into_owned(),
            arrival: self.client.as_ref().map_or(0, |client| client.arrived),
            line: frame.text().as_bytes().to_vec(),
            notice,
        });
    }

    /// Which line of this client waits for a turn, the oldest; counted from 1.
    #[must_use]
    pub fn oldest_waiting(&self, conn: Conn) -> Option<u64> {
        let own = |waiting: &&Waiting| waiting.conn == conn;
        self.turns.waiting.iter().filter(own).map(|waiting| waiting.arrival).min()
    }

    fn start_turn(&mut self, conn: Conn, frame: &Frame<'_>, session: &str, out: &mut Vec<Action>) {
        if !self.saved.prompted {
            self.saved.prompted = true;
            out.push(Action::Save(self.saved.clone()));
        }
        let live = self.conversations.is_live(session);
        let blocks = frame.get(&["params", "prompt"]).and_then(frame::array).unwrap_or_default();
        if live {
            for block in &blocks {
                out.push(Action::Journal {
                    session: session.to_owned(),
                    line: lines::user_chunk(frame.session().unwrap_or("\"\""), block).into(),
                });
            }
        }
        let call = self.forward(conn, frame, Purpose::Prompt, Vec::new(), out);
        if live {
            let entry = Entry::Sent(Prompt::of(&blocks));
            out.push(Action::Record { session: session.to_owned(), entry });
        }
        self.turns.running = Some(Running { call, session: session.to_owned(), cancelled: false });
        self.attach(conn, session, out);
        self.forget_refusals();
        self.tell_loss(session, out);
        self.say_notices(out);
    }

    /// The agent answered a prompt.
    pub(super) fn turn_ended(&mut self, call: u64, now: u64) {
        let Some(ended) = self.turns.running.take_if(|running| running.call == call) else {
            return;
        };
        let until = now.saturating_add(if ended.cancelled { QUIET } else { PAUSE });
        self.turns.settling = Some(Settling { until, at_most: now.saturating_add(NOISY) });
    }

    /// Starts the next prompt where the time after a turn is over.
    pub(super) fn settle(&mut self, now: u64, out: &mut Vec<Action>) {
        if self.turns.settling.take_if(|settling| settling.until <= now).is_some() {
            self.start_next(out);
        }
    }

    fn start_next(&mut self, out: &mut Vec<Action>) {
        let Some(next) = self.turns.waiting.pop_front() else { return };
        let frame = Frame::parse(&next.line).expect("the waiting line was parsed before");
        if let Some(notice) = &next.notice {
            let session = frame.session().unwrap_or("\"\"");
            out.push(Action::ToClient(
                next.conn,
                lines::waited(session, notice, "completed").into(),
            ));
        }
        self.start_turn(next.conn, &frame, &next.session, out);
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
            if let Some(notice) = &one.notice {
                let session = lines::quote(&one.session);
                out.push(Action::ToClient(
                    one.conn,
                    lines::waited(&session, notice, "failed").into(),
                ));
            }
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
