//! The record of the prompts that were written whole to an agent, of one ACP session: lines of JSON, appended only.
//!
//! ```json
//! {"begin":true}
//! {"n":1,"sha256":"2cf24d…","bytes":5,"extent":"whole"}
//! {"refused":1}
//! {"missing":[1]}
//! ```
//!
//! `begin`: the session is new; what an earlier one of the same name was sent does not count. `n` counts from 1, without gaps.
//! `refused`: the agent answered that prompt with an error, so it need not keep it. `missing`: the user was told that these were
//! not shown. Neither is looked for again.

use serde::{Deserialize, Serialize};

use super::prompt::{Extent, Prompt};

/// One prompt of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// Its number.
    pub n: u64,
    /// What is known of it.
    pub prompt: Prompt,
}

/// What a record says, line by line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// The prompts since the session's beginning that the agent ought to have, oldest first.
    pub sent: Vec<Sent>,
    last: u64,
    begun: bool,
}

/// A line that no record has.
#[derive(Debug, thiserror::Error)]
#[error("line {line} of the record of prompts makes no sense")]
pub struct Damaged {
    line: usize,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Line {
    Sent { n: u64, sha256: String, bytes: u64, extent: Extent },
    Refused { refused: u64 },
    Missing { missing: Vec<u64> },
    Begin { begin: bool },
}

/// What is to be appended to a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// The session is new.
    Begin,
    /// A prompt was written whole.
    Sent(Prompt),
    /// The agent refused the newest prompt.
    Refused,
    /// The user was told that these were not shown.
    Missing(Vec<u64>),
}

// === impl Entry ===

impl Entry {
    /// Its line, without the line end, in a record whose newest prompt has this number (0: none yet).
    #[must_use]
    pub fn line(&self, last: u64) -> Vec<u8> {
        let line = match self {
            Self::Begin => Line::Begin { begin: true },
            Self::Sent(prompt) => Line::Sent {
                n: last + 1,
                sha256: prompt.sha256.iter().map(|byte| format!("{byte:02x}")).collect(),
                bytes: prompt.bytes,
                extent: prompt.extent,
            },
            Self::Refused => Line::Refused { refused: last },
            Self::Missing(numbers) => Line::Missing { missing: numbers.clone() },
        };
        serde_json::to_vec(&line).expect("numbers and text serialise")
    }
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(bytes)
}

// === impl Record ===

impl Record {
    /// Reads whole lines. What follows the last line end was torn by a crash and never counted.
    ///
    /// # Errors
    /// [`Damaged`]: it cannot be relied upon.
    pub fn read(text: &[u8]) -> Result<Self, Damaged> {
        let mut record = Self::default();
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        for (index, line) in text[..whole].split_inclusive(|byte| *byte == b'\n').enumerate() {
            record.take(line).ok_or(Damaged { line: index + 1 })?;
        }
        Ok(record)
    }

    /// The number of the newest prompt; 0 before the first.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Whether it tells of the session from its beginning on.
    #[must_use]
    pub fn begun(&self) -> bool {
        self.begun
    }

    fn take(&mut self, line: &[u8]) -> Option<()> {
        match serde_json::from_slice(line).ok()? {
            Line::Sent { n, sha256, bytes, extent } => {
                if n != self.last + 1 {
                    return None;
                }
                self.last = n;
                self.sent
                    .push(Sent { n, prompt: Prompt { sha256: from_hex(&sha256)?, bytes, extent } });
            }
            Line::Refused { refused } => self.forget(&[refused]),
            Line::Missing { missing } => self.forget(&missing),
            Line::Begin { .. } => {
                self.sent.clear();
                self.begun = true;
            }
        }
        Some(())
    }

    fn forget(&mut self, numbers: &[u64]) {
        self.sent.retain(|sent| !numbers.contains(&sent.n));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(text: &str) -> Prompt {
        Prompt::of(&[&serde_json::json!({"type": "text", "text": text}).to_string()])
    }

    fn sent(text: &str) -> Entry {
        Entry::Sent(prompt(text))
    }

    fn joined(entries: &[Entry]) -> Vec<u8> {
        let (mut text, mut last) = (Vec::new(), 0);
        for entry in entries {
            text.extend(entry.line(last));
            text.push(b'\n');
            last += u64::from(matches!(entry, Entry::Sent(_)));
        }
        text
    }

    #[test]
    fn what_was_written_is_read_again() {
        let text = joined(&[
            Entry::Begin,
            sent("a"),
            Entry::Refused,
            sent("b"),
            sent("c"),
            Entry::Missing(vec![3, 9]),
        ]);
        let record = Record::read(&text).unwrap();
        assert!(record.begun());
        assert_eq!(record.last(), 3);
        assert_eq!(record.sent, [Sent { n: 2, prompt: prompt("b") }]);
    }

    #[test]
    fn a_session_that_begins_anew_has_been_sent_nothing_and_counts_on() {
        let text = joined(&[Entry::Begin, sent("a"), Entry::Begin, sent("b")]);
        let record = Record::read(&text).unwrap();
        assert_eq!(record.sent.iter().map(|sent| sent.n).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn a_record_cut_anywhere_is_one_with_fewer_lines() {
        let entries = [Entry::Begin, sent("a"), Entry::Refused, sent("b")];
        let text = joined(&entries);
        for length in 0..=text.len() {
            let record = Record::read(&text[..length]).unwrap();
            let whole = text[..length].iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(record, Record::read(&joined(&entries[..whole])).unwrap());
        }
        assert!(!Record::read(b"").unwrap().begun());
    }

    #[test]
    fn damage_is_told_and_not_taken_for_less() {
        let one = String::from_utf8(sent("a").line(0)).unwrap();
        for text in [
            "\n".to_owned(),
            "{}\n".to_owned(),
            "\0\0\0\0\n".to_owned(),
            format!("{one}\n{one}\n"),
            format!("{}\n", one.replace("\"n\":1", "\"n\":2")),
            format!("{}\n", one.replace("\"sha256\":\"", "\"sha256\":\"zz")),
            format!("{}\n", one.replace("whole", "half")),
        ] {
            assert!(Record::read(text.as_bytes()).is_err(), "{text}");
        }
    }
}
