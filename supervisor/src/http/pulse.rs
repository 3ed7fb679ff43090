//! What every WebSocket of a client has: how it is opened, when it is pinged, and when its peer is given up.
//!
//! [`Pulse`] owns when the peer was last heard: bytes came from it, or it took some that had to wait for it. What merely
//! goes into the kernel's buffer tells nothing.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use casemate_protocol::codes::close as code;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{FutureExt as _, SinkExt as _, Stream, StreamExt as _};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, ReadHalf, WriteHalf, split};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{CapacityError, ProtocolError};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Bytes, Error, Message};

use super::sender::{Ear, Sender, apart, brief};

const PING_EVERY: Duration = Duration::from_secs(20);
/// So many bytes of a connection are read at once: a frame of 64 KiB whole, with its head and the beginning of the next.
const READ: usize = 128 * 1024;
/// A peer that was silent for so long is gone.
pub(crate) const SILENT: Duration = Duration::from_secs(60);
/// How long a peer has to answer a close.
pub(crate) const CLOSING: Duration = Duration::from_secs(2);

/// A client's WebSocket.
pub type Socket = WebSocketStream<Heard<TokioIo<Upgraded>>>;

/// Its reading end, where another writes.
pub(super) type Listening = WebSocketStream<Ear<ReadHalf<Heard<TokioIo<Upgraded>>>>>;

/// The server's end of a connection whose messages have `longest` bytes at most.
pub async fn open(stream: Upgraded, longest: usize) -> (Socket, Pulse) {
    let (stream, pulse) = Pulse::of(TokioIo::new(stream));
    (WebSocketStream::from_raw_socket(stream, Role::Server, Some(config(longest))).await, pulse)
}

/// The same with its two ends apart.
pub(super) async fn open_apart(
    stream: Upgraded,
    longest: usize,
) -> (Listening, Sender<WriteHalf<Heard<TokioIo<Upgraded>>>>, Pulse) {
    let (stream, pulse) = Pulse::of(TokioIo::new(stream));
    let (reader, writer) = split(stream);
    let (ear, sender) = apart(reader, writer);
    let listening =
        WebSocketStream::from_raw_socket(ear, Role::Server, Some(brief(config(longest))));
    (listening.await, sender, pulse)
}

fn config(longest: usize) -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(READ)
        .write_buffer_size(64 * 1024)
        .max_message_size(Some(longest))
        .max_frame_size(Some(longest))
}

/// The close code and words for a peer that broke the protocol (RFC 6455 section 7.4.1); `None`: it is gone, and not to be told.
#[must_use]
pub fn breach(error: &Error) -> Option<(u16, String)> {
    match error {
        Error::Capacity(CapacityError::MessageTooLong { .. }) => {
            Some((code::TOO_BIG, "a message is longer than 64 MiB".into()))
        }
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => None,
        Error::Protocol(error) => Some((code::PROTOCOL, error.to_string())),
        Error::Utf8(_) => Some((code::NOT_TEXT, "a text message is not UTF-8".into())),
        _ => None,
    }
}

/// Closes a connection with this frame, or answers the peer's close where there is none (RFC 6455 section 5.5.1). A peer that takes
/// longer than [`CLOSING`] is left.
pub async fn close(
    sink: &mut SplitSink<Socket, Message>,
    stream: &mut SplitStream<Socket>,
    frame: Option<CloseFrame>,
) {
    let _ = timeout(CLOSING, async {
        // The library's answer to a close goes out with the next read: to send one would be refused, and the answer left unsent.
        if frame.is_none() || sink.send(Message::Close(frame)).await.is_ok() {
            while let Some(Ok(_)) = stream.next().await {}
        }
    })
    .await;
}

/// When to ping.
pub(crate) fn pings() -> Interval {
    let mut pings = interval_at(Instant::now() + PING_EVERY, PING_EVERY);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pings
}

/// Where messages come from.
pub trait Messages: Stream<Item = Result<Message, Error>> + Unpin {}

impl<S: Stream<Item = Result<Message, Error>> + Unpin> Messages for S {}

/// One connection's.
#[derive(Debug)]
pub struct Pulse {
    heard: Rc<Cell<Instant>>,
    /// Since when a message is waited for; `None` while none is.
    waiting: Cell<Option<Instant>>,
}

/// Somebody waits for a message.
struct Listens<'a>(&'a Cell<Option<Instant>>);

