//! The resumable door's connections: frames between an attachment and one WebSocket after the other.
//!
//! Owns the streams. As at the plain door reading and writing do not wait for each other, and a peer that was silent for
//! 60 s is gone; but here that is a cut, and the attachment waits for the next connection.

use std::rc::Rc;
use std::time::Duration;

use casemate_protocol::acp::server::Conn;
use casemate_protocol::relay::PIECE;
use casemate_protocol::relay::supervisor::Taken;
use futures_util::{SinkExt as _, StreamExt as _};
use hyper::upgrade::Upgraded;
use tokio::io::AsyncWrite;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Error, Message};

use super::brought::Brought;
use super::pulse::{self, CLOSING, Listening, Messages, Pulse};
use super::sender::Sender;
use super::socket::{flat, frame};
use crate::hosted::live::Hosted;
use crate::relay::attachment::{Attachment, at};
use crate::relay::driver::{FromClient, Sent};
use crate::relay::outbox::Outbox;

/// What a frame has besides a piece's content is less than this.
const FRAME: usize = PIECE + 1024;

/// How long an acknowledgement waits for something that goes with it: its client is woken once instead of twice.
const OWED: Duration = Duration::from_millis(5);

/// Serves a new attachment to its end, whatever its connections do.
pub(super) async fn serve(stream: Upgraded, epoch: u64, hosted: Rc<Hosted>) {
    let attachment = hosted.attachments.begin(epoch);
    attachment.arrive(stream);
    let conn = Conn(epoch);
    let outbox = Outbox::resumable(Rc::clone(&hosted.drained), attachment.receipts());
    let relay = &hosted.clients;
    if relay.send(FromClient::Connected(conn, Rc::clone(&outbox))).await.is_ok() {
        let mut lines = tokio::select! {
            lines = async { attachment.filled(&outbox).await; std::future::pending().await } => lines,
            lines = connections(&attachment, conn, relay) => lines,
        };
        // Before the relay learns of it: that may be long after, and nothing need be kept until then.
        outbox.finish();
        // It may be over already.
        let _ = lines.hand_on(conn, relay).await;
        let _ = relay.send(FromClient::Gone(conn)).await;
    }
    hosted.attachments.end(epoch);
}

/// One connection after the other; what the last one brought and the relay has not taken.
async fn connections(
    attachment: &Attachment,
    conn: Conn,
    relay: &mpsc::Sender<FromClient>,
) -> Brought {
    // What a connection brought counts as taken: the connection's end does not take it back.
    let mut lines = Brought::default();
    while let Some(stream) = next(attachment, &mut lines, conn, relay).await {
        let (mut stream, mut sender, pulse) = pulse::open_apart(stream, FRAME).await;
        let ended = tokio::select! {
            ended = read(&mut stream, attachment, &mut lines, conn, relay, &pulse) => ended,
            ended = write(&mut sender, attachment) => ended,
            () = pulse.silence() => Ended::Cut,
            // Of the same client, who has given this one up.
            () = attachment.arrived() => Ended::Cut,
        };
        match ended {
            Ended::Cut => attachment.cut(),
            Ended::Closed(close) => {
                let parting = parting(&mut stream, &mut sender, close);
                tokio::select! {
                    _ = timeout(CLOSING, parting) => {}
                    () = attachment.arrived() => {}
                }
                attachment.cut();
            }
            Ended::Over => {
                let _ = timeout(CLOSING, farewell(&mut stream, &mut sender, attachment)).await;
                attachment.drop_now();
            }
        }
    }
    lines
}

/// The next connection; meanwhile what the last one brought goes on to the relay.
async fn next(
    attachment: &Attachment,
    lines: &mut Brought,
    conn: Conn,
    relay: &mpsc::Sender<FromClient>,
) -> Option<Upgraded> {
    tokio::select! {
        biased;
        handed = lines.hand_on(conn, relay) => handed.ok()?,
        stream = attachment.connection() => return stream,
    }
    attachment.connection().await
}

/// Why a connection ended.
enum Ended {
    /// It broke, or there is a newer one.
    Cut,
    /// So did the WebSocket, in order: the peer closed it, or is told why we do. To the attachment that is a cut.
    Closed(Option<CloseFrame>),
    /// So did the attachment.
    Over,
}

