//! Records of prompts: what of the user's was written whole to an agent, one file an ACP session, over all generations.
//!
//! Owns `state/prompts/`, where no agent can write. Lines are appended and never changed ([`record`]). They are not flushed: they
//! outlive every process, and a machine that lost its power has at worst a record that ends early, which asks for less. A last
//! line that is not whole is cut off; a record that makes no sense is put aside, and there is none then.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use casemate_protocol::acp::continuity::record::{Entry, Record};
use sha2::{Digest as _, Sha256};

use super::journal::hex;

/// The records of a session of casemate's.
#[derive(Debug)]
pub struct Prompts {
    directory: PathBuf,
    open: HashMap<String, Open>,
}

#[derive(Debug)]
struct Open {
    file: File,
    length: u64,
    /// The number of the newest prompt.
    last: u64,
}

/// Kept open at once, as journals are.
const MOST_OPEN: usize = 16;

// === impl Prompts ===

impl Prompts {
    /// The records below `state`.
    ///
    /// # Errors
    /// Making the directory.
    pub fn open(state: &Path) -> io::Result<Self> {
        let directory = state.join("prompts");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        Ok(Self { directory, open: HashMap::new() })
    }

    /// Appends to a session's record. What cannot be written is in the log: the record asks for less then.
    pub fn append(&mut self, session: &str, entry: &Entry) {
        if let Err(error) = self.try_append(session, entry) {
            tracing::error!(%error, "the record of prompts lacks a line: check the volume's space");
        }
    }

    /// What is recorded of a session; `None` where that is not known from its beginning on.
    pub fn recall(&mut self, session: &str) -> Option<Record> {
        let path = self.path(session);
        let read = || -> io::Result<Option<Record>> {
            let bytes = match fs::read(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                bytes => bytes?,
            };
            Record::read(&bytes).map(Some).map_err(io::Error::other)
        };
        match read() {
            Ok(record) => record.filter(Record::begun),
            Err(error) => {
                tracing::error!(%error, "a record of prompts cannot be read and is put aside");
                self.open.remove(session);
                if let Err(error) = fs::rename(&path, path.with_extension("damaged")) {
                    tracing::error!(%error, "it stays where it is");
                }
                None
            }
        }
    }

    fn try_append(&mut self, session: &str, entry: &Entry) -> io::Result<()> {
        if !self.open.contains_key(session) {
            if self.open.len() >= MOST_OPEN {
                self.open.clear();
            }
            let open = Open::new(&self.path(session))?;
            self.open.insert(session.to_owned(), open);
        }
        let open =
            self.open.get_mut(session).ok_or_else(|| io::Error::other("it was just opened"))?;
        open.append(entry)
    }

    fn path(&self, session: &str) -> PathBuf {
        self.directory.join(format!("{}.ndjson", hex(&Sha256::digest(session.as_bytes()))))
    }
}

// === impl Open ===

impl Open {
    fn new(path: &Path) -> io::Result<Self> {
        let mut file =
            OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let last = Record::read(&bytes).map_err(io::Error::other)?.last();
        let length = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at as u64 + 1);
        file.set_len(length)?;
        Ok(Self { file, length, last })
    }

    fn append(&mut self, entry: &Entry) -> io::Result<()> {
        let mut line = entry.line(self.last);
        line.push(b'\n');
        if let Err(error) = self.file.write_all(&line) {
            self.file.set_len(self.length)?;
            return Err(error);
        }
        self.length += line.len() as u64;
        self.last += u64::from(matches!(entry, Entry::Sent(_)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use casemate_protocol::acp::continuity::prompt::Prompt;

    use super::*;

    fn sent(text: &str) -> Entry {
        let block = serde_json::json!({"type": "text", "text": text}).to_string();
        Entry::Sent(Prompt::of(&[&block]))
    }

    fn numbers(record: &Record) -> Vec<u64> {
        record.sent.iter().map(|sent| sent.n).collect()
    }

    #[test]
    fn numbers_go_on_in_the_next_generation_also_after_a_torn_line() {
        let dir = tempfile::tempdir().unwrap();
        let mut prompts = Prompts::open(dir.path()).unwrap();
        assert_eq!(prompts.recall("../s"), None);
        for entry in [Entry::Begin, sent("a"), sent("b")] {
            prompts.append("../s", &entry);
        }
        assert_eq!(numbers(&prompts.recall("../s").unwrap()), [1, 2]);
        let path = prompts.path("../s");
        let mut torn = OpenOptions::new().append(true).open(&path).unwrap();
        torn.write_all(br#"{"n":3,"sha2"#).unwrap();

        let mut next = Prompts::open(dir.path()).unwrap();
        assert_eq!(numbers(&next.recall("../s").unwrap()), [1, 2]);
        next.append("../s", &sent("c"));
        assert_eq!(numbers(&next.recall("../s").unwrap()), [1, 2, 3]);
        assert_eq!(next.recall("t"), None);
    }

    #[test]
    fn a_damaged_record_is_none_and_one_begins_anew() {
        let dir = tempfile::tempdir().unwrap();
        let mut prompts = Prompts::open(dir.path()).unwrap();
        prompts.append("s", &Entry::Begin);
        prompts.append("s", &sent("a"));
        let path = prompts.path("s");
        let text = fs::read_to_string(&path).unwrap().replace("\"n\":1", "\"n\":7");
        fs::write(&path, text).unwrap();
        assert_eq!(prompts.recall("s"), None);
        assert!(path.with_extension("damaged").exists());
        prompts.append("s", &Entry::Begin);
        assert_eq!(numbers(&prompts.recall("s").unwrap()), [0u64; 0]);
    }

    #[test]
    fn a_record_that_does_not_begin_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let mut prompts = Prompts::open(dir.path()).unwrap();
        prompts.append("s", &sent("a"));
        assert_eq!(prompts.recall("s"), None);
    }
}
