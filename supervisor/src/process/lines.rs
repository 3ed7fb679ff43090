//! Lines of an agent's stdout: up to [`MAX_LINE`] bytes, read without ever blocking a stream on one line.
//!
//! Owns the read buffer. `next` is cancel-safe: what was read stays in the buffer. A longer line is measured and
//! thrown away as it comes; an [`Outline`] keeps what is needed to answer for it.

use std::io;

use casemate_protocol::acp::frame::{MAX_LINE, Outline, Scanner};
use memchr::memchr;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// What a stream of lines gave.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// One line without its line end (LF or CR LF); never empty.
    Text(Vec<u8>),
    /// A line longer than the limit, dropped.
    TooLong(Outline),
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

/// A line of so many bytes is not copied.
const LARGE: usize = 1024 * 1024;

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
        let text = &self.buffer[start..end];
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        if text.len() > self.limit {
            return Some(Line::TooLong(Outline::of(text)));
        }
        if text.iter().all(u8::is_ascii_whitespace) {
            return None;
        }
        let length = text.len();
        if length < LARGE {
            return Some(Line::Text(text.to_vec()));
        }
        // Handed over instead of copied: what follows it in the buffer is less than one read.
        let rest = self.buffer.split_off(self.start.min(self.buffer.len()));
        let mut line = std::mem::replace(&mut self.buffer, rest);
        (self.scanned, self.start) = (self.scanned - self.start, 0);
        line.truncate(start + length);
        line.drain(..start);
        line.shrink_to_fit();
        Some(Line::Text(line))
    }

    /// One byte more may be a carriage return.
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
    use casemate_protocol::acp::frame::Owed;
    use proptest::prelude::*;

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
        let Line::TooLong(outline) = &got[1] else { panic!("{got:?}") };
        assert_eq!(outline.owed, Owed::Asker("7".into()));
        assert_eq!(got[2], text("next"));
    }

    #[test]
    fn a_too_long_line_over_many_reads_is_thrown_away_without_being_kept() {
        let mut input = br#"{"result":""#.to_vec();
        input.resize(3 * 1024 * 1024, b'z');
        input.extend_from_slice(b"\",\"id\":12}\nok\n");
        block_on(async {
            let mut lines = Lines::with_limit(&input[..], 1024 * 1024);
            let Line::TooLong(outline) = lines.next().await.unwrap() else { panic!("not refused") };
            assert_eq!(outline.owed, Owed::Asker("12".into()));
            assert_eq!(outline.length, input.len() as u64 - 4);
            assert!(lines.buffer.capacity() < 3 * 1024 * 1024);
            assert_eq!(lines.next().await.unwrap(), text("ok"));
        });
    }

    /// Gives one piece a read.
    struct Pieces(std::collections::VecDeque<Vec<u8>>);

    impl AsyncRead for Pieces {
        fn poll_read(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            into: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<io::Result<()>> {
            if let Some(piece) = self.0.pop_front() {
                into.put_slice(&piece);
            }
            std::task::Poll::Ready(Ok(()))
        }
    }

    /// What the lines are, said another way.
    fn split(bytes: &[u8], limit: usize) -> Vec<Line> {
        let lines = bytes.split(|byte| *byte == b'\n');
        let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        lines
            .filter(|line| line.len() > limit || !line.iter().all(u8::is_ascii_whitespace))
            .map(|line| match line.len() > limit {
                true => Line::TooLong(Outline { length: 0, owed: Outline::of(line).owed }),
                false => Line::Text(line.to_vec()),
            })
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2048))]

        #[test]
        fn lines_are_the_same_wherever_reads_end(
            pieces in prop::collection::vec(piece(), 0..12),
            limit in 1usize..40,
        ) {
            let bytes = pieces.concat();
            let pieces = pieces.into_iter().filter(|piece| !piece.is_empty()).collect();
            let mut lines = Lines::with_limit(Pieces(pieces), limit);
            let mut got = Vec::new();
            loop {
                match block_on(lines.next()).unwrap() {
                    Line::End => break,
                    // A carriage return at its end may count.
                    Line::TooLong(outline) => {
                        got.push(Line::TooLong(Outline { length: 0, ..outline }));
                    }
                    line => got.push(line),
                }
            }
            prop_assert_eq!(got, split(&bytes, limit));
        }
    }

    /// Bytes that matter here, and messages to cut.
    fn piece() -> impl Strategy<Value = Vec<u8>> {
        let parts = [
            &b"\n"[..],
            b"\r",
            b"\r\n",
            b" ",
            b"\xc3",
            b"\xa9",
            "\u{1f642}".as_bytes(),
            b"\xff",
            b"\0",
            b"{\"id\":7,",
            b"\"result\":",
            b"1}",
            b"\"x\"}",
            b"{\"method\":\"m\",\"id\":\"a\"}",
        ];
        let part = prop::sample::select(parts.map(<[u8]>::to_vec).to_vec());
        prop_oneof![prop::collection::vec(any::<u8>(), 0..9), part]
    }

    #[test]
    fn a_large_line_is_handed_over_with_what_stands_around_it() {
        let large = vec![b'x'; 3 * LARGE];
        let input = [b"a\nb\n", &large[..], b"\r\nc\nd", &large, b"\n", &large].concat();
        let got = block_on(all(&input, MAX_LINE));
        assert_eq!(got.len(), 6);
        let large = Line::Text(large);
        assert!(
            got[0] == text("a") && got[1] == text("b") && got[2] == large && got[3] == text("c")
        );
        assert!(
            matches!(&got[4], Line::Text(line) if line.len() == 3 * LARGE + 1 && line[0] == b'd')
        );
        assert!(got[5] == large);
    }
}
