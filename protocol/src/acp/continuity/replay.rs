//! Which recorded prompts an agent shows when it loads a conversation.
//!
//! Nothing of the replay is kept. A message of the user's comes in one chunk or in several; only with a `messageId` is it
//! known where it ends. So the text is hashed from each chunk's beginning on, and whatever matches a recorded prompt is that
//! prompt: in their order, each at most once. What the user never sent (agents put in words of their own) is passed over.

use std::collections::BTreeSet;

use sha2::{Digest as _, Sha256};

use super::prompt::{Extent, text_of};
use super::record::Sent;
use crate::acp::frame;

/// So many of the newest prompts are looked for: what a replay costs must not grow with a conversation for ever.
pub const MOST: usize = 1024;
/// A message may begin at so many of the last chunks.
const STARTS: usize = 8;

/// What was seen of a record's prompts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// How many were shown, of those that can be compared.
    pub found: usize,
    /// The numbers of the others.
    pub missing: Vec<u64>,
    /// How many chunks of the user's there were at all.
    pub users: usize,
}

/// A replay that goes on.
#[derive(Debug)]
pub struct Replay {
    wanted: Vec<Sent>,
    /// All before it are found, or will not be.
    next: usize,
    found: BTreeSet<usize>,
    users: usize,
    /// The user's message that is being shown.
    message: Option<Message>,
}

#[derive(Debug)]
struct Message {
    id: Option<String>,
    starts: Vec<Start>,
    /// Later prompts than the expected one, which it may be where that is lost.
    maybe: Vec<Match>,
    chunks: usize,
    /// It is known which prompt it is; the rest of it is the agent's.
    known: bool,
}

/// A prompt that a part of the message may be.
#[derive(Debug, Clone, Copy)]
struct Match {
    index: usize,
    /// With which of its chunks that begins and ends.
    from: usize,
    to: usize,
}

/// The text from a chunk's beginning on.
#[derive(Debug, Clone)]
struct Start {
    chunk: usize,
    bytes: u64,
    hash: Sha256,
}

// === impl Replay ===

impl Replay {
    /// Of a conversation with these prompts.
    #[must_use]
    pub fn new(sent: &[Sent]) -> Self {
        let compared = sent.iter().filter(|sent| sent.prompt.extent != Extent::None);
        let mut wanted: Vec<Sent> = compared.rev().take(MOST).copied().collect();
        wanted.reverse();
        Self { wanted, next: 0, found: BTreeSet::new(), users: 0, message: None }
    }

    /// The agent sent an update (`params.update`, raw JSON) of this kind.
    pub fn hear(&mut self, kind: &str, update: &str) {
        if kind != "user_message_chunk" {
            if self.message.as_ref().is_some_and(|message| message.id.is_none()) {
                self.end_message();
            }
            return;
        }
        self.users += 1;
        let id = frame::member(update, &["messageId"]).and_then(frame::string).map(String::from);
        if self.message.as_ref().is_some_and(|message| message.id != id) {
            self.end_message();
        }
        let content = frame::member(update, &["content"]).unwrap_or_default();
        let mut message = self.message.take().unwrap_or_else(|| Message::new(id));
        match text_of(content) {
            Some(text) if !message.known => self.hear_text(&mut message, text.as_bytes()),
            Some(_) => {}
            // Of a prompt only what precedes it is compared.
            None => message.starts.clear(),
        }
        self.message = Some(message);
    }

    /// The agent has answered.
    #[must_use]
    pub fn finish(mut self) -> Shown {
        self.end_message();
        let all = self.wanted.iter().enumerate();
        let missing = all.filter(|(index, _)| !self.found.contains(index)).map(|(_, sent)| sent.n);
        Shown { found: self.found.len(), missing: missing.collect(), users: self.users }
    }

    fn hear_text(&mut self, message: &mut Message, text: &[u8]) {
        message.begin_at_this_chunk();
        let mut starts = std::mem::take(&mut message.starts);
        let to = message.chunks - 1;
        let matches: Vec<Match> = starts
            .iter_mut()
            .filter_map(|start| {
                Some(Match { index: self.earliest(start, text)?, from: start.chunk, to })
            })
            .collect();
        message.starts = starts;
        for found in matches {
            if found.index == self.next {
                message.maybe.clear();
                message.starts.clear();
                self.is_shown(found.index);
                // One message is one prompt, where it is known what a message is.
                message.known = message.id.is_some();
                return;
            }
            message.may_be(found);
        }
    }

    /// The earliest prompt that may still come and matches the start, given one more chunk.
    fn earliest(&self, start: &mut Start, text: &[u8]) -> Option<usize> {
        let end = start.bytes + text.len() as u64;
        let candidates = || {
            self.wanted.iter().enumerate().skip(self.next).filter(|(_, sent)| {
                let bytes = sent.prompt.bytes;
                let fits = start.bytes < bytes && bytes <= end;
                fits && (bytes == end || sent.prompt.extent == Extent::Beginning)
            })
        };
        let lengths: BTreeSet<u64> = candidates().map(|(_, sent)| sent.prompt.bytes).collect();
        let (mut hash, mut at) = (start.hash.clone(), 0);
        let mut digests = Vec::with_capacity(lengths.len());
        for length in lengths {
            let to = usize::try_from(length - start.bytes).unwrap_or(text.len());
            hash.update(&text[at..to]);
            at = to;
            digests.push((length, <[u8; 32]>::from(hash.clone().finalize())));
        }
        let found = candidates()
            .find(|(_, sent)| digests.contains(&(sent.prompt.bytes, sent.prompt.sha256)));
        let found = found.map(|(index, _)| index);
        hash.update(&text[at..]);
        (start.hash, start.bytes) = (hash, end);
        found
    }

    fn is_shown(&mut self, index: usize) {
        self.found.insert(index);
        self.next = index + 1;
    }

    fn end_message(&mut self) {
        for found in self.message.take().into_iter().flat_map(|message| message.maybe) {
            self.is_shown(found.index);
        }
    }
}

// === impl Message ===

impl Message {
    fn new(id: Option<String>) -> Self {
        Self { id, starts: Vec::new(), maybe: Vec::new(), chunks: 0, known: false }
    }

    /// Of two prompts that the same part may be, the earlier one; where nothing tells messages apart, one after the other.
    fn may_be(&mut self, found: Match) {
        while self.maybe.pop_if(|last| found.from <= last.to && found.index < last.index).is_some()
        {
        }
        let follows =
            |last: &Match| self.id.is_none() && found.from > last.to && found.index > last.index;
        if self.maybe.last().is_none_or(follows) {
            self.maybe.push(found);
        }
    }

    fn begin_at_this_chunk(&mut self) {
        if self.starts.len() == STARTS {
            // The first is kept: a prompt may have been sent in any number of blocks.
            self.starts.remove(1);
        }
        self.starts.push(Start { chunk: self.chunks, bytes: 0, hash: Sha256::new() });
        self.chunks += 1;
    }
}

#[cfg(test)]
mod tests;
