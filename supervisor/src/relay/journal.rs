//! Journals: what the agent said in each of its sessions, one file a session, one `session/update` a line.
//!
//! Owns `state/journal/`. The file's name is a hash of the agent's session id, which is the agent's to choose. Only
//! whole lines count: lines that could not be written whole are cut off again. What is appended is on the way to its file
//! until [`Journals::flush`].

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{FallocateFlags, fallocate};
use sha2::{Digest as _, Sha256};

use super::outbox::Item;

/// The journals of a worker.
#[derive(Debug)]
pub struct Journals {
    directory: PathBuf,
    open: HashMap<String, Journal>,
    /// Some journal has lines that are not in its file.
    pending: bool,
}

#[derive(Debug)]
struct Journal {
    file: File,
    length: u64,
    /// What follows it and is not in the file.
    pending: Vec<u8>,
    /// Up to here the disk's blocks are the journal's already.
    reserved: u64,
}

/// What a journal has of the disk beyond its end, so that it goes on for a while where somebody else fills the disk.
const AHEAD: u64 = 256 << 10;

/// So many bytes wait for one write(2); a longer line does not.
const AT_ONCE: usize = 64 << 10;

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
        Ok(Self { directory, open: HashMap::new(), pending: false })
    }

    /// Appends one line.
    ///
    /// # Errors
    /// Opening, and where much waits, writing as [`Self::flush`].
    pub fn append(&mut self, session: &str, line: &[u8]) -> io::Result<()> {
        self.pending = true;
        let journal = self.of(session)?;
        if line.len() >= AT_ONCE / 4 {
            // Not copied once more.
            journal.flush()?;
            return journal.write(&[line, b"\n"]);
        }
        journal.pending.extend_from_slice(line);
        journal.pending.push(b'\n');
        if journal.pending.len() >= AT_ONCE { journal.flush() } else { Ok(()) }
    }

    /// Writes what was appended.
    ///
    /// # Errors
    /// Writing; a journal then ends with its last whole line of before.
    pub fn flush(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.pending) {
            return Ok(());
        }
        let mut flushed = Ok(());
        for journal in self.open.values_mut() {
            // Each, whatever becomes of the others.
            flushed = flushed.and(journal.flush());
        }
        flushed
    }

    /// Forgets a session's journal. A replay under way keeps reading the old file.
    ///
    /// # Errors
    /// unlink(2)'s.
    pub fn forget(&mut self, session: &str) -> io::Result<()> {
        self.open.remove(session);
        match fs::remove_file(self.path(session)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// What a replay has to send; `None` where nothing was ever written.
    ///
    /// # Errors
    /// Writing what waits, and opening it.
    pub fn replay(&mut self, session: &str) -> io::Result<Option<Item>> {
        self.flush()?;
        let file = match File::open(self.path(session)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let length = self.of(session)?.length;
        Ok(Some(Item::Journal { file, length }))
    }

    fn of(&mut self, session: &str) -> io::Result<&mut Journal> {
        if !self.open.contains_key(session) {
            if self.open.len() >= MOST_OPEN {
                let flushed = self.flush();
                self.open.clear();
                flushed?;
            }
            let journal = Journal::open(&self.path(session))?;
            self.open.insert(session.to_owned(), journal);
        }
        self.open.get_mut(session).ok_or_else(|| io::Error::other("the journal was just opened"))
    }

    fn path(&self, session: &str) -> PathBuf {
        self.directory.join(format!("{}.ndjson", hex(&Sha256::digest(session.as_bytes()))))
    }
}

// === impl Journal ===

impl Journal {
    /// Opens a journal; half a last line, left by a crash, is cut off.
    fn open(path: &Path) -> io::Result<Self> {
        let file =
            OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        let length = whole_lines(&file)?;
        file.set_len(length)?;
        let mut journal = Self { file, length, pending: Vec::new(), reserved: 0 };
        journal.reserve(0);
        Ok(journal)
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut pending = std::mem::take(&mut self.pending);
        let written = self.write(&[&pending]);
        pending.clear();
        self.pending = pending;
        written
    }

    /// Whole lines.
    fn write(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        let length = parts.iter().map(|part| part.len() as u64).sum();
        self.reserve(length);
        let mut slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let written = write_all(&self.file, &mut slices);
        match written {
            Ok(()) => self.length += length,
            Err(_) => self.file.set_len(self.length)?,
        }
        written
    }

    /// Takes blocks for what comes next and [`AHEAD`] more, if it can; a file system that cannot is none the worse.
    fn reserve(&mut self, next: u64) {
        let to = self.length + next + AHEAD;
        if self.length + next <= self.reserved.saturating_sub(AHEAD / 2) {
            return;
        }
        let length = i64::try_from(to).unwrap_or(i64::MAX);
        if fallocate(&self.file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, length).is_ok() {
            self.reserved = to;
        }
    }
}

/// As `Write::write_all`, for several at once.
fn write_all(mut file: &File, mut parts: &mut [IoSlice<'_>]) -> io::Result<()> {
    IoSlice::advance_slices(&mut parts, 0);
    while !parts.is_empty() {
        match file.write_vectored(parts) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(length) => IoSlice::advance_slices(&mut parts, length),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Up to and with the last line end, in bytes.
fn whole_lines(file: &File) -> io::Result<u64> {
    use std::os::unix::fs::FileExt as _;

    let mut end = file.metadata()?.len();
    let mut piece = [0; 64 * 1024];
    while end > 0 {
        let start = end.saturating_sub(piece.len() as u64);
        let length = usize::try_from(end - start).unwrap_or(piece.len());
        file.read_exact_at(&mut piece[..length], start)?;
        if let Some(at) = piece[..length].iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// Bytes in hex.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

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
        journals.append("../../s", b"one").unwrap();
        journals.append("../../s", b"two").unwrap();
        journals.flush().unwrap();
        let path = journals.path("../../s");
        assert_eq!(path.parent(), Some(dir.path().join("journal").as_path()));
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"tor").unwrap();
        let mut journals = Journals::open(dir.path()).unwrap();
        journals.append("../../s", b"three").unwrap();
        assert_eq!(replayed(&mut journals, "../../s").as_deref(), Some("one\ntwo\nthree\n"));
    }

    #[test]
    fn a_forgotten_journal_is_empty_and_an_unknown_one_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let mut journals = Journals::open(dir.path()).unwrap();
        assert_eq!(replayed(&mut journals, "s"), None);
        journals.append("s", b"old").unwrap();
        journals.forget("s").unwrap();
        journals.append("s", b"new").unwrap();
        assert_eq!(replayed(&mut journals, "s").as_deref(), Some("new\n"));
    }

    #[test]
    fn a_replay_ends_where_the_journal_ended_when_it_was_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let mut journals = Journals::open(dir.path()).unwrap();
        journals.append("s", b"a").unwrap();
        let Some(Item::Journal { file, length }) = journals.replay("s").unwrap() else { panic!() };
        journals.append("s", b"b").unwrap();
        let mut text = String::new();
        file.take(length).read_to_string(&mut text).unwrap();
        assert_eq!(text, "a\n");
    }
}
