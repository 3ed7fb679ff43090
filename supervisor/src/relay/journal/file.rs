//! One journal's file: whole lines alone count.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::fcntl::{FallocateFlags, fallocate};

/// What a journal has of the disk beyond its end, so that it goes on for a while where somebody else fills the disk.
const AHEAD: u64 = 256 << 10;

/// See the module.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    length: u64,
    /// Up to here the disk's blocks are the journal's already.
    reserved: u64,
}

// === impl Journal ===

impl Journal {
    /// Opens a journal; half a last line, left by a crash, is cut off.
    ///
    /// # Errors
    /// Opening, and cutting.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file =
            OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        let length = whole_lines(&file)?;
        file.set_len(length)?;
        let mut journal = Self { file, length, reserved: 0 };
        journal.reserve(0);
        Ok(journal)
    }

    /// Bytes of whole lines.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Appends what is whole lines when put together.
    ///
    /// # Errors
    /// Writing; the journal then ends as it did before.
    pub(super) fn write(&mut self, parts: &[&[u8]]) -> io::Result<()> {
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