/// A stream that notes when its peer was heard.
#[derive(Debug)]
pub struct Heard<S> {
    stream: S,
    heard: Rc<Cell<Instant>>,
    /// A write waits for the peer.
    stalled: bool,
}

// === impl Pulse ===

impl Pulse {
    fn of<S>(stream: S) -> (Heard<S>, Self) {
        let now = Instant::now();
        let heard = Rc::new(Cell::new(now));
        let stream = Heard { stream, heard: Rc::clone(&heard), stalled: false };
        (stream, Self { heard, waiting: Cell::new(Some(now)) })
    }

    /// The next message. While nobody waits for one nothing can be heard: that is not the peer's silence. Cancel-safe.
    pub async fn next<S: Messages>(&self, stream: &mut S) -> Option<S::Item> {
        let _listens = Listens::begin(&self.waiting);
        stream.next().await
    }

    /// A message that is there already.
    pub(super) fn ready<S: Messages>(&self, stream: &mut S) -> Option<Option<S::Item>> {
        stream.next().now_or_never()
    }

    /// Completes when the peer was silent for too long, whatever anybody waits for meanwhile.
    pub(super) async fn silence(&self) {
        loop {
            let since = self.waiting.get().map_or_else(Instant::now, |at| at.max(self.heard.get()));
            if since.elapsed() >= SILENT {
                return tracing::info!("a client was silent for 60 s: its connection is given up");
            }
            sleep_until(since + SILENT).await;
        }
    }

    /// Pings; false where the peer is gone.
    pub(super) async fn ping(&self, sink: &mut SplitSink<Socket, Message>) -> bool {
        sink.send(Message::Ping(Bytes::new())).await.is_ok()
    }
}

// === impl Listens ===

impl<'a> Listens<'a> {
    fn begin(since: &'a Cell<Option<Instant>>) -> Self {
        since.set(Some(Instant::now()));
        Self(since)
    }
}

impl Drop for Listens<'_> {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

// === impl Heard ===

impl<S> Heard<S> {
    /// What a write came to.
    fn wrote<T>(&mut self, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_pending() {
            self.stalled = true;
        } else if std::mem::take(&mut self.stalled) {
            self.heard.set(Instant::now());
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Heard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if read.is_ready() {
            self.heard.set(Instant::now());
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Heard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    fn with_peer<F: Future<Output = ()>>(
        test: impl FnOnce(Heard<DuplexStream>, Pulse, DuplexStream) -> F,
    ) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().build().unwrap();
        runtime.block_on(async {
            let (own, peer) = duplex(16);
            let (stream, pulse) = Pulse::of(own);
            test(stream, pulse, peer).await;
        });
    }

    /// What a client that was last heard so long ago is.
    fn silent(pulse: &Pulse, waiting: bool, for_seconds: u64) -> bool {
        let since = Instant::now().checked_sub(Duration::from_secs(for_seconds)).unwrap();
        pulse.waiting.set(waiting.then_some(since));
        pulse.silence().now_or_never().is_some()
    }

    #[test]
    fn a_peer_that_is_gone_is_found_whatever_a_writer_waits_for() {
        with_peer(|mut stream, pulse, peer| async move {
            let _peer = peer;
            let long_ago = Instant::now().checked_sub(2 * SILENT).unwrap();
            assert!(stream.write_all(&[0; 17]).now_or_never().is_none());
            pulse.heard.set(long_ago);
            assert!(!silent(&pulse, true, 59));
            assert!(silent(&pulse, true, 61));
            // While nobody listens silence is nobody's.
            assert!(!silent(&pulse, false, 61));
        });
    }

    #[test]
    fn whoever_says_a_byte_or_takes_one_that_had_to_wait_is_there() {
        with_peer(|mut stream, pulse, mut peer| async move {
            let long_ago = Instant::now().checked_sub(2 * SILENT).unwrap();
            pulse.heard.set(long_ago);
            // Into the buffer: nobody needs to be there for it.
            stream.write_all(&[0; 16]).await.unwrap();
            assert!(silent(&pulse, true, 61));
            assert!(stream.write_u8(0).now_or_never().is_none());
            peer.read_u8().await.unwrap();
            stream.write_u8(0).await.unwrap();
            assert!(!silent(&pulse, true, 61));
            pulse.heard.set(long_ago);
            peer.write_u8(0).await.unwrap();
            stream.read_u8().await.unwrap();
            assert!(!silent(&pulse, true, 61));
        });
    }
}
