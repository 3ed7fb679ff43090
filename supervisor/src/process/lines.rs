//! Lines of an agent's stdout: up to [`MAX_LINE`] bytes, read without ever blocking a stream on one line.
//!
//! Owns the read buffer, which lines share: nothing is copied. `next` is cancel-safe: what was read stays in the buffer. A
//! longer line is measured and thrown away as it comes; an [`Outline`] keeps what is needed to answer for it.

use std::io;

use bytes::{Bytes, BytesMut};
use casemate_protocol::acp::frame::{MAX_LINE, Outline, Scanner};
use memchr::memchr;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// What a stream of lines gave.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// One line without its line end (LF or CR LF); never empty. It keeps all of the memory that it was read into.
    Text(Bytes),
    /// A line longer than the limit, dropped.
    TooLong(Outline),
    /// End of the stream.
    End,
}

/// Reads lines.
#[derive(Debug)]
pub struct Lines<R> {
    from: R,
    /// From the beginning of the current line on.
    buffer: BytesMut,
    /// Up to where no line end was found.
    scanned: usize,
    /// Set while a too long line is being thrown away.
    skipping: Option<Scanner>,
    ended: bool,
    limit: usize,
}

/// How much is asked for at once.
const CHUNK: usize = 128 * 1024;
/// The memory of a line of so many bytes is left to it, and what has been read behind it is copied out: else that memory would be used
/// again and kept for good, and a short line behind would keep all of it as well.
const LARGE: usize = 2 * CHUNK;

// === impl Lines ===

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Lines of a stream.
    pub fn new(from: R) -> Self {
        Self::with_limit(from, MAX_LINE)
    }

    fn with_limit(from: R, limit: usize) -> Self {
        Self { from, buffer: BytesMut::new(), scanned: 0, skipping: None, ended: false, limit }
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

    /// For a read of some size. The memory of lines that are gone is used again.
    fn make_room(&mut self) {
        if self.buffer.capacity() - self.buffer.len() < CHUNK / 4 {
            self.buffer.reserve(CHUNK);
        }
    }

    fn take(&mut self) -> Option<Line> {
        loop {
            let end = match memchr(b'\n', &self.buffer[self.scanned..]) {
                Some(at) => self.scanned + at,
                None if self.ended => {
                    self.scanned = 0;
                    let last = self.buffer.split();
                    return self.finish(last);
                }
                None => {
                    self.scanned = self.buffer.len();
                    self.refuse_if_too_long();
                    return None;
                }
            };
            self.scanned = 0;
            let mut text = self.buffer.split_to(end + 1);
            text.truncate(end);
            if end >= LARGE {
                self.buffer = BytesMut::from(&self.buffer[..]);
            }
            if let Some(line) = self.finish(text) {
                return Some(line);
            }
        }
    }

    fn finish(&mut self, mut text: BytesMut) -> Option<Line> {
        if let Some(mut scanner) = self.skipping.take() {
            scanner.feed(&text);
            return Some(Line::TooLong(scanner.finish()));
        }
        if text.last() == Some(&b'\r') {
            text.truncate(text.len() - 1);
        }
        if text.len() > self.limit {
            return Some(Line::TooLong(Outline::of(&text)));
        }
        (!text.iter().all(u8::is_ascii_whitespace)).then(|| Line::Text(text.freeze()))
    }

    /// One byte more may be a carriage return.
    fn refuse_if_too_long(&mut self) {
        if self.skipping.is_none() && self.buffer.len() <= self.limit + 1 {
            return;
        }
        self.skipping.get_or_insert_default().feed(&self.buffer);
        self.scanned = 0;
        if self.buffer.capacity() > LARGE {
            self.buffer = BytesMut::new();
        } else {
            self.buffer.clear();
        }
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
        Line::Text(line.as_bytes().to_vec().into())
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
            assert!(lines.buffer.capacity() <= LARGE);
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
                false => Line::Text(line.to_vec().into()),
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
    fn a_large_line_is_handed_over_with_what_stands_around_it_and_its_memory_is_not_kept() {
        block_on(async {
            let large = vec![b'x'; 3 << 20];
            let input = [b"a\nb\n", &large[..], b"\r\nc\nd", &large, b"\n", &large].concat();
            let mut lines = Lines::with_limit(&input[..], MAX_LINE);
            assert_eq!(lines.next().await.unwrap(), text("a"));
            assert_eq!(lines.next().await.unwrap(), text("b"));
            assert!(lines.next().await.unwrap() == Line::Text(large.clone().into()));
            assert!(lines.buffer.capacity() <= lines.buffer.len() + LARGE);
            assert_eq!(lines.next().await.unwrap(), text("c"));
            let Line::Text(line) = lines.next().await.unwrap() else { panic!("no line") };
            assert!(line.len() == (3 << 20) + 1 && line[0] == b'd');
            assert!(lines.buffer.capacity() <= lines.buffer.len() + LARGE);
            assert!(lines.next().await.unwrap() == Line::Text(large.into()));
            assert_eq!(lines.next().await.unwrap(), Line::End);
        });
    }
}
