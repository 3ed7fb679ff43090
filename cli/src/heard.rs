//! When a peer was heard: by its bytes, not by its messages, of which one over a slow network may take longer than a peer may be
//! silent.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, timeout_at};

/// The time of the last byte.
#[derive(Debug, Clone)]
pub(crate) struct Clock(Arc<Mutex<Instant>>);

/// A stream that notes it.
#[derive(Debug)]
pub(crate) struct Heard<S> {
    stream: S,
    clock: Clock,
}

// === impl Clock ===

impl Clock {
    fn last(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next item of what the stream carries; `None` at its end, and where no byte came for so long. What was silent before
    /// this was called is nobody's silence.
    pub(crate) async fn next<T>(
        &self,
        items: &mut (impl Stream<Item = T> + Unpin),
        silence: Duration,
    ) -> Option<T> {
        let since = Instant::now();
        loop {
            let until = since.max(self.last()) + silence;
            match timeout_at(until, items.next()).await {
                Ok(item) => return item,
                Err(_) if since.max(self.last()) + silence > until => {}
                Err(_) => return None,
            }
        }
    }
}

// === impl Heard ===

impl<S> Heard<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, clock: Clock(Arc::new(Mutex::new(Instant::now()))) }
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock.clone()
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
            *self.clock.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
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
        Pin::new(&mut self.stream).poll_write(context, bytes)
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
    use tokio::io::AsyncWriteExt as _;
    use tokio_tungstenite::WebSocketStream;
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::*;

    const SILENCE: Duration = Duration::from_millis(400);

    #[test]
    fn a_message_may_take_longer_than_silence_and_silence_within_one_is_found() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (own, mut peer) = tokio::io::duplex(64);
            let own = Heard::new(own);
            let clock = own.clock();
            let mut socket = WebSocketStream::from_raw_socket(own, Role::Client, None).await;
            let slow = async {
                // A binary message of 20 bytes, one byte at a time.
                for byte in [0x82, 20].into_iter().chain([7; 20]) {
                    peer.write_all(&[byte]).await.unwrap();
                    tokio::time::sleep(SILENCE / 10).await;
                }
            };
            let (message, ()) = tokio::join!(clock.next(&mut socket, SILENCE), slow);
            assert_eq!(message.unwrap().unwrap().into_data().len(), 20);
            peer.write_all(&[0x82, 20, 7]).await.unwrap();
            let since = Instant::now();
            assert!(clock.next(&mut socket, SILENCE).await.is_none());
            assert!(since.elapsed() >= SILENCE);
        });
    }
}
