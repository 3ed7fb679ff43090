//! Lines of an agent's stdout: up to [`MAX_LINE`] bytes, read without ever blocking a stream on one line.
//!
//! Owns the read buffer. `next` is cancel-safe: what was read stays in the buffer. A longer line is measured and
//! thrown away as it comes; [`Overlong`] keeps what is needed to answer for it.

use std::io;

use casemate_protocol::acp::frame::MAX_LINE;
use memchr::memchr;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::overlong::{Overlong, Scanner};

/// What a stream of lines gave.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// One line without its line end (LF or CR LF); never empty.
    Text(Vec<u8>),
    /// A line longer than the limit, dropped.
    TooLong(Overlong),
    /// End of the stream.
    End,
}

/// Reads lines.
#[derive(Debug)]
pub struct Lines<R> {
    from: R,
    buffer: Vec<u8>,
    /// Where the current line starts.
    start: usize,
    /// Up to where no line end was found.
    scanned: usize,
    /// Set while a too long line is being thrown away.
    skipping: Option<Scanner>,
    ended: bool,
    limit: usize,
}

/// How much is asked for at once.
const CHUNK: usize = 64 * 1024;

// === impl Lines ===

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Lines of a stream.
    pub fn new(from: R) -> Self {
        Self::with_limit(from, MAX_LINE)
    }

    fn with_limit(from: R, limit: usize) -> Self {
        Self { from, buffer: Vec::new(), start: 0, scanned: 0, skipping: None, ended: false, limit }
    }

    /// The next line that is not empty.
    ///
    /// # Errors
    /// What the stream's read gives.
    pub async fn next(&mut self) -> io::Result<Line> {
        loop {
            if let Some(line) = self.take() {
                return Ok(line);
            }
            if self.ended {
                return Ok(Line::End);
            }
            self.make_room();
            if self.from.read_buf(&mut self.buffer).await? == 0 {
                self.ended = true;
            }
        }
    }

    /// The next line that was read already.
    pub fn ready(&mut self) -> Option<Line> {
        self.take()
    }

    /// Forgets consumed bytes, and gives a large buffer's memory back.
    fn make_room(&mut self) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.scanned -= self.start;
            self.start = 0;
        }
        if self.buffer.capacity() > 16 * CHUNK && self.buffer.len() < CHUNK {
            self.buffer.shrink_to(CHUNK);
        }
        if self.buffer.capacity() - self.buffer.len() < CHUNK / 4 {
            self.buffer.reserve(CHUNK);
        }
    }

    fn take(&mut self) -> Option<Line> {
        loop {
            let found = memchr(b'\n', &self.buffer[self.scanned..]);
            let end = match found {
                Some(at) => self.scanned + at,
                None if self.ended && self.scanned_to_end() => return self.last(),
                None => {
                    self.scanned = self.buffer.len();
                    if self.ended {
                        continue;
                    }
                    self.refuse_if_too_long();
                    return None;
                }
            };
            let start = std::mem::replace(&mut self.start, end + 1);
            self.scanned = end + 1;
            if let Some(line) = self.finish(start, end) {
                return Some(line);
            }
        }
    }

    fn scanned_to_end(&self) -> bool {
        self.scanned == self.buffer.len()
    }

    /// What follows the last line end, once.
    fn last(&mut self) -> Option<Line> {
        let (start, end) = (self.start, self.buffer.len());
        self.start = end;
        self.finish(start, end)
    }

    fn finish(&mut self, start: usize, end: usize) -> Option<Line> {
        if let Some(mut scanner) = self.skipping.take() {
            scanner.feed(&self.buffer[start..end]);
            return Some(Line::TooLong(scanner.finish()));
        }
        let mut text = &self.buffer[start..end];
        if text.len() > self.limit + 1 {
            let mut scanner = Scanner::default();
            scanner.feed(text);
            return Some(Line::TooLong(scanner.finish()));
        }
        if text.last() == Some(&b'\r') {
            text = &text[..text.len() - 1];
        }
        (!text.iter().all(u8::is_ascii_whitespace)).then(|| Line::Text(text.to_vec()))
    }

    fn refuse_if_too_long(&mut self) {
        if self.skipping.is_none() && self.buffer.len() - self.start <= self.limit + 1 {
            return;
        }
        self.skipping.get_or_insert_default().feed(&self.buffer[self.start..]);
        self.buffer.clear();
        self.start = 0;
        self.scanned = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    async fn all(input: &[u8], limit: usize) -> Vec<Line> {
        let mut lines = Lines::with_limit(input, limit);
        let mut got = Vec::new();
        loop {
            match lines.next().await.unwrap() {
                Line::End => return got,
                line => got.push(line),
            }
        }
    }

    fn text(line: &str) -> Line {
        Line::Text(line.as_bytes().to_vec())
    }

    #[test]
    fn line_ends_of_both_kinds_and_empty_lines_and_a_last_line_without_end() {
        let got = block_on(all(b"a\r\n\n  \r\nb\nlast", 100));
        assert_eq!(got, [text("a"), text("b"), text("last")]);
    }

    #[test]
    fn a_line_at_the_limit_passes_and_one_byte_more_is_refused_and_the_stream_goes_on() {
        let fits = "x".repeat(10);
        let input = format!("{fits}\r\n{{\"id\":7,\"result\":1}}\nnext\n");
        let got = block_on(all(input.as_bytes(), 10));
        assert_eq!(got[0], text(&fits));
        let Line::TooLong(overlong) = &got[1] else { panic!("{got:?}") };
        assert_eq!(overlong.id.as_deref(), Some("7"));
        assert_eq!(got[2], text("next"));
    }

    #[test]
    fn a_too_long_line_over_many_reads_is_thrown_away_without_being_kept() {
        let mut input = br#"{"result":""#.to_vec();
        input.resize(3 * 1024 * 1024, b'z');
        input.extend_from_slice(b"\",\"id\":12}\nok\n");
        block_on(async {
            let mut lines = Lines::with_limit(&input[..], 1024 * 1024);
            let Line::TooLong(overlong) = lines.next().await.unwrap() else {
                panic!("not refused")
            };
            assert_eq!(overlong.id.as_deref(), Some("12"));
            assert_eq!(overlong.length, input.len() as u64 - 4);
            assert!(lines.buffer.capacity() < 3 * 1024 * 1024);
            assert_eq!(lines.next().await.unwrap(), text("ok"));
        });
    }
}
