//! What is kept for a client and does not fit in memory: files of whole messages, first in, first out.
//!
//! Owns the files of its attachment in `state/spool`; they go with it. A file is removed as soon as it is read to its end.

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// A file that is longer than this is followed by another.
const LONG: u64 = 16 * 1024 * 1024;
/// Before each message: its length, 4 bytes, big-endian.
const HEAD: u64 = 4;

/// See the module.
#[derive(Debug)]
pub struct Spool {
    directory: PathBuf,
    epoch: u64,
    /// The first and the last file; the same where there is one.
    first: u64,
    last: u64,
    reader: Option<File>,
    read: u64,
    writer: Option<File>,
    written: u64,
    /// Where the files before the last one end: what is behind is left of a message that could not be written.
    ends: VecDeque<u64>,
    bytes: u64,
}

// === impl Spool ===

impl Spool {
    /// An empty one of this attachment in a directory that is made when it is needed.
    #[must_use]
    pub fn new(directory: PathBuf, epoch: u64) -> Self {
        Self {
            directory,
            epoch,
            first: 0,
            last: 0,
            reader: None,
            read: 0,
            writer: None,
            written: 0,
            ends: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Removes what a worker left in the directory that was killed.
    ///
    /// # Errors
    /// Reading it and removing.
    pub fn clear(directory: &Path) -> io::Result<()> {
        match fs::read_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            files => files?.try_for_each(|file| fs::remove_file(file?.path())),
        }
    }

    /// Appends a message.
    ///
    /// # Errors
    /// Opening and writing; it is then as before.
    pub fn append(&mut self, message: &[u8]) -> io::Result<()> {
        let length = u32::try_from(message.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        if self.written >= LONG {
            self.writer = None;
        }
        let writer = match &self.writer {
            Some(writer) => writer,
            None => {
                DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
                let number = if self.written == 0 { self.last } else { self.last + 1 };
                let file = OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(self.path(number))?;
                if number > self.last {
                    self.ends.push_back(self.written);
                }
                (self.last, self.written) = (number, 0);
                self.writer.insert(file)
            }
        };
        let mut record = Vec::with_capacity(message.len() + 4);
        record.extend(length.to_be_bytes());
        record.extend_from_slice(message);
        // At a place: what a failure leaves behind is written over, or lies behind the end that is remembered.
        writer.write_all_at(&record, self.written)?;
        self.written += record.len() as u64;
        self.bytes += record.len() as u64;
        Ok(())
    }

    /// Takes the oldest message out; `None` where there is none.
    ///
    /// # Errors
    /// Opening and reading.
    pub fn pop(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.bytes == 0 {
            return Ok(None);
        }
        let reader = match &self.reader {
            Some(reader) => reader,
            None => {
                self.read = 0;
                self.reader.insert(File::open(self.path(self.first))?)
            }
        };
        let mut head = [0; 4];
        reader.read_exact_at(&mut head, self.read)?;
        let length = u32::from_be_bytes(head);
        let mut message = vec![0; length as usize];
        reader.read_exact_at(&mut message, self.read + HEAD)?;
        self.read += HEAD + u64::from(length);
        self.bytes -= HEAD + u64::from(length);
        let finished = if self.first == self.last {
            self.bytes == 0
        } else {
            Some(&self.read) == self.ends.front()
        };
        if finished {
            fs::remove_file(self.path(self.first))?;
            self.reader = None;
            self.ends.pop_front();
            self.first += 1;
            // A newer file may be there of which nothing could be written: that one is gone on with.
            if self.last < self.first {
                (self.writer, self.written, self.last) = (None, 0, self.first);
            }
        }
        Ok(Some(message))
    }

    /// How much lies in it.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{}-{number}", self.epoch))
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        for number in self.first..=self.last {
            match fs::remove_file(self.path(number)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(%error, "what was kept for a client could not be removed");
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_in_order_and_files_go_as_they_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("spool");
        let mut spool = Spool::new(place.clone(), 1);
        let message = |number: usize| vec![u8::try_from(number).unwrap(); 3 << 20];
        let files = || fs::read_dir(&place).map_or(0, Iterator::count);
        for number in 0..12 {
            spool.append(&message(number)).unwrap();
        }
        assert_eq!(files(), 2);
        for number in 0..7 {
            assert_eq!(spool.pop().unwrap(), Some(message(number)));
        }
        assert_eq!(files(), 1);
        spool.append(b"").unwrap();
        for number in 7..12 {
            assert_eq!(spool.pop().unwrap(), Some(message(number)));
        }
        assert_eq!(spool.pop().unwrap(), Some(Vec::new()));
        assert_eq!((spool.pop().unwrap(), spool.bytes(), files()), (None, 0, 0));
        spool.append(b"again").unwrap();
        assert_eq!(spool.pop().unwrap(), Some(b"again".to_vec()));
        spool.append(b"left").unwrap();
        drop(spool);
        assert_eq!(files(), 0);
        fs::write(place.join("1-0"), b"of a killed worker").unwrap();
        Spool::clear(&place).unwrap();
        assert_eq!(files(), 0);
    }

    #[test]
    fn what_a_failed_write_left_is_no_message_wherever_a_file_ends() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::new(dir.path().to_owned(), 1);
        let message = vec![7; usize::try_from(LONG).unwrap()];
        for round in 0..3 {
            spool.append(&message).unwrap();
            // As a write that was cut short by a full disk, after which another message was the next.
            let mut file = OpenOptions::new().append(true).open(spool.path(round)).unwrap();
            io::Write::write_all(&mut file, &[0xff; 100]).unwrap();
        }
        spool.append(b"last").unwrap();
        for _ in 0..3 {
            assert!(spool.pop().unwrap().as_ref() == Some(&message));
        }
        assert_eq!(spool.pop().unwrap(), Some(b"last".to_vec()));
        assert_eq!(spool.pop().unwrap(), None);
    }

    #[test]
    fn a_file_of_which_nothing_could_be_written_is_gone_on_with() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::new(dir.path().to_owned(), 1);
        let message = vec![7; usize::try_from(LONG).unwrap()];
        spool.append(&message).unwrap();
        // The next file is made, and the disk is full.
        spool.ends.push_back(spool.written);
        (spool.last, spool.written) = (1, 0);
        let next = File::create_new(spool.path(1)).unwrap();
        spool.writer = Some(OpenOptions::new().write(true).open("/dev/full").unwrap());
        let full = spool.append(b"lost").unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        spool.writer = Some(next);
        assert!(spool.pop().unwrap() == Some(message));
        for _ in 0..2 {
            spool.append(b"next").unwrap();
            assert_eq!(spool.pop().unwrap(), Some(b"next".to_vec()));
            assert_eq!(spool.pop().unwrap(), None);
        }
    }
}
