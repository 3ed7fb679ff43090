//! One command's WebSocket: what the client says, and the way back.
//!
//! Reading never waits for the command, writing never holds up reading: what the client may send of stdin is bounded by
//! its window, what is sent to it by the window that it opens. So a signal, a new size or a hang-up passes data that
//! nobody takes.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::str::FromStr as _;

use casemate_protocol::exec::{
    self, MAX_MESSAGE, TerminalSize, WINDOW, Window, channel, read_taken,
};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use nix::sys::signal::Signal;
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Bytes, Error, Message};

use super::ending::Leader;
use super::start::{Ends, resize};
use super::stream::Stream;
use crate::http::pulse::SILENT;

/// What a terminal takes for the end of input: VEOF as every new one has it (termios(3)).
const END_OF_INPUT: &[u8] = b"\x04";

pub(super) type Socket = WebSocketStream<TokioIo<Upgraded>>;
pub(super) type Sink = SplitSink<Socket, Message>;

/// What both directions know of each other. Single-threaded.
#[derive(Debug, Default)]
pub(super) struct Shared {
    stdin: RefCell<VecDeque<Bytes>>,
    /// Bytes of stdin that came.
    came: Cell<u64>,
    /// Bytes of stdin that the command took, or will never take.
    pub(super) taken: Cell<u64>,
    closed: Cell<bool>,
    stdin_news: Notify,
    stdout: Cell<Window>,
    stderr: Cell<Window>,
    /// Something of the above that the way back waits for has changed.
    pub(super) news: Notify,
}

/// Why nothing is read any more.
#[derive(Debug)]
pub(super) enum Gone {
    /// The client left, or was silent.
    Away,
    /// It broke the protocol.
    Broke(&'static str),
}

// === impl Shared ===

impl Shared {
    /// How much may be sent of an output.
    pub(super) fn room(&self, output: u8) -> usize {
        self.window(output).get().room()
    }

    fn window(&self, output: u8) -> &Cell<Window> {
        if output == channel::STDERR { &self.stderr } else { &self.stdout }
    }

    /// Sends some of an output.
    pub(super) async fn send(&self, sink: &mut Sink, output: u8, data: &[u8]) -> Result<(), Error> {
        let mut window = self.window(output).get();
        window.sent(data.len());
        self.window(output).set(window);
        sink.send(Message::binary(exec::message(output, data))).await
    }
}

/// Hears the client until it is gone.
pub(super) async fn hear(
    stream: &mut SplitStream<Socket>,
    shared: &Shared,
    ends: Ends,
    leader: Leader,
) -> Gone {
    let master = ends.is_terminal.then(|| Rc::clone(&ends.stdout));
    drop(ends);
    loop {
        // It is pinged, and reads at all times.
        let Ok(message) = timeout(SILENT, stream.next()).await else {
            tracing::info!("a client of exec was silent for 60 s and is given up");
            return Gone::Away;
        };
        let message = match message {
            Some(Ok(Message::Binary(message))) => message,
            Some(Ok(Message::Text(_))) => return Gone::Broke("text behind the request"),
            Some(Ok(Message::Close(_)) | Err(_)) | None => return Gone::Away,
            Some(Ok(_)) => continue,
        };
        if let Err(broke) = take(&message, shared, master.as_deref(), leader) {
            return Gone::Broke(broke);
        }
    }
}

fn take(
    message: &Bytes,
    shared: &Shared,
    master: Option<&Stream>,
    leader: Leader,
) -> Result<(), &'static str> {
    if message.len() > MAX_MESSAGE {
        return Err("a message is longer than 64 KiB");
    }
    let Some((channel, data)) = message.split_first() else { return Err("an empty message") };
    match *channel {
        channel::STDIN => {
            let came = shared.came.get() + data.len() as u64;
            if came - shared.taken.get() > WINDOW {
                return Err("more stdin than there is room for");
            }
            // Behind its own end nothing counts, but it is not refused: it may have been on its way.
            if !shared.closed.get() {
                shared.came.set(came);
                shared.stdin.borrow_mut().push_back(message.slice(1..));
                shared.stdin_news.notify_one();
            }
        }
        channel::CLOSE if data == [channel::STDIN] => {
            shared.closed.set(true);
            shared.stdin_news.notify_one();
        }
        channel::TAKEN => {
            let (output, total) = read_taken(data).ok_or("a malformed count")?;
            if !matches!(output, channel::STDOUT | channel::STDERR) {
                return Err("a count of no output");
            }
            let mut window = shared.window(output).get();
            if !window.taken(total) {
                return Err("an impossible count");
            }
            shared.window(output).set(window);
            shared.news.notify_one();
        }
        channel::RESIZE => {
            let size = serde_json::from_slice::<TerminalSize>(data);
            let size = size.map_err(|_| "a malformed size")?;
            if let Some(master) = master {
                resize(master, size);
            }
        }
        channel::SIGNAL => {
            let name = std::str::from_utf8(data).unwrap_or_default();
            let signal = Signal::from_str(&format!("SIG{name}"));
            leader.signal_group(signal.map_err(|_| "an unknown signal")?);
        }
        _ => return Err("an unknown channel"),
    }
    Ok(())
}

/// Gives the command its stdin, for ever.
pub(super) async fn feed(stdin: Rc<Stream>, shared: &Shared, is_terminal: bool) {
    let mut stdin = Some(stdin);
    loop {
        let next = shared.stdin.borrow_mut().pop_front();
        match next {
            Some(data) => {
                // A command that has closed its stdin takes nothing more; what comes is dropped, and its client hears
                // nothing of it, as a shell's pipe would.
                if let Some(open) = &stdin
                    && open.write_all(&data).await.is_err()
                {
                    stdin = None;
                }
                shared.taken.set(shared.taken.get() + data.len() as u64);
                shared.news.notify_one();
            }
            None => {
                if shared.closed.get()
                    && let Some(open) = stdin.take()
                    && is_terminal
                {
                    let _ = open.write_all(END_OF_INPUT).await;
                }
                shared.stdin_news.notified().await;
            }
        }
    }
}
