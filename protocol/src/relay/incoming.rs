//! Messages that one side receives: put together, each given out once, acknowledged when dealt with.
//!
//! Two facts about a message are told apart. *Taken*: it holds no room of the window any more. *Settled*: it was written
//! whole to the agent's stdin or the host's stdout, or the receiver itself has dealt with it; that is acknowledged. A
//! prompt that waits for a turn is taken and not settled, so it does not keep a cancel from coming through.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;

use super::frame::Standing;
use super::{LANE, PIECE, Violation};
use crate::acp::frame::MAX_LINE;

/// An acknowledgement that is this many messages late is sent before data.
const MANY: u64 = 256;

/// So many messages may be known by a copy that came ahead; more come in their turn alone.
const KNOWN: usize = 64;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Incoming {
    window: u64,
    /// The last message that was received whole, and the position of its end.
    have: u64,
    have_end: u64,
    /// What has come of the next one.
    partial: Vec<u8>,
    /// Lengths of whole messages that are not taken, the first being `taken + 1`.
    waiting: VecDeque<u64>,
    waiting_bytes: u64,
    taken: u64,
    settled: u64,
    /// Messages to come that were given out already, by a copy.
    known: BTreeSet<u64>,
    /// What the peer was told last.
    told: Standing,
}

// === impl Incoming ===

impl Incoming {
    /// Nothing received yet.
    #[must_use]
    pub fn new(window: u64) -> Self {
        Self {
            window,
            have: 0,
            have_end: 0,
            partial: Vec::new(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            taken: 0,
            settled: 0,
            known: BTreeSet::new(),
            told: Standing { seq: 0, limit: window },
        }
    }

    /// Takes a copy that came ahead; its content, where it was not known.
    ///
    /// # Errors
    /// [`Violation::LongCopy`].
    pub fn ahead(&mut self, seq: u64, bytes: &[u8]) -> Result<Option<Bytes>, Violation> {
        if bytes.len() > LANE {
            return Err(Violation::LongCopy);
        }
        let news = seq > self.have && self.known.len() < KNOWN && self.known.insert(seq);
        Ok(news.then(|| Bytes::copy_from_slice(bytes)))
    }

    /// Takes a piece; a message that is whole now, with its number. It is empty where it is known from a copy.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn piece(
        &mut self,
        seq: u64,
        last: bool,
        bytes: Bytes,
    ) -> Result<Option<(u64, Bytes)>, Violation> {
        if bytes.len() > PIECE {
            return Err(Violation::LongPiece);
        }
        if seq <= self.have {
            return Ok(None);
        }
        let wanted = self.have + 1;
        if seq != wanted {
            return Err(Violation::Gap { wanted, got: seq });
        }
        let length = self.partial.len() + bytes.len();
        if length > MAX_LINE {
            return Err(Violation::LongMessage);
        }
        if self.have_end + length as u64 > self.told.limit {
            return Err(Violation::Window);
        }
        if !last {
            self.partial.extend_from_slice(&bytes);
            return Ok(None);
        }
        let whole = if self.partial.is_empty() {
            bytes
        } else {
            self.partial.extend_from_slice(&bytes);
            std::mem::take(&mut self.partial).into()
        };
        self.have = seq;
        self.have_end += length as u64;
        self.waiting.push_back(length as u64);
        self.waiting_bytes += length as u64;
        Ok(Some((seq, if self.known.remove(&seq) { Bytes::new() } else { whole })))
    }

    /// All up to `seq` hold no room any more.
    pub fn taken(&mut self, seq: u64) {
        while self.taken < seq {
            let Some(length) = self.waiting.pop_front() else { return };
            self.waiting_bytes -= length;
            self.taken += 1;
        }
    }

    /// All up to `seq` have been dealt with.
    pub fn settled(&mut self, seq: u64) {
        self.taken(seq);
        self.settled = self.settled.max(seq.min(self.have));
    }

    /// The connection is gone: half a message will come again.
    pub fn cut(&mut self) {
        self.partial = Vec::new();
    }

    /// The standing for a greeting. What was acknowledged before may never have arrived: it is said again.
    pub fn greeting(&mut self) -> Standing {
        self.told = Standing { seq: 0, limit: self.limit() };
        Standing { seq: self.have, ..self.told }
    }

    /// An acknowledgement, where there is something to tell. Only an urgent one comes before data.
    pub fn ack(&mut self, urgent: bool) -> Option<Standing> {
        let now = self.due(urgent)?;
        self.told = now;
        Some(now)
    }

    /// There is something to acknowledge, which need not be at once.
    #[must_use]
    pub fn owes(&self) -> bool {
        self.due(false).is_some()
    }

    fn due(&self, urgent: bool) -> Option<Standing> {
        let limit = self.limit().max(self.told.limit);
        let now = Standing { seq: self.settled, limit };
        let wider = limit - self.told.limit;
        let due = if urgent {
            wider > self.window / 2 || now.seq - self.told.seq >= MANY
        } else {
            wider > self.window / 4 || now.seq != self.told.seq
        };
        due.then_some(now)
    }

    /// A message in the making holds room in memory anyway: only whole ones that nobody took count.
    fn limit(&self) -> u64 {
        self.have_end + self.partial.len() as u64 - self.waiting_bytes + self.window
    }
}
