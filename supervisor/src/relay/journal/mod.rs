//! Journals: what the agent said in each of its sessions, one file a session, one `session/update` a line.
//!
//! Owns `state/journal/`. The file's name is a hash of the agent's session id, which is the agent's to choose. Only
//! whole lines count: lines that could not be written whole are cut off again. What is appended is on the way to its file
//! until [`Journals::begin`] has begun to write it, and [`Journals::is_writing`] is over.

mod file;
mod writer;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sha2::{Digest as _, Sha256};
use tokio::sync::Notify;

use super::outbox::Item;
use file::Journal;
use writer::{Done, Errand, Writer};

/// What a client is told whose replay cannot be read.
pub const UNREADABLE: &str = "the conversation's past cannot be read: attach anew";

/// The journals of a worker.
#[derive(Debug)]
pub struct Journals {
    directory: PathBuf,
    open: BTreeMap<String, Open>,
    /// Some journal has lines that are not in its file.
    pending: bool,
    writer: Writer,
}

#[derive(Debug)]
struct Open {
    /// `None` while it is being written to.
    journal: Option<Journal>,
    /// What follows it and is not in the file: long lines as they came, and short ones behind them.
    long: Vec<Bytes>,
    short: BytesMut,
    bytes: usize,
}

/// More than so much at once is written while the relay goes on.
const MUCH: usize = 32 << 10;

/// A line of so many bytes is not copied to others.
const LONG: usize = 16 << 10;

/// Journals kept open at once; agents make few sessions, but nothing stops one that makes many.
const MOST_OPEN: usize = 16;

// === impl Journals ===

impl Journals {
    /// The journals below `state`.
    ///
    /// # Errors
    /// Making the directory.
    pub fn open(state: &Path) -> io::Result<Self> {
        let directory = state.join("journal");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        Ok(Self { directory, open: BTreeMap::new(), pending: false, writer: Writer::default() })
    }

    /// Appends one line.
    ///
    /// # Errors
    /// Opening.
    pub fn append(&mut self, session: &str, line: &Bytes) -> io::Result<()> {
        self.of(session)?.push(line);
        self.pending = true;
        Ok(())
    }

    /// Something was appended that nobody has begun to write.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.pending
    }

    /// Begins to write what was appended, after all that is being written. Little is written at once.
    ///
    /// # Errors
    /// Writing, also what was begun before; a journal then ends with its last whole line of before.
    pub fn begin(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.pending) {
            return Ok(());
        }
        let mut written = self.wait();
        for (session, open) in &mut self.open {
            if open.bytes == 0 {
                continue;
            }
            let much = open.bytes > MUCH;
            let (journal, parts) = (open.journal.take(), open.take());
            let Some(journal) = journal else {
                written = written.and(Err(io::Error::other("the thread that writes is gone")));
                continue;
            };
            let errand = Errand { session: session.clone(), journal, parts };
            // One at a time; the agent seldom speaks in two sessions at once.
            let done = match much && !self.writer.is_busy() {
                true => self.writer.begin(errand),
                false => Some(errand.run()),
            };
            if let Some(done) = done {
                open.journal = Some(done.journal);
                written = written.and(done.written);
            }
        }
        written
    }

    /// Something is being written.
    #[must_use]
    pub fn is_writing(&self) -> bool {
        self.writer.is_busy()
    }

    /// Notified when it has been.
    #[must_use]
    pub fn written(&self) -> Arc<Notify> {
        self.writer.done()
    }

    /// Takes note of what has been written, where it has; else nothing.
    ///
    /// # Errors
    /// Writing.
    pub fn look(&mut self) -> io::Result<()> {
        let done = self.writer.ready();
        self.note(done)
    }

    /// Waits for what is being written.
    ///
    /// # Errors
    /// Writing.
    pub fn wait(&mut self) -> io::Result<()> {
        let done = self.writer.wait();
        self.note(done)
    }

    /// Writes what was appended, and waits for it.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn flush(&mut self) -> io::Result<()> {
        let begun = self.begin();
        begun.and(self.wait())
    }

    fn note(&mut self, done: Option<Done>) -> io::Result<()> {
        let Some(Done { session, journal, written }) = done else { return Ok(()) };
        if let Some(open) = self.open.get_mut(&session) {
            open.journal = Some(journal);
        }
        written
    }

    /// Forgets a session's journal. A replay under way keeps reading the old file.
    ///
    /// # Errors
    /// unlink(2)'s, and writing what others lack.
    pub fn forget(&mut self, session: &str) -> io::Result<()> {
        let flushed = self.flush();
        self.open.remove(session);
        match fs::remove_file(self.path(session)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => flushed,
        }
    }

    /// What a replay has to send; `None` where nothing was ever written. What could not be written is not in it.
    ///
    /// # Errors
    /// Opening it.
    pub fn replay(&mut self, session: &str) -> io::Result<Option<Item>> {
        if let Err(error) = self.flush() {
            tracing::error!(%error, "the journal lacks lines: check the volume's space");
        }
        let file = match File::open(self.path(session)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let length = self.of(session)?.journal.as_ref().map_or(0, Journal::length);
        Ok(Some(Item::Journal { file, length }))
    }

    fn of(&mut self, session: &str) -> io::Result<&mut Open> {
        if !self.open.contains_key(session) {
            if self.open.len() >= MOST_OPEN {
                let flushed = self.flush();
                self.open.clear();
                flushed?;
            }
            let open = Open::new(Journal::open(&self.path(session))?);
            self.open.insert(session.to_owned(), open);
        }
        self.open.get_mut(session).ok_or_else(|| io::Error::other("the journal was just opened"))
    }

    fn path(&self, session: &str) -> PathBuf {
        self.directory.join(format!("{}.ndjson", hex(&Sha256::digest(session.as_bytes()))))
    }
}

