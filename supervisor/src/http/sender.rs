//! What goes out over one connection of the resumable door: frames as they are, without a copy of what is long.
//!
//! The WebSocket library reads the connection and says what the protocol wants said between frames (pongs, the close); it writes
//! into [`Out`], and [`Sender`] alone writes to the stream. So nobody's frame is ever broken by another's.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use casemate_protocol::relay::frame::Packet;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::sync::Notify;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Control, Data, OpCode};

/// So many bytes are written at once, where there are as many.
const AT_ONCE: usize = 64 * 1024;
/// A body of so many bytes is written from where it is.
const LARGE: usize = 16 * 1024;
/// The library says no more than this ahead: whoever pings without end and takes no pong gets fewer.
const MOST_SAID: usize = 4 * 1024;
/// writev(2) takes more; so many are enough for [`AT_ONCE`].
const SLICES: usize = 16;

/// What waits to be written, in order.
#[derive(Debug, Default)]
pub(super) struct Out {
    waiting: RefCell<Waiting>,
    /// The library has said something.
    news: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    ready: VecDeque<Bytes>,
    /// What follows that.
    tail: BytesMut,
    bytes: usize,
    said: usize,
}

/// The stream that the library is given.
#[derive(Debug)]
pub(super) struct Ear<R> {
    reader: R,
    out: Rc<Out>,
}

/// Writes to the stream.
#[derive(Debug)]
pub(super) struct Sender<W> {
    writer: W,
    out: Rc<Out>,
    /// On its way: the first may have been written in part.
    going: VecDeque<Bytes>,
}

/// For the library: it writes at once, and keeps no more than [`MOST_SAID`] that [`Ear`] does not take. By default that is unbounded.
pub(super) fn brief(config: WebSocketConfig) -> WebSocketConfig {
    config.write_buffer_size(0).max_write_buffer_size(MOST_SAID)
}

/// The two ends of a stream.
pub(super) fn apart<R, W>(reader: R, writer: W) -> (Ear<R>, Sender<W>) {
    let out = Rc::<Out>::default();
    (Ear { reader, out: Rc::clone(&out) }, Sender { writer, out, going: VecDeque::new() })
}

// === impl Out ===

impl Out {
    fn frame(&self, opcode: OpCode, head: &[u8], body: Bytes) {
        let waiting = &mut *self.waiting.borrow_mut();
        let before = waiting.tail.len();
        let length = head.len() + body.len();
        if waiting.tail.capacity() - before < LARGE + 64 {
            waiting.tail.reserve(AT_ONCE + LARGE + 64);
        }
        let header = FrameHeader { opcode, ..FrameHeader::default() };
        let written = header.format(length as u64, &mut (&mut waiting.tail).writer());
        debug_assert!(written.is_ok(), "memory takes all");
        waiting.tail.extend_from_slice(head);
        if body.len() < LARGE {
            waiting.tail.extend_from_slice(&body);
            waiting.bytes += waiting.tail.len() - before;
        } else {
            waiting.bytes += waiting.tail.len() - before + body.len();
            waiting.ready.push_back(waiting.tail.split().freeze());
            waiting.ready.push_back(body);
        }
    }

    /// What the library says; false where that is too much for now.
    fn say(&self, bytes: &[u8]) -> bool {
        let waiting = &mut *self.waiting.borrow_mut();
        if waiting.said > MOST_SAID {
            return false;
        }
        waiting.tail.extend_from_slice(bytes);
        waiting.bytes += bytes.len();
        waiting.said += bytes.len();
        self.news.notify_one();
        true
    }

    fn take(&self, into: &mut VecDeque<Bytes>) {
        let waiting = &mut *self.waiting.borrow_mut();
        into.append(&mut waiting.ready);
        if !waiting.tail.is_empty() {
            into.push_back(waiting.tail.split().freeze());
        }
        (waiting.bytes, waiting.said) = (0, 0);
    }
}

// === impl Sender ===

impl<W: AsyncWrite + Unpin> Sender<W> {
    /// Queues a frame of the relay's.
    pub(super) fn queue(&self, packet: &Packet) {
        self.out.frame(OpCode::Data(Data::Binary), packet.head(), packet.body.clone());
    }

    /// Queues a message as it is.
    pub(super) fn message(&self, kind: Data, body: Bytes) {
        self.out.frame(OpCode::Data(kind), &[], body);
    }

    /// Queues a ping (RFC 6455 section 5.5.2).
    pub(super) fn ping(&self) {
        self.out.frame(OpCode::Control(Control::Ping), &[], Bytes::new());
    }

    /// Completes when the library has said something that waits to be sent.
    pub(super) async fn news(&self) {
        self.out.news.notified().await;
    }

    /// Nothing was queued since the last time that all was sent.
    pub(super) fn is_empty(&self) -> bool {
        self.out.waiting.borrow().bytes == 0 && self.going.is_empty()
    }