async fn read(
    stream: &mut impl Messages,
    attachment: &Attachment,
    lines: &mut Brought,
    conn: Conn,
    relay: &mpsc::Sender<FromClient>,
    pulse: &Pulse,
) -> Ended {
    loop {
        let (waits, room) = (!lines.is_empty(), lines.has_room());
        let message = tokio::select! {
            biased;
            handed = lines.hand_on(conn, relay), if waits => match handed {
                Ok(()) => continue,
                Err(_) => return Ended::Over,
            },
            message = pulse.next(stream), if room => message,
        };
        // All that has come is one matter for the relay, also where the connection ends behind it.
        let mut next = Some(message);
        let mut ended = None;
        while let Some(message) = next {
            ended = take(message, attachment, lines);
            let more = ended.is_none() && lines.has_room();
            next = more.then(|| pulse.ready(stream)).flatten();
        }
        if let Some(ended) = ended {
            return ended;
        }
    }
}

/// Takes what a connection gave; how that ends it.
fn take(
    message: Option<Result<Message, Error>>,
    attachment: &Attachment,
    lines: &mut Brought,
) -> Option<Ended> {
    let piece = match message {
        Some(Ok(Message::Binary(piece))) => piece,
        Some(Ok(Message::Text(_))) => {
            attachment.breach("a frame is a binary message");
            return Some(Ended::Over);
        }
        Some(Err(Error::Capacity(_))) => {
            attachment.breach("a piece is longer than 1 MiB");
            return Some(Ended::Over);
        }
        Some(Ok(Message::Close(_))) => return Some(Ended::Closed(None)),
        Some(Err(error)) => {
            let frame = pulse::breach(&error).map(|(code, words)| frame(code, words));
            return Some(frame.map_or(Ended::Cut, |frame| Ended::Closed(Some(frame))));
        }
        None => return Some(Ended::Cut),
        // Pongs have served their purpose; pings are answered below us.
        Some(Ok(_)) => return None,
    };
    match attachment.take(&piece) {
        Ok(Some(taken)) => {
            lines.push(match taken {
                Taken::Message(_, line) => Sent::Line(flat(line)),
                Taken::Ahead(_, line) => Sent::Ahead(flat(line)),
            });
            None
        }
        Ok(None) => attachment.is_over().then_some(Ended::Over),
        Err(words) => {
            tracing::warn!(words, "a client broke the relay's protocol");
            Some(Ended::Over)
        }
    }
}

async fn write(sender: &mut Sender<impl AsyncWrite + Unpin>, attachment: &Attachment) -> Ended {
    let mut pings = pulse::pings();
    // When what is owed goes by itself.
    let mut acknowledges = None;
    loop {
        loop {
            let frame = attachment.frame();
            let over = frame.is_none();
            frame.into_iter().for_each(|frame| sender.queue(&frame));
            let due = acknowledges.is_some_and(|at| at <= Instant::now());
            if over && (due || !sender.is_empty()) {
                attachment.acknowledgement().into_iter().for_each(|frame| sender.queue(&frame));
            }
            if (over || sender.is_full()) && sender.send().await.is_err() {
                return Ended::Cut;
            }
            if over {
                break;
            }
        }
        if attachment.is_over() {
            return Ended::Over;
        }
        acknowledges = match attachment.owes() {
            true => acknowledges.or_else(|| Some(Instant::now() + OWED)),
            false => None,
        };
        tokio::select! {
            () = attachment.work() => {}
            () = sender.news() => {}
            _ = pings.tick() => sender.ping(),
            () = at(acknowledges) => {}
        }
    }
}

/// Answers the peer's close, or closes with this frame (RFC 6455 section 7.1.2).
pub(super) async fn parting(
    stream: &mut Listening,
    sender: &mut Sender<impl AsyncWrite + Unpin>,
    close: Option<CloseFrame>,
) {
    // First what was said already: the library says a close only where there is room for it.
    if sender.send().await.is_err() {
        return;
    }
    match close {
        // The library's answer is said with the next read.
        None => drop(stream.next().await),
        Some(frame) => drop(stream.send(Message::Close(Some(frame))).await),
    }
    if sender.send().await.is_ok() {
        read_on(stream).await;
    }
}

/// Until the peer's close: with bytes unread the kernel would reset the connection, and what was said last be lost (tcp(7)).
async fn read_on(stream: &mut Listening) {
    while let Some(Ok(_)) = stream.next().await {}
}

/// The last frames, the answer to the client's `Bye` among them.
async fn farewell(
    stream: &mut Listening,
    sender: &mut Sender<impl AsyncWrite + Unpin>,
    attachment: &Attachment,
) {
    while let Some(frame) = attachment.frame().or_else(|| attachment.acknowledgement()) {
        sender.queue(&frame);
        if sender.is_full() && sender.send().await.is_err() {
            return;
        }
    }
    attachment.answer().iter().for_each(|bye| sender.queue(bye));
    // First what was said already: the library says a close only where there is room for it.
    if sender.send().await.is_ok()
        && stream.send(Message::Close(None)).await.is_ok()
        && sender.send().await.is_ok()
    {
        read_on(stream).await;
    }
}