// === impl Open ===

impl Open {
    fn new(journal: Journal) -> Self {
        Self { journal: Some(journal), long: Vec::new(), short: BytesMut::new(), bytes: 0 }
    }

    fn push(&mut self, line: &Bytes) {
        self.bytes += line.len() + 1;
        if line.len() < LONG {
            self.short.extend_from_slice(line);
        } else {
            self.close();
            self.long.push(line.clone());
        }
        self.short.extend_from_slice(b"\n");
    }

    fn close(&mut self) {
        if !self.short.is_empty() {
            self.long.push(self.short.split().freeze());
        }
    }

    /// What is not in the file.
    fn take(&mut self) -> Vec<Bytes> {
        self.close();
        self.bytes = 0;
        std::mem::take(&mut self.long)
    }
}

/// Bytes in hex.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::{Read as _, Write as _};

    use super::*;

    fn replayed(journals: &mut Journals, session: &str) -> Option<String> {
        let Some(Item::Journal { file, length }) = journals.replay(session).unwrap() else {
            return None;
        };
        let mut text = String::new();
        file.take(length).read_to_string(&mut text).unwrap();
        Some(text)
    }

    #[test]
    fn lines_come_back_in_order_also_after_a_restart_and_without_a_torn_last_line() {
        let dir = tempfile::tempdir().unwrap();
        let mut journals = Journals::open(dir.path()).unwrap();
        journals.append("../../s", &Bytes::from_static(b"one")).unwrap();
        journals.append("../../s", &Bytes::from_static(b"two")).unwrap();
        journals.flush().unwrap();
        let path = journals.path("../../s");
        assert_eq!(path.parent(), Some(dir.path().join("journal").as_path()));
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"tor").unwrap();
        let mut journals = Journals::open(dir.path()).unwrap();
        journals.append("../../s", &Bytes::from_static(b"three")).unwrap();
        assert_eq!(replayed(&mut journals, "../../s").as_deref(), Some("one\ntwo\nthree\n"));
    }

    #[test]
    fn a_forgotten_journal_is_empty_and_an_unknown_one_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let mut journals = Journals::open(dir.path()).unwrap();
        assert_eq!(replayed(&mut journals, "s"), None);
        journals.append("s", &Bytes::from_static(b"old")).unwrap();
        journals.forget("s").unwrap();
        journals.append("s", &Bytes::from_static(b"new")).unwrap();
        assert_eq!(replayed(&mut journals, "s").as_deref(), Some("new\n"));
    }

    #[test]
    fn much_is_written_beside_and_a_replay_has_all_of_it_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let mut journals = Journals::open(dir.path()).unwrap();
        let mut all = String::new();
        for round in 0..50 {
            for (session, length) in [("a", 1000), ("a", LONG), ("b", 10), ("a", 3), ("b", MUCH)] {
                let line = format!("{round} {}", "x".repeat(length));
                journals.append(session, &line.clone().into()).unwrap();
                if session == "a" {
                    all.push_str(&line);
                    all.push('\n');
                }
            }
            journals.begin().unwrap();
            assert!(journals.is_writing() && !journals.is_pending());
            if round % 3 == 0 {
                while journals.is_writing() {
                    journals.look().unwrap();
                }
            }
        }
        assert!(replayed(&mut journals, "a") == Some(all));
        assert!(!journals.is_writing());
    }

    #[test]
    fn a_replay_ends_where_the_journal_ended_when_it_was_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let mut journals = Journals::open(dir.path()).unwrap();
        journals.append("s", &Bytes::from_static(b"a")).unwrap();
        let Some(Item::Journal { file, length }) = journals.replay("s").unwrap() else { panic!() };
        journals.append("s", &Bytes::from_static(b"b")).unwrap();
        let mut text = String::new();
        file.take(length).read_to_string(&mut text).unwrap();
        assert_eq!(text, "a\n");
    }
}
