//! One connection to a worker: a task that reads it, a task that writes it.

use std::time::Duration;

use casemate_protocol::acp::bridge::{Ending, Link};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::acp::driver::News;
use crate::acp::host::Room;
use crate::socket::Socket;

/// How often the worker is asked whether it is there.
const PING: Duration = Duration::from_secs(15);
/// How long nothing at all may come from it. Four pings: its machine may have been asleep for one.
const SILENCE: Duration = Duration::from_secs(60);
/// How long the close handshake may take.
const FAREWELL: Duration = Duration::from_millis(300);

/// The writing end. Dropping it closes the connection in order.
#[derive(Debug)]
pub(super) struct Writer {
    lines: mpsc::UnboundedSender<Vec<u8>>,
    closed: oneshot::Receiver<()>,
}

// === impl Writer ===

impl Writer {
    /// Queues one line. A connection that is gone is reported by its reader.
    pub(super) fn send(&self, line: Vec<u8>) {
        let _ = self.lines.send(line);
    }

    /// Closes, waiting a moment until what was queued has left.
    pub(super) async fn close(self) {
        drop(self.lines);
        let _ = timeout(FAREWELL, self.closed).await;
    }
}

/// Starts both tasks.
pub(super) fn start(
    link: Link,
    socket: Socket,
    news: mpsc::Sender<News>,
    mut room: Room,
) -> Writer {
    let (lines, mut queue) = mpsc::unbounded_channel::<Vec<u8>>();
    let (closing, closed) = oneshot::channel();
    let (mut sink, mut stream) = socket.split();
    tokio::spawn(async move {
        let mut pings = interval(PING);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let message = tokio::select! {
                line = queue.recv() => match line {
                    // Frames are spliced text, read as UTF-8 before.
                    Some(line) => match String::from_utf8(line) {
                        Ok(text) => Message::text(text),
                        Err(_) => continue,
                    },
                    None => break,
                },
                _ = pings.tick() => Message::Ping(Vec::new().into()),
            };
            if sink.send(message).await.is_err() {
                break;
            }
        }
        let frame = CloseFrame { code: CloseCode::Normal, reason: "detach".into() };
        // Whoever does not take it is gone already.
        let _ = timeout(FAREWELL, sink.send(Message::Close(Some(frame)))).await;
        let _ = closing.send(());
    });
    tokio::spawn(async move {
        let ending = loop {
            room.wait().await;
            let message = match timeout(SILENCE, stream.next()).await {
                Err(_) => {
                    break ending(None, &format!("no sign of life for {} s", SILENCE.as_secs()));
                }
                Ok(None) => break ending(None, "the worker hung up"),
                Ok(Some(Err(error))) => break broken(&error),
                Ok(Some(Ok(message))) => message,
            };
            match message {
                Message::Text(text) => {
                    let line = Vec::from(tokio_tungstenite::tungstenite::Bytes::from(text));
                    if news.send(News::Worker(link, line)).await.is_err() {
                        return;
                    }
                }
                Message::Close(Some(frame)) => {
                    break ending(Some(frame.code.into()), &frame.reason);
                }
                Message::Close(None) => break ending(None, "the worker hung up"),
                // Pongs were waited for; pings are answered by the library; binary means nothing in ACP.
                Message::Ping(_) | Message::Pong(_) | Message::Binary(_) | Message::Frame(_) => {}
            }
        };
        // The driver is gone: nobody is to be told.
        let _ = news.send(News::WorkerEnded(link, ending)).await;
    });
    Writer { lines, closed }
}

fn ending(code: Option<u16>, reason: &str) -> Ending {
    Ending { code, reason: reason.into() }
}

fn broken(error: &Error) -> Ending {
    match error {
        Error::ConnectionClosed | Error::AlreadyClosed => ending(None, "the worker hung up"),
        other => ending(None, &other.to_string()),
    }
}
