//! The client's end of an attachment: dials again after a cut, by ticket, until it is told that there is no way back.

use bytes::Bytes;

use super::flow::{Brought, Flow};
use super::frame::Packet;
use super::reach::Reach;
use super::ticket::Refused;
use super::{KEEP_MS, Violation};
use crate::codes::close;

/// The first pause before dialling again, and the longest, in milliseconds. Each failure doubles it; a part of it is
/// left to chance, so that the clients of a network that broke do not all come back at once.
const FIRST: u64 = 20;
const LONGEST: u64 = 10_000;

/// So many failures in a row, and the allocator is asked whether the worker lives.
const DOUBTFUL: u32 = 3;

/// The worker has given up an attachment by then, whatever became of it.
const PATIENCE: u64 = KEEP_MS + 60_000;

/// How an attachment ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Over {
    /// The worker's close code, where it said one.
    pub code: Option<u16>,
    /// In words.
    pub reason: String,
    /// No agent works any more on what it was given.
    pub agent_ended: bool,
    /// How far messages got.
    pub reach: Reach,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Connect with this ticket.
    Dial(String),
    /// Ask the allocator, if it answers, whether the worker still lives.
    Ask,
    /// A message came.
    Message(u64, Bytes),
    /// The end; nothing follows.
    Over(Over),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum State {
    Up,
    /// Since when; how many attempts failed; when the next is due.
    Down {
        since: u64,
        failures: u32,
        retry: u64,
    },
    /// An attempt is under way.
    Dialling {
        since: u64,
        failures: u32,
    },
    Over,
}

/// See the module. Times are milliseconds of one monotonic clock; `chance` is any number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BridgeEnd {
    flow: Flow,
    ticket: Option<String>,
    state: State,
}

// === impl BridgeEnd ===

impl BridgeEnd {
    /// A new attachment over a connection that is open.
    #[must_use]
    pub fn new() -> Self {
        let mut flow = Flow::client();
        flow.opened();
        Self { flow, ticket: None, state: State::Up }
    }

    /// An attempt succeeded.
    pub fn opened(&mut self) {
        if matches!(self.state, State::Dialling { .. }) {
            self.flow.opened();
        }
    }

    /// The connection is gone, or an attempt failed.
    pub fn cut(&mut self, now: u64, chance: u64, out: &mut Vec<Action>) {
        let (since, failures) = match self.state {
            State::Up => (now, 0),
            State::Dialling { since, failures } => (since, failures + 1),
            State::Down { .. } | State::Over => return,
        };
        self.flow.cut();
        if self.ticket.is_none() {
            // Nothing was sent before the worker's greeting: whoever dialled may begin anew.
            return self.end(None, "the connection broke before the worker's greeting", false, out);
        }
        if now.saturating_sub(since) >= PATIENCE {
            return self.end(None, "the worker could not be reached for 11 minutes", false, out);
        }
        if failures > 0 && failures % DOUBTFUL == 0 {
            out.push(Action::Ask);
        }
        self.state = State::Down { since, failures, retry: now + pause(failures, chance) };
    }

    /// An attempt was refused.
    pub fn refused(&mut self, refused: Refused, out: &mut Vec<Action>) {
        match refused {
            Refused::Unknown => {
                self.end(None, "the worker that had the connection is gone", true, out);
            }
            Refused::Superseded => {
                let reason = "a newer client attached to this session";
                self.end(Some(close::SUPERSEDED), reason, false, out);
            }
            Refused::Over => {
                self.end(None, "the worker has given the connection up", false, out);
            }
        }
    }

    /// The allocator says that the worker is gone.
    pub fn worker_gone(&mut self, out: &mut Vec<Action>) {
        self.end(None, "its worker is gone", true, out);
    }

    /// Takes a frame.
    ///
    /// # Errors
    /// [`Violation`]: the attachment is over, and `out` says so.
    pub fn take(&mut self, frame: &Bytes, out: &mut Vec<Action>) -> Result<(), Violation> {
        if self.state == State::Over {
            return Ok(());
        }
        match self.flow.take(frame) {
            Ok(Brought::Welcome { ticket, .. }) => {
                self.ticket = Some(ticket);
                self.state = State::Up;
            }
            Ok(Brought::Message(seq, line)) => out.push(Action::Message(seq, line)),
            Ok(Brought::Bye(code, reason)) => {
                let ended = matches!(code, close::AGENT_GONE | close::IDLE | close::GOING_AWAY);
                self.flow.bye(close::NORMAL, "", false);
                self.end(Some(code), &reason, ended, out);
            }
            // Workers send no copies ahead: the flow refuses them.
            Ok(Brought::Nothing | Brought::Ahead(..)) => {}
            Err(violation) => {
                let reason = violation.to_string();
                self.flow.bye(close::PROTOCOL, &reason, false);
                self.end(None, &format!("the worker broke the protocol: {reason}"), false, out);
                return Err(violation);
            }
        }
        Ok(())
    }

    /// Time has passed.
    pub fn tick(&mut self, now: u64, out: &mut Vec<Action>) {
        if let State::Down { since, failures, retry } = self.state
            && retry <= now
            && let Some(ticket) = self.ticket.clone()
        {
            self.state = State::Dialling { since, failures };
            out.push(Action::Dial(ticket));
        }
    }

    /// When [`Self::tick`] is wanted.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        match self.state {
            State::Down { retry, .. } => Some(retry),
            _ => None,
        }
    }

    /// Leaves in order, after all that was pushed. The end is not reported.
    pub fn leave(&mut self) {
        self.flow.bye(close::NORMAL, "detach", true);
    }

    /// The next frame to send.
    pub fn frame(&mut self) -> Option<Packet> {
        self.flow.frame()
    }

    /// The attachment is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// It can be reconnected.
    #[must_use]
    pub fn is_welcome(&self) -> bool {
        self.ticket.is_some()
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

    fn end(&mut self, code: Option<u16>, reason: &str, agent_ended: bool, out: &mut Vec<Action>) {
        if self.state == State::Over {
            return;
        }
        self.state = State::Over;
        let (reason, reach) = (reason.to_owned(), self.flow.reach());
        out.push(Action::Over(Over { code, reason, agent_ended, reach }));
    }
}

impl Default for BridgeEnd {
    fn default() -> Self {
        Self::new()
    }
}

/// Half of it fixed, half by chance.
fn pause(failures: u32, chance: u64) -> u64 {
    let whole = FIRST.saturating_mul(1 << failures.min(16)).min(LONGEST);
    whole / 2 + chance % (whole / 2 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_ten_seconds_and_half_of_each_is_chance() {
        assert_eq!((pause(0, 0), pause(0, 10), pause(0, 11)), (10, 20, 10));
        assert_eq!((pause(1, 0), pause(1, 20)), (20, 40));
        assert_eq!((pause(40, 0), pause(40, 5000)), (5000, 10_000));
    }
}
