//! Lines in, a verdict out: what of a log was changed, is missing, or stands where it does not belong.
//!
//! Every fault names a line, counted from 1 over all files of the log, or the numbers that lines carry themselves (`seq`).

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::line::{Hash, Head, Line};

/// The member of `unmapped` by which a rotation says up to which number lines were dropped.
pub(super) const DROPPED: &str = "dropped_through";

/// One thing that is wrong with a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "fault", rename_all = "kebab-case")]
pub enum Fault {
    /// The line is not what was written: its bytes do not give the hash that it carries.
    Changed {
        /// Where it stands.
        line: u64,
    },
    /// The line holds in itself, but the next one was written after another.
    Replaced {
        /// Where it stands.
        line: u64,
    },
    /// Lines are not there.
    Missing {
        /// The line before which they should stand.
        line: u64,
        /// The first number that is missing.
        from: u64,
        /// The last one.
        through: u64,
    },
    /// The line was there before, or belongs further up.
    OutOfPlace {
        /// Where it stands.
        line: u64,
        /// Its number.
        seq: u64,
    },
    /// The log begins late, and no rotation dropped what came before.
    Beheaded {
        /// The number of its first line.
        first: u64,
    },
    /// The end is not there.
    Cut {
        /// The number of the last line that is.
        last: u64,
        /// The number of the line that was seen at the end once.
        anchored: u64,
    },
    /// The line with this number is another one than was seen once: the log was written anew from there or before.
    Rewritten {
        /// The number.
        seq: u64,
    },
}

/// What is known of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Whole lines.
    pub lines: u64,
    /// The number of the first that holds; 0: none.
    pub first: u64,
    /// The newest line that holds.
    pub head: Head,
    /// Bytes of a last line without a line end: a writer that was killed, or a full disk, leaves one. Not a fault: the
    /// next start takes it away and says so in the log.
    pub torn_bytes: u64,
    /// How many kept heads were compared with.
    pub anchors: u64,
    /// What is wrong, in the order of the lines.
    pub faults: Vec<Fault>,
}

/// Takes a log line by line.
#[derive(Debug)]
pub struct Verifier {
    anchors: BTreeMap<u64, Vec<Hash>>,
    compared: u64,
    line: u64,
    /// The number of the first line that holds; 0: none so far.
    first: u64,
    /// The number that the log begins with, where lines before `first` that do not hold stand for its predecessors.
    begins: u64,
    last: Head,
    /// Lines since `last` that do not hold.
    bad: u64,
    dropped: Vec<u64>,
    faults: Vec<Fault>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed { line } => write!(f, "line {line} was changed"),
            Self::Replaced { line } => {
                write!(f, "line {line} was replaced: the line after it was written after another")
            }
            Self::Missing { line, from, through } if from == through => {
                write!(f, "before line {line}: number {from} is missing")
            }
            Self::Missing { line, from, through } => {
                write!(f, "before line {line}: numbers {from} to {through} are missing")
            }
            Self::OutOfPlace { line, seq } => {
                write!(f, "line {line} (number {seq}) is out of place: repeated or moved")
            }
            Self::Beheaded { first } => {
                write!(
                    f,
                    "the log begins with number {first}, and no rotation dropped the ones before"
                )
            }
            Self::Cut { last, anchored } => {
                write!(
                    f,
                    "the end was cut off: number {anchored} was there once, the log ends with {last}"
                )
            }
            Self::Rewritten { seq } => {
                write!(
                    f,
                    "number {seq} is not the line that was there once: the log was written anew"
                )
            }
        }
    }
}

// === impl Report ===

impl Report {
    /// Nothing is wrong.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.faults.is_empty()
    }
}

// === impl Verifier ===

impl Verifier {
    /// A verifier that compares with heads that were kept elsewhere.
    #[must_use]
    pub fn new(anchors: impl IntoIterator<Item = Head>) -> Self {
        let mut by_seq: BTreeMap<u64, Vec<Hash>> = BTreeMap::new();
        let mut compared = 0;
        for head in anchors.into_iter().filter(|head| head.seq > 0) {
            by_seq.entry(head.seq).or_default().push(head.hash);
            compared += 1;
        }
        Self {
            anchors: by_seq,
            compared,
            line: 0,
            first: 0,
            begins: 0,
            last: Head::NONE,
            bad: 0,
            dropped: Vec::new(),
            faults: Vec::new(),
        }
    }

    /// The next line, without its line end.
    pub fn line(&mut self, bytes: &[u8]) {
        self.line += 1;
        let Some(line) = Line::read(bytes) else {
            self.faults.push(Fault::Changed { line: self.line });
            self.bad += 1;
            return;
        };
        if self.first == 0 {
            self.begin(line);
        } else if line.head.seq <= self.last.seq {
            self.faults.push(Fault::OutOfPlace { line: self.line, seq: line.head.seq });
            return;
        } else {
            self.follow(line);
        }
        self.last = line.head;
        self.bad = 0;
        if let Some(hashes) = self.anchors.get(&line.head.seq)
            && hashes.iter().any(|hash| *hash != line.head.hash)
        {
            self.faults.push(Fault::Rewritten { seq: line.head.seq });
        }
        self.dropped.extend(dropped_through(bytes));
    }

    /// The first line that holds. Lines before it that do not took its predecessors' places.
    fn begin(&mut self, line: Line) {
        self.first = line.head.seq;
        self.begins = line.head.seq.saturating_sub(self.bad).max(1);
        if line.head.seq == 1 && line.prev != Hash::ZERO {
            self.faults.push(Fault::Replaced { line: self.line });
        }
    }

    fn follow(&mut self, line: Line) {
        let (wanted, seq) = (self.last.seq + 1, line.head.seq);
        // Lines that do not hold stand for as many numbers, at most.
        let through = seq - 1 - self.bad.min(seq - wanted);
        if through >= wanted {
            let line = self.line - self.bad;
            self.faults.push(Fault::Missing { line, from: wanted, through });
        }
        if seq == wanted && line.prev != self.last.hash {
            self.faults.push(Fault::Replaced { line: self.line - 1 - self.bad });
        }
    }

    /// The end: `torn_bytes` follow the last line end.
    #[must_use]
    pub fn finish(mut self, torn_bytes: u64) -> Report {
        if self.begins > 1 && !self.dropped.contains(&(self.begins - 1)) {
            self.faults.insert(0, Fault::Beheaded { first: self.begins });
        }
        let last = self.last.seq + self.bad;
        if let Some((&anchored, _)) = self.anchors.last_key_value()
            && anchored > last
        {
            self.faults.push(Fault::Cut { last, anchored });
        }
        Report {
            lines: self.line,
            first: self.first,
            head: self.last,
            torn_bytes,
            anchors: self.compared,
            faults: self.faults,
        }
    }
}

fn dropped_through(bytes: &[u8]) -> Option<u64> {
    // Most lines are spared the parser; quotes within a string are escaped, so this finds the member alone.
    memchr::memmem::find(bytes, format!("\"{DROPPED}\":").as_bytes())?;
    let value: Value = serde_json::from_slice(bytes).ok()?;
    value.get("unmapped")?.get(DROPPED)?.as_u64()
}
