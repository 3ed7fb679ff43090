//! The host's side: lines from stdin, lines to stdout.
//!
//! Reading is a thread of its own, since a read of a pipe cannot be cancelled. Writing is a task with a count of what is
//! queued: workers are read only while it is small, so a host that does not read holds its agents back, and its own
//! lines (a cancel, say) get through all the same.

use std::io::{self, BufRead, BufReader, Read as _};
use std::rc::Rc;
use std::sync::Arc;

use casemate_protocol::acp::frame::{MAX_LINE, Outline, Scanner};
use memchr::memchr;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{mpsc, watch};

use crate::acp::driver::News;
use crate::acp::hold::Hold;
use crate::acp::receipt::Receipt;

/// How many queued bytes for the host hold its workers back.
const FULL: usize = 4 * 1024 * 1024;

/// One line of the host, or what there was instead.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Without its line end (LF or CR LF).
    Whole(Vec<u8>),
    /// Longer than [`MAX_LINE`]; thrown away.
    Overlong(Outline),
    /// Nothing comes any more. What stood there without a line end was not finished and is not a line.
    End,
}

/// Reads one line.
pub(super) fn read_line(reader: &mut impl BufRead) -> io::Result<Line> {
    read_line_up_to(MAX_LINE, reader)
}

fn read_line_up_to(longest: usize, reader: &mut impl BufRead) -> io::Result<Line> {
    let mut line = Vec::new();
    // Its end may have two bytes.
    let limit = u64::try_from(longest).unwrap_or(u64::MAX) + 2;
    reader.by_ref().take(limit).read_until(b'\n', &mut line)?;
    let ended = line.pop_if(|byte| *byte == b'\n').is_some();
    if ended {
        line.pop_if(|byte| *byte == b'\r');
        if line.len() <= longest {
            return Ok(Line::Whole(line));
        }
    } else if line.len() <= longest + 1 {
        return Ok(Line::End);
    }
    let mut scanner = Scanner::default();
    scanner.feed(&line);
    drop(line);
    let mut ended = ended;
    while !ended {
        let there = reader.fill_buf()?;
        if there.is_empty() {
            return Ok(Line::End);
        }
        let end = memchr(b'\n', there);
        scanner.feed(&there[..end.unwrap_or(there.len())]);
        let length = end.map_or(there.len(), |at| at + 1);
        reader.consume(length);
        ended = end.is_some();
    }
    Ok(Line::Overlong(scanner.finish()))
}

/// Reads stdin to its end in a thread, while there is room for what is read.
pub(super) fn read(news: mpsc::Sender<News>, hold: Arc<Hold>) -> io::Result<()> {
    let read_all = move || {
        let mut reader = BufReader::with_capacity(64 * 1024, io::stdin());
        loop {
            hold.wait();
            let line = read_line(&mut reader).unwrap_or(Line::End);
            let last = line == Line::End;
            if news.blocking_send(News::Host(line)).is_err() || last {
                return;
            }
        }
    };
    std::thread::Builder::new().name("stdin".into()).spawn(read_all).map(drop)
}

/// What goes to stdout, in order.
#[derive(Debug)]
enum Word {
    Line(Vec<u8>),
    /// All before it is written: whose lines up to which that settles.
    Mark(Rc<Receipt>, u64),
}

/// The queue to stdout.
#[derive(Debug)]
pub(super) struct Outbox {
    words: mpsc::UnboundedSender<Word>,
    queued: Arc<watch::Sender<usize>>,
}

/// Tells when the host has room.
#[derive(Debug, Clone)]
pub(super) struct Room(watch::Receiver<usize>);

// === impl Outbox ===

impl Outbox {
    /// Starts the writer. Where stdout cannot be written any more, the host is gone.
    pub(super) fn start(news: mpsc::Sender<News>) -> Self {
        let (words, mut queue) = mpsc::unbounded_channel();
        let queued = Arc::new(watch::Sender::new(0usize));
        let count = Arc::clone(&queued);
        tokio::task::spawn_local(async move {
            let mut stdout = tokio::io::stdout();
            while let Some(word) = queue.recv().await {
                let mut line = match word {
                    Word::Line(line) => line,
                    Word::Mark(receipt, to) => {
                        receipt.settle(to);
                        continue;
                    }
                };
                let len = line.len();
                line.push(b'\n');
                let written = async {
                    stdout.write_all(&line).await?;
                    stdout.flush().await
                };
                if written.await.is_err() {
                    // Nobody is left to tell where even this cannot be sent.
                    let _ = news.send(News::Host(Line::End)).await;
                    // Workers are not held back by what will never be written.
                    count.send_replace(0);
                    return;
                }
                count.send_modify(|queued| *queued = queued.saturating_sub(len));
            }
        });
        Self { words, queued }
    }

