//! Messages that one side sends: numbered, kept until acknowledged, in memory and then in the driver's spool.
//!
//! What is kept is one queue. Its front is here; whatever does not fit in memory lies behind it in the driver's spool,
//! first in, first out. A message comes back from the spool before it is sent, and stays here until acknowledged.

use std::collections::VecDeque;

use bytes::Bytes;

use super::frame::{Frame, Packet, Standing};
use super::{LANE, PIECE, Violation};

/// What became of a message.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a message for the spool is lost with this"]
pub enum Kept {
    /// It is here.
    Here,
    /// Append it to the spool.
    Spool(Bytes),
}

/// A message of which a copy may go ahead.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Hurried {
    seq: u64,
    /// The last message that it must not pass.
    after: u64,
    /// The copy is on this connection.
    said: bool,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Outgoing {
    /// Bytes that may lie in memory before the spool is used.
    memory: usize,
    /// The number of the last message.
    last: u64,
    /// The number of the last one that was acknowledged, and the position of its end.
    acked: u64,
    acked_end: u64,
    /// From `acked + 1` on.
    here: VecDeque<Bytes>,
    here_bytes: usize,
    /// How many lie in the spool.
    spooled: u64,
    /// What is sent next: a message, and from where in it; the position of that byte.
    next: u64,
    offset: usize,
    position: u64,
    /// Up to which position the peer takes bytes.
    limit: u64,
    /// The last message of which anything was ever sent.
    reached: u64,
    /// Those that the peer has not acknowledged, in order.
    hurried: VecDeque<Hurried>,
}

// === impl Outgoing ===

impl Outgoing {
    /// Nothing sent yet; more than `memory` bytes go to the spool.
    #[must_use]
    pub fn new(memory: usize) -> Self {
        Self {
            memory,
            last: 0,
            acked: 0,
            acked_end: 0,
            here: VecDeque::new(),
            here_bytes: 0,
            spooled: 0,
            next: 1,
            offset: 0,
            position: 0,
            limit: 0,
            reached: 0,
            hurried: VecDeque::new(),
        }
    }

    /// Takes the next message. Its number is the count of all so far.
    pub fn push(&mut self, line: impl Into<Bytes>) -> Kept {
        let line = line.into();
        self.last += 1;
        if self.would_spool(line.len()) {
            self.spooled += 1;
            return Kept::Spool(line);
        }
        self.put(line);
        Kept::Here
    }

    /// A message of this length would go to the spool.
    #[must_use]
    pub fn would_spool(&self, length: usize) -> bool {
        let fits = self.here.is_empty() || self.here_bytes + length <= self.memory;
        self.spooled > 0 || !fits
    }

    /// Takes the next message, of which a copy goes ahead of all that waits, but of message `after` and those before it.
    /// A long one goes in its turn alone.
    pub fn hurry(&mut self, line: impl Into<Bytes>, after: u64) -> Kept {
        let line = line.into();
        let short = line.len() <= LANE;
        let kept = self.push(line);
        if short && kept == Kept::Here {
            self.hurried.push_back(Hurried { seq: self.last, after, said: false });
        }
        kept
    }

    /// Takes a message back of which nothing was ever sent. Its number stays, and means nothing; false where it is too
    /// late, or the message lies in the spool.
    pub fn revoke(&mut self, seq: u64) -> bool {
        if seq <= self.reached {
            return false;
        }
        let at = usize::try_from(seq - self.acked - 1).ok();
        let Some(line) = at.and_then(|at| self.here.get_mut(at)) else { return false };
        self.here_bytes -= line.len();
        *line = Bytes::new();
        true
    }

    /// The spool's first message should come back by [`Self::unspooled`].
    #[must_use]
    pub fn wants_spooled(&self) -> bool {
        self.spooled > 0 && self.here_bytes <= self.memory / 2
    }

    /// The spool's first message, which is there no more.
    pub fn unspooled(&mut self, line: Bytes) {
        self.spooled -= 1;
        self.put(line);
    }

