//! One end of an attachment over any number of connections: both directions and the greeting.

use std::borrow::Cow;

use bytes::Bytes;

use super::frame::{Frame, Packet};
use super::incoming::Incoming;
use super::outgoing::{Kept, Outgoing};
use super::reach::Reach;
use super::{Violation, WINDOW};

/// Who speaks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Role {
    Client,
    Worker { epoch: u64, ticket: String },
}

/// What a frame brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Brought {
    /// Nothing to act on.
    Nothing,
    /// The worker's greeting.
    Welcome {
        /// The attachment.
        epoch: u64,
        /// What reconnects.
        ticket: String,
    },
    /// A whole message with its number. An empty one counts and means nothing.
    Message(u64, Bytes),
    /// A message with its number that came ahead of its turn; in its turn it comes again, empty.
    Ahead(u64, Bytes),
    /// The peer ended the attachment.
    Bye(u16, String),
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Flow {
    role: Role,
    out: Outgoing,
    inc: Incoming,
    /// There is a connection.
    up: bool,
    /// Our greeting is on it.
    said: bool,
    /// So is the peer's.
    heard: bool,
    /// The end, where it was decided here.
    bye: Option<Bye>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Bye {
    code: u16,
    reason: String,
    /// Data first.
    patient: bool,
    said: bool,
}

// === impl Flow ===

impl Flow {
    /// A client's end. Nothing is spooled: the driver stops its source by [`Self::bytes_kept`].
    #[must_use]
    pub fn client() -> Self {
        Self::new(Role::Client, usize::MAX, WINDOW)
    }

    /// A worker's end; more than `memory` bytes go to the spool.
    #[must_use]
    pub fn worker(epoch: u64, ticket: String, memory: usize) -> Self {
        Self::new(Role::Worker { epoch, ticket }, memory, WINDOW)
    }

    /// Takes no more than this ahead, in bytes.
    #[cfg(test)]
    pub(super) fn narrow(&mut self, window: u64) {
        self.inc = Incoming::new(window);
    }

    fn new(role: Role, memory: usize, window: u64) -> Self {
        Self {
            role,
            out: Outgoing::new(memory),
            inc: Incoming::new(window),
            up: false,
            said: false,
            heard: false,
            bye: None,
        }
    }

    /// A connection is open, instead of any other.
    pub fn opened(&mut self) {
        self.cut();
        self.up = true;
    }

    /// The connection is gone.
    pub fn cut(&mut self) {
        (self.up, self.said, self.heard) = (false, false, false);
        self.inc.cut();
        if let Some(bye) = &mut self.bye {
            bye.said = false;
        }
    }

    /// Takes the next message to send.
    pub fn push(&mut self, line: impl Into<Bytes>) -> Kept {
        self.out.push(line)
    }

    /// Takes the next message to send, of which a copy goes ahead of all that waits, but of message `after` and those
    /// before it. Of a client alone.
    pub fn hurry(&mut self, line: impl Into<Bytes>, after: u64) -> Kept {
        self.out.hurry(line, after)
    }

    /// Takes a message back of which nothing was ever sent; false where it is too late.
    pub fn revoke(&mut self, seq: u64) -> bool {
        self.out.revoke(seq)
    }

    /// The attachment ends: after all that was pushed, or at once.
    pub fn bye(&mut self, code: u16, reason: &str, patient: bool) {
        let reason = reason.to_owned();
        self.bye.get_or_insert(Bye { code, reason, patient, said: false });
    }

    /// The next frame to send; `None` while there is nothing, or nothing may be sent.
    pub fn frame(&mut self) -> Option<Packet> {
        self.pressing().or_else(|| self.acknowledgement())
    }

    /// As [`Self::frame`], but for an acknowledgement that may wait a moment: there is one where the flow [owes](Self::owes) it.
    pub fn pressing(&mut self) -> Option<Packet> {
        if !self.up || self.has_left() {
            return None;
        }
        if !self.said {
            self.said = true;
            let standing = self.inc.greeting();
            let greeting = match &self.role {
                Role::Client => Frame::Hello(standing),
                Role::Worker { epoch, ticket } => {
                    Frame::Welcome { epoch: *epoch, standing, ticket: Cow::Borrowed(ticket) }
                }
            };
            return Some(Packet::from(&greeting));
        }
        if let Some(bye) = &mut self.bye
            && (!bye.patient || (self.heard && self.out.is_sent()))
        {
            if self.heard
                && let Some(standing) = self.inc.ack(false)
            {
                return Some(Packet::from(&Frame::Ack(standing)));
            }
            bye.said = true;
            let reason = Cow::Borrowed(bye.reason.as_str());
            return Some(Packet::from(&Frame::Bye { code: bye.code, reason }));
        }
        if !self.heard {
            return None;
        }
        if let Some(standing) = self.inc.ack(true) {
            return Some(Packet::from(&Frame::Ack(standing)));
        }
        self.out.copy().or_else(|| self.out.piece())
    }

    /// The acknowledgement that [`Self::pressing`] has left.
    pub fn acknowledgement(&mut self) -> Option<Packet> {
        if !self.owes() {
            return None;
        }
        Some(Packet::from(&Frame::Ack(self.inc.ack(false)?)))
    }

    /// There is an acknowledgement that may wait a moment for something that goes with it.
    #[must_use]
    pub fn owes(&self) -> bool {
        self.is_open() && self.said && !self.has_left() && self.inc.owes()
    }

    /// Takes a frame of the peer. A message that is one piece shares its bytes.
    ///
    /// # Errors
    /// [`Violation`]: the attachment cannot go on.
    pub fn take(&mut self, frame: &Bytes) -> Result<Brought, Violation> {
        match Frame::parse(frame)? {
            Frame::Hello(standing) if !self.heard && matches!(self.role, Role::Worker { .. }) => {
                self.out.resume(standing)?;
                self.heard = true;
                Ok(Brought::Nothing)
            }
            Frame::Welcome { epoch, standing, ticket }
                if !self.heard && matches!(self.role, Role::Client) =>
            {
                self.out.resume(standing)?;
                self.heard = true;
                Ok(Brought::Welcome { epoch, ticket: ticket.into_owned() })
            }
            Frame::Bye { code, reason } => Ok(Brought::Bye(code, reason.into_owned())),
            Frame::Piece { seq, last, bytes } if self.heard => {
                let whole = self.inc.piece(seq, last, frame.slice_ref(&bytes))?;
                Ok(whole.map_or(Brought::Nothing, |(seq, line)| Brought::Message(seq, line)))
            }
            Frame::Ahead { seq, bytes }
                if self.heard && matches!(self.role, Role::Worker { .. }) =>
            {
                let news = self.inc.ahead(seq, &bytes)?;
                Ok(news.map_or(Brought::Nothing, |line| Brought::Ahead(seq, line)))
            }
            Frame::Ack(standing) if self.heard => {
                self.out.acknowledged(standing)?;
                Ok(Brought::Nothing)
            }
            Frame::Ahead { .. } if self.heard => Err(Violation::Malformed),
            _ => Err(Violation::Greeting),
        }
    }

    /// All up to `seq` hold no room of the window any more.
    pub fn taken(&mut self, seq: u64) {
        self.inc.taken(seq);
    }

    /// All up to `seq` have been dealt with: acknowledge them.
    pub fn settled(&mut self, seq: u64) {
        self.inc.settled(seq);
    }

    /// The spool's first message should come back.
    #[must_use]
    pub fn wants_spooled(&self) -> bool {
        self.out.wants_spooled()
    }

    /// The spool's first message.
    pub fn unspooled(&mut self, line: Bytes) {
        self.out.unspooled(line);
    }

    /// Bytes of messages that are kept in memory.
    #[must_use]
    pub fn bytes_kept(&self) -> usize {
        self.out.bytes_here()
    }

    /// A message of this length would go to the spool.
    #[must_use]
    pub fn would_spool(&self, length: usize) -> bool {
        self.out.would_spool(length)
    }

    /// Bytes of messages that the peer has acknowledged.
    #[must_use]
    pub fn bytes_acknowledged(&self) -> u64 {
        self.out.acked_end()
    }

    /// Messages in the spool.
    #[must_use]
    pub fn spooled(&self) -> u64 {
        self.out.spooled()
    }

    /// There is a connection and both have greeted.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.up && self.heard
    }

    /// The end was decided here.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.bye.is_some()
    }

    /// Our `Bye` is on the connection.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.bye.as_ref().is_some_and(|bye| bye.said)
    }

    /// How far messages got.
    #[must_use]
    pub fn reach(&self) -> Reach {
        Reach { acked: self.out.acked(), sent: self.out.reached() }
    }
}
