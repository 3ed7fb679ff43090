//! One line of the chain: how it is sealed, and how a sealed one is read.
//!
//! The hash is SHA-256 over every byte of the line before `,"hash":"`; `prev` is the hash of the line before, 64 zeros in
//! a log's first line. Both are the last members of `unmapped`, which is the last member of the object, so that a reader
//! needs no JSON parser to check a line, and no byte of it is outside the hash.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

const HASH_KEY: &str = ",\"hash\":\"";
const PREV_KEY: &str = ",\"prev\":\"";
const SEQ_KEY: &str = "\"seq\":";
const END: &str = "\"}}";

/// SHA-256 of a line.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hash([u8; 32]);

/// The newest line of a chain: whoever keeps it elsewhere finds out later whether the log was cut or written anew.
/// As text `SEQ:HASH`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Head {
    /// The line's number, from 1.
    pub seq: u64,
    /// Its hash.
    pub hash: Hash,
}

/// Text that is no head or hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write SEQ:HASH, a number from 1 and 64 digits of 0-9a-f")]
pub struct InvalidHead;

/// What the chain needs to know of a whole line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// Its number and its own hash.
    pub head: Head,
    /// The hash that it names as the one before it.
    pub prev: Hash,
}

// === impl Hash ===

impl Hash {
    /// What a log's first line names as the one before it.
    pub const ZERO: Self = Self([0; 32]);

    fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Exactly 64 lower-case hex digits: one text a hash, so that no byte of a line is free.
    fn parse(text: &[u8]) -> Option<Self> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        if text.len() != 64 {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl TryFrom<String> for Hash {
    type Error = InvalidHead;

    fn try_from(text: String) -> Result<Self, InvalidHead> {
        Self::parse(text.as_bytes()).ok_or(InvalidHead)
    }
}

impl From<Hash> for String {
    fn from(hash: Hash) -> Self {
        hash.to_string()
    }
}

// === impl Head ===

impl Head {
    /// Of a log without a line.
    pub const NONE: Self = Self { seq: 0, hash: Hash::ZERO };
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seq, self.hash)
    }
}

impl FromStr for Head {
    type Err = InvalidHead;

    fn from_str(text: &str) -> Result<Self, InvalidHead> {
        let (seq, hash) = text.split_once(':').ok_or(InvalidHead)?;
        let seq = number(seq.as_bytes()).filter(|seq| *seq > 0).ok_or(InvalidHead)?;
        Ok(Self { seq, hash: Hash::parse(hash.as_bytes()).ok_or(InvalidHead)? })
    }
}

// === impl Line ===

impl Line {
    /// Seals an event as the line after `last`. Returns the line's bytes, with its line end, and the new head.
    ///
    /// `event` is the object without `unmapped`, `unmapped` what else there is to say.
    #[must_use]
    pub fn seal(
        last: Head,
        event: &Map<String, Value>,
        unmapped: &Map<String, Value>,
    ) -> (Vec<u8>, Head) {
        let mut text = open_object(event);
        text += "\"unmapped\":";
        text += &open_object(unmapped);
        let seq = last.seq + 1;
        text += &format!("{SEQ_KEY}{seq}{PREV_KEY}{}\"", last.hash);
        let hash = Hash::of(text.as_bytes());
        text += &format!("{HASH_KEY}{hash}{END}\n");
        (text.into_bytes(), Head { seq, hash })
    }

    /// Reads a line, without its line end. `None` where it is not what [`Line::seal`] made, to the last bit.
    #[must_use]
    pub fn read(line: &[u8]) -> Option<Self> {
        let (sealed, hash) = last_string(line.strip_suffix(END.as_bytes())?, HASH_KEY)?;
        if Hash::of(sealed) != hash {
            return None;
        }
        let (rest, prev) = last_string(sealed.strip_suffix(b"\"")?, PREV_KEY)?;
        let at = rest.iter().rposition(|byte| *byte == b':')?;
        let seq = number(rest.get(at + 1..)?)?;
        rest.get(..=at)?.ends_with(SEQ_KEY.as_bytes()).then_some(())?;
        Some(Self { head: Head { seq, hash }, prev })
    }
}

/// An object's text, ready for one more member.
fn open_object(map: &Map<String, Value>) -> String {
    let mut text = Value::Object(map.clone()).to_string();
    text.pop();
    if !map.is_empty() {
        text.push(',');
    }
    text
}

/// Splits `…KEY<64 digits>`.
fn last_string<'a>(text: &'a [u8], key: &str) -> Option<(&'a [u8], Hash)> {
    let (rest, hash) = text.split_at_checked(text.len().checked_sub(64)?)?;
    Some((rest.strip_suffix(key.as_bytes())?, Hash::parse(hash)?))
}

/// A number as it is written: no sign, no leading zero.
fn number(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}