    /// Queues one line.
    pub(super) fn push(&self, line: Vec<u8>) {
        let len = line.len();
        if self.words.send(Word::Line(line)).is_ok() {
            self.queued.send_modify(|queued| *queued += len);
        }
    }

    /// Settles lines of a worker once all that was queued is written.
    pub(super) fn mark(&self, receipt: Rc<Receipt>, to: u64) {
        // Without a writer the host is gone, and nothing is settled any more.
        let _ = self.words.send(Word::Mark(receipt, to));
    }

    /// Waits until everything is written.
    pub(super) async fn drained(&self) {
        let mut queued = self.queued.subscribe();
        // The writer is gone: nothing will be written any more.
        let _ = queued.wait_for(|queued| *queued == 0).await;
    }

    /// For those who fill it.
    pub(super) fn room(&self) -> Room {
        Room(self.queued.subscribe())
    }
}

// === impl Room ===

impl Room {
    /// Waits until the host has taken most of what was written.
    pub(super) async fn wait(&mut self) {
        // Without a writer there is nothing to be held back for.
        let _ = self.0.wait_for(|queued| *queued < FULL).await;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_are_read_whole_and_an_unfinished_one_is_none() {
        let mut text: &[u8] = b"one\r\n\ntwo\nthree";
        let mut lines = Vec::new();
        loop {
            match read_line(&mut text).unwrap() {
                Line::Whole(line) => lines.push(String::from_utf8(line).unwrap()),
                other => {
                    assert_eq!(other, Line::End);
                    break;
                }
            }
        }
        assert_eq!(lines, ["one", "", "two"]);
    }

    #[test]
    fn an_overlong_line_is_skipped_and_the_next_one_is_read() {
        let mut text = vec![b'x'; MAX_LINE + 1];
        text.extend_from_slice(b"\nnext\n");
        let mut reader = BufReader::new(text.as_slice());
        let outline = Outline { length: text.len() as u64 - 6, ..Outline::default() };
        assert_eq!(read_line(&mut reader).unwrap(), Line::Overlong(outline));
        assert_eq!(read_line(&mut reader).unwrap(), Line::Whole(b"next".to_vec()));
        let mut longest = vec![b'x'; MAX_LINE];
        longest.push(b'\n');
        assert!(
            matches!(read_line(&mut longest.as_slice()).unwrap(), Line::Whole(line) if line.len() == MAX_LINE)
        );
    }

    /// Gives one piece a read.
    struct Pieces(std::collections::VecDeque<Vec<u8>>);

    impl io::Read for Pieces {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let Some(mut piece) = self.0.pop_front() else { return Ok(0) };
            let length = piece.len().min(into.len());
            into[..length].copy_from_slice(&piece[..length]);
            let rest = piece.split_off(length);
            if !rest.is_empty() {
                self.0.push_front(rest);
            }
            Ok(length)
        }
    }

    /// What the lines are, said another way.
    fn split(bytes: &[u8], longest: usize) -> Vec<Line> {
        let mut lines: Vec<_> = bytes.split(|byte| *byte == b'\n').collect();
        // Without a line end it is none.
        lines.pop();
        let line = |line: &[u8]| match line.strip_suffix(b"\r").unwrap_or(line) {
            line if line.len() > longest => {
                Line::Overlong(Outline { length: 0, ..Outline::of(line) })
            }
            line => Line::Whole(line.to_vec()),
        };
        lines.into_iter().map(line).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2048))]

        #[test]
        fn lines_are_the_same_wherever_reads_end(
            pieces in prop::collection::vec(piece(), 0..12),
            longest in 1usize..40,
            buffer in 1usize..20,
        ) {
            let bytes = pieces.concat();
            let pieces = pieces.into_iter().filter(|piece| !piece.is_empty()).collect();
            let mut reader = BufReader::with_capacity(buffer, Pieces(pieces));
            let mut got = Vec::new();
            loop {
                match read_line_up_to(longest, &mut reader).unwrap() {
                    Line::End => break,
                    Line::Overlong(outline) => {
                        got.push(Line::Overlong(Outline { length: 0, ..outline }));
                    }
                    line => got.push(line),
                }
            }
            prop_assert_eq!(got, split(&bytes, longest));
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
}