    fn put(&mut self, line: Bytes) {
        self.here_bytes += line.len();
        self.here.push_back(line);
    }

    /// A new connection: the peer has all up to `standing.seq`.
    ///
    /// # Errors
    /// [`Violation::Lost`] where that cannot be.
    pub fn resume(&mut self, standing: Standing) -> Result<(), Violation> {
        if standing.seq < self.acked || standing.seq > self.reached {
            return Err(Violation::Lost);
        }
        let skipped = usize::try_from(standing.seq - self.acked).map_err(|_| Violation::Lost)?;
        let lengths = self.here.iter().take(skipped).map(|line| line.len() as u64);
        self.position = self.acked_end + lengths.sum::<u64>();
        self.next = standing.seq + 1;
        self.offset = 0;
        self.limit = standing.limit;
        for hurried in &mut self.hurried {
            hurried.said = false;
        }
        Ok(())
    }

    /// The peer acknowledged.
    ///
    /// # Errors
    /// [`Violation::Lost`] where it acknowledges what was not sent.
    pub fn acknowledged(&mut self, standing: Standing) -> Result<(), Violation> {
        if standing.seq >= self.next {
            return Err(Violation::Lost);
        }
        self.limit = self.limit.max(standing.limit);
        while self.acked < standing.seq {
            let line = self.here.pop_front().ok_or(Violation::Lost)?;
            self.here_bytes -= line.len();
            self.acked_end += line.len() as u64;
            self.acked += 1;
        }
        while self.hurried.pop_front_if(|hurried| hurried.seq <= standing.seq).is_some() {}
        Ok(())
    }

    /// The next copy that goes ahead, as a frame: of a message that could not be sent now itself, once all that
    /// it must not pass is on this connection.
    pub fn copy(&mut self) -> Option<Packet> {
        let (next, acked, begun, shut) =
            (self.next, self.acked, self.offset > 0, self.limit <= self.position);
        let hurried = self.hurried.iter_mut().find(|hurried| {
            let waits = hurried.seq > next || (hurried.seq == next && !begun && shut);
            !hurried.said && waits && hurried.after < next
        })?;
        hurried.said = true;
        let line = self.here.get(usize::try_from(hurried.seq - acked - 1).ok()?)?;
        Some(Packet::from(&Frame::Ahead { seq: hurried.seq, bytes: (&line[..]).into() }))
    }

    /// The next piece, as a frame; `None` where nothing may be sent now.
    pub fn piece(&mut self) -> Option<Packet> {
        let at = usize::try_from(self.next - self.acked - 1).ok()?;
        let line = self.here.get(at)?;
        let left = line.len() - self.offset;
        let room = usize::try_from(self.limit.saturating_sub(self.position)).unwrap_or(usize::MAX);
        let length = left.min(PIECE).min(room);
        if length == 0 && left > 0 {
            return None;
        }
        let last = length == left;
        let piece = Packet::piece(self.next, last, line.slice(self.offset..self.offset + length));
        self.reached = self.reached.max(self.next);
        self.position += length as u64;
        self.offset += length;
        if last {
            self.next += 1;
            self.offset = 0;
        }
        Some(piece)
    }

    /// All of it has been sent over this connection.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        self.next > self.last
    }

    /// Bytes in memory.
    #[must_use]
    pub fn bytes_here(&self) -> usize {
        self.here_bytes
    }

    /// Messages in the spool.
    #[must_use]
    pub fn spooled(&self) -> u64 {
        self.spooled
    }

    /// The number of the last message.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last
    }

    /// The number of the last message that was acknowledged.
    #[must_use]
    pub fn acked(&self) -> u64 {
        self.acked
    }

    /// Bytes of the messages that were acknowledged.
    #[must_use]
    pub fn acked_end(&self) -> u64 {
        self.acked_end
    }

    /// The number of the last message of which anything was ever sent.
    #[must_use]
    pub fn reached(&self) -> u64 {
        self.reached
    }
}
