//! The reader of a log, while it is written or long after.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use casemate_protocol::audit::{Head, Report, Verifier};

use crate::log::{LONGEST_LINE, end_of, read_only};
use crate::{FILE, FILE_BEFORE};

/// A rotation between two openings is met at most so often.
const TRIES: u32 = 3;

/// What is in the place of a log.
#[derive(Debug)]
pub struct Found {
    files: Vec<File>,
}

// === impl Found ===

impl Found {
    /// The log in a directory, oldest file first; no files where there is none.
    ///
    /// # Errors
    /// The directory's and the files' own.
    pub fn in_directory(path: &Path) -> io::Result<Self> {
        let directory = OwnedFd::from(File::open(path)?);
        for _ in 0..TRIES {
            let current = read_only(&directory, FILE)?;
            let before = read_only(&directory, FILE_BEFORE)?;
            let again = read_only(&directory, FILE)?;
            let number = |file: &Option<File>| -> io::Result<Option<u64>> {
                file.as_ref().map(|file| file.metadata().map(|meta| meta.ino())).transpose()
            };
            if number(&current)? == number(&again)? {
                return Ok(Self { files: before.into_iter().chain(current).collect() });
            }
        }
        Err(io::Error::other("the log is rotated faster than it can be read"))
    }

    /// One file, wherever it is.
    ///
    /// # Errors
    /// open(2)'s.
    pub fn file(path: &Path) -> io::Result<Self> {
        Ok(Self { files: vec![File::open(path)?] })
    }

    /// No log.
    #[must_use]
    pub fn nothing() -> Self {
        Self { files: Vec::new() }
    }

    /// There is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

/// Checks a log against itself and the heads that were kept elsewhere.
///
/// # Errors
/// Reading.
pub fn verify(found: Found, anchors: impl IntoIterator<Item = Head>) -> io::Result<Report> {
    let mut verifier = Verifier::new(anchors);
    let torn = each(found, |line| verifier.line(line))?;
    Ok(verifier.finish(torn))
}

/// All whole lines, oldest first, without their line ends.
///
/// # Errors
/// Reading.
pub fn lines(found: Found) -> io::Result<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    each(found, |line| all.push(line.to_vec()))?;
    Ok(all)
}

/// The newest whole line's head, where it holds: for whoever anchors a log whose writer is gone.
///
/// # Errors
/// Reading.
pub fn newest(directory: &Path) -> io::Result<Option<Head>> {
    let found = Found::in_directory(directory)?;
    // A new file may not have its first line yet.
    let heads = found.files.iter().rev().filter_map(|file| end_of(file).ok());
    Ok(heads.map(|(head, _)| head).find(|head| head.seq > 0))
}

/// Bytes behind the last line end of the last file. In an older file they are a line that does not hold.
fn each(found: Found, mut take: impl FnMut(&[u8])) -> io::Result<u64> {
    let mut torn = 0;
    let last = found.files.len().saturating_sub(1);
    for (at, file) in found.files.into_iter().enumerate() {
        let mut reader = BufReader::new(file);
        let mut line = Vec::new();
        loop {
            line.clear();
            (&mut reader).take(LONGEST_LINE).read_until(b'\n', &mut line)?;
            match line.split_last() {
                None => break,
                Some((b'\n', whole)) => take(whole),
                // Longer than any line of ours, or the rest of an older file.
                Some(_) if at < last || line.len() as u64 == LONGEST_LINE => take(&line),
                Some(_) => torn = line.len() as u64,
            }
        }
    }
    Ok(torn)
}
