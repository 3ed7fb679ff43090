//! What every WebSocket of a client has: how it is opened, when it is pinged, and when its peer is given up.
//!
//! [`Pulse`] owns when the peer was last heard.

use std::cell::Cell;
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Bytes, Error, Message};

const PING_EVERY: Duration = Duration::from_secs(20);
/// A peer that was silent for so long is gone.
pub(crate) const SILENT: Duration = Duration::from_secs(60);
/// How long a peer has to answer a close.
pub(crate) const CLOSING: Duration = Duration::from_secs(2);

pub(super) type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// The server's end of a connection whose messages have `longest` bytes at most.
pub(super) async fn open(stream: Upgraded, longest: usize) -> Socket {
    let config = WebSocketConfig::default()
        .read_buffer_size(16 * 1024)
        .write_buffer_size(32 * 1024)
        .max_message_size(Some(longest))
        .max_frame_size(Some(longest));
    WebSocketStream::from_raw_socket(TokioIo::new(stream), Role::Server, Some(config)).await
}

/// When to ping.
pub(crate) fn pings() -> Interval {
    let mut pings = interval_at(Instant::now() + PING_EVERY, PING_EVERY);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pings
}

/// One connection's.
#[derive(Debug)]
pub(super) struct Pulse {
    /// Since when a message is waited for; `None` while none is.
    waiting: Cell<Option<Instant>>,
}

// === impl Pulse ===

impl Pulse {
    pub(super) fn new() -> Self {
        Self { waiting: Cell::new(Some(Instant::now())) }
    }

    /// The next message. Between two calls nothing can be heard: that is not the peer's silence.
    pub(super) async fn next(
        &self,
        stream: &mut SplitStream<Socket>,
    ) -> Option<Result<Message, Error>> {
        self.waiting.set(Some(Instant::now()));
        let message = stream.next().await;
        self.waiting.set(None);
        message
    }

    /// Pings; false where the peer was silent for too long or is gone.
    pub(super) async fn ping(&self, sink: &mut SplitSink<Socket, Message>) -> bool {
        if self.waiting.get().is_some_and(|since| since.elapsed() > SILENT) {
            tracing::info!("a client was silent for 60 s: its connection is given up");
            return false;
        }
        sink.send(Message::Ping(Bytes::new())).await.is_ok()
    }
}
