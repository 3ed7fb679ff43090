//! The agent's stderr: `state/agent-stderr.log`, capped, and a short tail for errors.
//!
//! Owns the log file. Two files at most: the current one and `.1`; together never more than twice the cap.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Size at which the log is turned, in bytes.
const CAP: u64 = 4 * 1024 * 1024;
/// Size of the tail kept in memory, in bytes.
const TAIL: usize = 2048;

/// A capped log with a tail.
#[derive(Debug)]
pub struct StderrLog {
    path: PathBuf,
    file: Option<File>,
    size: u64,
    cap: u64,
    tail: VecDeque<u8>,
}

// === impl StderrLog ===

impl StderrLog {
    /// Opens the log; where it cannot be opened the tail works all the same.
    #[must_use]
    pub fn open(path: &Path) -> Self {
        let mut log = Self {
            path: path.to_owned(),
            file: None,
            size: 0,
            cap: CAP,
            tail: VecDeque::with_capacity(TAIL),
        };
        if let Err(error) = log.reopen() {
            tracing::warn!(%error, path = %path.display(), "the agent's stderr is not kept");
        }
        log
    }

    /// Takes what the agent wrote.
    pub fn write(&mut self, piece: &[u8]) {
        let from = piece.len().saturating_sub(TAIL);
        self.tail.extend(&piece[from..]);
        let surplus = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..surplus);
        if let Err(error) = self.append(piece) {
            tracing::warn!(%error, "the agent's stderr is no longer kept");
            self.file = None;
        }
    }

    /// The last lines, for an error message: one line, control characters replaced.
    #[must_use]
    pub fn tail(&self) -> String {
        let bytes: Vec<u8> = self.tail.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> =
            text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let last = &lines[lines.len().saturating_sub(5)..];
        last.join(" | ").replace(|c: char| c.is_control(), "?")
    }

    fn append(&mut self, piece: &[u8]) -> io::Result<()> {
        if self.size + piece.len() as u64 > self.cap && self.size > 0 {
            fs::rename(&self.path, self.path.with_extension("log.1"))?;
            self.reopen()?;
        }
        if let Some(file) = &mut self.file {
            file.write_all(piece)?;
            self.size += piece.len() as u64;
        }
        Ok(())
    }

    fn reopen(&mut self) -> io::Result<()> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)?;
        self.size = file.metadata()?.len();
        self.file = Some(file);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_turned_at_its_cap_and_the_tail_stays_short() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent-stderr.log");
        let mut log = StderrLog::open(&path);
        log.cap = 10_000;
        for number in 0..300 {
            log.write(format!("line {number} {}\n", "x".repeat(100)).as_bytes());
        }
        let sizes = [&path, &path.with_extension("log.1")].map(|p| fs::metadata(p).unwrap().len());
        assert!(sizes.iter().all(|size| *size <= 10_000), "{sizes:?}");
        assert!(log.tail().contains("line 299"));
        assert!(log.tail().len() <= TAIL + 20);
    }

    #[test]
    fn control_characters_do_not_reach_an_error_message() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = StderrLog::open(&dir.path().join("x.log"));
        log.write(b"\x1b[31mboom\x1b[0m\n\nlast\n");
        assert_eq!(log.tail(), "?[31mboom?[0m | last");
    }
}
