//! The worker's end of an attachment: a connection comes and goes, the attachment stays for a bounded time.

use bytes::Bytes;

use super::flow::{Brought, Flow};
use super::frame::{Frame, Packet};
use super::outgoing::Kept;
use super::{FAREWELL_MS, KEEP_MS, Violation};
use crate::codes::close;

/// What happened, besides what [`Flow`] takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum State {
    /// A connection is there.
    Up,
    /// None; the attachment is kept until then.
    Down { until: u64 },
    /// The attachment is over.
    Over,
}

/// What a client sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// A message with its number. An empty one counts and means nothing.
    Message(u64, Bytes),
    /// One that came ahead of its turn; in its turn it comes again, empty.
    Ahead(u64, Bytes),
}

/// See the module. Times are milliseconds of one monotonic clock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SupervisorEnd {
    flow: Flow,
    state: State,
    /// Nobody comes back for it.
    superseded: bool,
}

// === impl SupervisorEnd ===

impl SupervisorEnd {
    /// A new attachment, whose first connection is to come.
    #[must_use]
    pub fn new(epoch: u64, ticket: String, memory: usize, now: u64) -> Self {
        Self {
            flow: Flow::worker(epoch, ticket, memory),
            state: State::Down { until: now + KEEP_MS },
            superseded: false,
        }
    }

    /// A connection with its ticket came; one that is there still is replaced. False where the attachment is over.
    pub fn opened(&mut self) -> bool {
        if self.is_over() {
            return false;
        }
        self.state = State::Up;
        self.flow.opened();
        true
    }

    /// The connection is gone.
    pub fn cut(&mut self, now: u64) {
        if self.state == State::Up {
            let keep = if self.flow.is_leaving() { FAREWELL_MS } else { KEEP_MS };
            self.state =
                if self.superseded { State::Over } else { State::Down { until: now + keep } };
            self.flow.cut();
        }
    }

    /// Takes a frame; what came of it.
    ///
    /// # Errors
    /// [`Violation`]: the client is told by a `Bye` that goes out before anything else.
    pub fn take(&mut self, frame: &Bytes) -> Result<Option<Taken>, Violation> {
        if self.state != State::Up {
            return Ok(None);
        }
        match self.flow.take(frame) {
            // What comes after the end was decided reaches nobody, and is not acknowledged.
            Ok(Brought::Message(..) | Brought::Ahead(..)) if self.flow.is_leaving() => Ok(None),
            Ok(Brought::Message(seq, line)) => Ok(Some(Taken::Message(seq, line))),
            Ok(Brought::Ahead(seq, line)) => Ok(Some(Taken::Ahead(seq, line))),
            Ok(Brought::Bye(..)) => {
                self.state = State::Over;
                Ok(None)
            }
            Ok(Brought::Nothing | Brought::Welcome { .. }) => Ok(None),
            Err(violation) => {
                self.flow.bye(close::PROTOCOL, &violation.to_string(), false);
                Err(violation)
            }
        }
    }

    /// A message for the client.
    pub fn push(&mut self, line: impl Into<Bytes>) -> Kept {
        self.flow.push(line)
    }

    /// Ends the attachment: superseded at once, else after all that was pushed. One that is cut has a moment to hear it.
    pub fn leave(&mut self, code: u16, reason: &str, now: u64) {
        self.superseded |= code == close::SUPERSEDED;
        self.flow.bye(code, reason, !self.superseded);
        match &mut self.state {
            State::Down { .. } if self.superseded => self.state = State::Over,
            State::Down { until } => *until = (*until).min(now + FAREWELL_MS),
            State::Up | State::Over => {}
        }
    }

    /// Ends it at once: something of it is lost.
    pub fn lose(&mut self, code: u16, reason: &str) {
        self.flow.bye(code, reason, false);
        if matches!(self.state, State::Down { .. }) {
            self.state = State::Over;
        }
    }

    /// Ends it without a word.
    pub fn drop_now(&mut self) {
        self.state = State::Over;
    }

    /// The next frame to send.
    pub fn frame(&mut self) -> Option<Packet> {
        if self.state == State::Up { self.flow.frame() } else { None }
    }

    /// The answer to the client's `Bye`; none where ours went out before it came: nothing follows a `Bye`.
    #[must_use]
    pub fn answer(&self) -> Option<Packet> {
        let owed = self.is_over() && !self.flow.has_left();
        owed.then(|| Packet::from(&Frame::Bye { code: close::NORMAL, reason: "".into() }))
    }

    /// The same but for an acknowledgement that may wait ([`Flow::owes`]).
    pub fn pressing(&mut self) -> Option<Packet> {
        if self.state == State::Up { self.flow.pressing() } else { None }
    }

    /// Such an acknowledgement.
    pub fn acknowledgement(&mut self) -> Option<Packet> {
        if self.state == State::Up { self.flow.acknowledgement() } else { None }
    }

    /// Time has passed.
    pub fn tick(&mut self, now: u64) {
        if self.deadline().is_some_and(|at| at <= now) {
            self.state = State::Over;
        }
    }

    /// When [`Self::tick`] ends it.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        match self.state {
            State::Down { until } => Some(until),
            State::Up | State::Over => None,
        }
    }

    /// The attachment is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Both directions.
    #[must_use]
    pub fn flow(&self) -> &Flow {
        &self.flow
    }

    /// Both directions.
    pub fn flow_mut(&mut self) -> &mut Flow {
        &mut self.flow
    }
}