    /// There is as much as is written at once.
    pub(super) fn is_full(&self) -> bool {
        self.out.waiting.borrow().bytes >= AT_ONCE
    }

    /// Writes all that waits. What is left where it is not waited for goes before anything else the next time.
    ///
    /// # Errors
    /// The stream's.
    pub(super) async fn send(&mut self) -> io::Result<()> {
        loop {
            self.out.take(&mut self.going);
            if self.going.is_empty() {
                return self.writer.flush().await;
            }
            while !self.going.is_empty() {
                let mut slices = [IoSlice::new(&[]); SLICES];
                for (slice, part) in slices.iter_mut().zip(&self.going) {
                    *slice = IoSlice::new(part);
                }
                let count = self.going.len().min(SLICES);
                let mut written = self.writer.write_vectored(&slices[..count]).await?;
                if written == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
                while let Some(part) = self.going.front_mut().filter(|_| written > 0) {
                    let length = part.len().min(written);
                    part.advance(length);
                    written -= length;
                    if part.is_empty() {
                        self.going.pop_front();
                    }
                }
            }
        }
    }
}

// === impl Ear ===

impl<R: AsyncRead + Unpin> AsyncRead for Ear<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.reader).poll_read(context, buffer)
    }
}

impl<R: Unpin> AsyncWrite for Ear<R> {
    /// All or nothing, and nothing without a promise to wake: the library tries again when it reads next.
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.out.say(bytes) { Poll::Ready(Ok(bytes.len())) } else { Poll::Pending }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
    use tokio::io::{AsyncReadExt as _, duplex};
    use tokio_tungstenite::WebSocketStream;
    use tokio_tungstenite::tungstenite::Message;
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::*;

    fn block_on(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(test);
    }

    fn piece(seq: u64, length: usize) -> Packet {
        Packet::piece(seq, true, vec![b'x'; length].into())
    }

    #[test]
    fn frames_of_all_lengths_arrive_whole_and_in_order_also_where_a_write_was_given_up() {
        block_on(async {
            let (own, peer) = duplex(1000);
            let (reader, writer) = tokio::io::split(own);
            let (_ear, mut sender) = apart(reader, writer);
            let lengths = [0, 1, 125, 126, LARGE - 1, LARGE, 3, 65_535, 65_536, 300_000, 7];
            let mut client = WebSocketStream::from_raw_socket(peer, Role::Client, None).await;
            for (seq, length) in (1..).zip(lengths) {
                sender.queue(&piece(seq, length));
                // Given up in the middle of a frame.
                assert!(sender.send().now_or_never().is_none() || length < 1000);
                sender.ping();
            }
            let read = async {
                for (seq, length) in (1..).zip(lengths) {
                    let wanted = piece(seq, length).to_bytes();
                    assert!(client.next().await.unwrap().unwrap() == Message::Binary(wanted));
                    assert!(matches!(client.next().await.unwrap().unwrap(), Message::Ping(_)));
                }
            };
            tokio::join!(async { sender.send().await.unwrap() }, read);
        });
    }

    #[test]
    fn who_pings_without_end_and_takes_no_pong_makes_nothing_grow() {
        block_on(async {
            let (own, peer) = duplex(1 << 20);
            let (reader, writer) = tokio::io::split(own);
            let (ear, mut sender) = apart(reader, writer);
            let config = Some(brief(WebSocketConfig::default()));
            let mut server = WebSocketStream::from_raw_socket(ear, Role::Server, config).await;
            let mut client = WebSocketStream::from_raw_socket(peer, Role::Client, None).await;
            for _ in 0..2000 {
                client.send(Message::Ping(vec![0; 125].into())).await.unwrap();
                assert!(server.next().await.unwrap().unwrap().is_ping());
            }
            assert!(sender.out.waiting.borrow().bytes <= MOST_SAID + 2 * 127);
            sender.send().await.unwrap();
            assert!(client.next().await.unwrap().unwrap().is_pong());
            // What was held back is said with the next read.
            assert!(server.next().now_or_never().is_none());
            sender.queue(&piece(1, 1));
            sender.send().await.unwrap();
            drop((server, sender));
            let mut last = Vec::new();
            while let Some(Ok(message)) = client.next().await {
                last.push(message.is_pong());
            }
            assert_eq!(last.pop(), Some(false));
            assert!(last.iter().all(|pong| *pong) && last.len() < 3 * MOST_SAID / 127);
        });
    }

    #[test]
    fn frames_have_the_bytes_of_the_standard() {
        block_on(async {
            let (own, mut peer) = duplex(100);
            let (reader, writer) = tokio::io::split(own);
            let (ear, mut sender) = apart(reader, writer);
            sender.ping();
            sender.queue(&piece(3, 2));
            sender.send().await.unwrap();
            drop((ear, sender));
            let mut bytes = Vec::new();
            peer.read_to_end(&mut bytes).await.unwrap();
            assert_eq!(bytes, b"\x89\x00\x82\x0b\x04\0\0\0\0\0\0\0\x03xx");
        });
    }
}
