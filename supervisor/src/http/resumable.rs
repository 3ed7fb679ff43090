//! The resumable door's connections: frames between an attachment and one WebSocket after the other.
//!
//! Owns the streams. As at the plain door reading and writing do not wait for each other, and a peer that was silent for
//! 60 s is gone; but here that is a cut, and the attachment waits for the next connection.

use std::rc::Rc;

use casemate_protocol::acp::server::Conn;
use casemate_protocol::codes::close;
use casemate_protocol::relay::PIECE;
use casemate_protocol::relay::frame::{Frame, Packet};
use casemate_protocol::relay::supervisor::Taken;
use futures_util::{SinkExt as _, StreamExt as _};
use hyper::upgrade::Upgraded;
use tokio::io::AsyncWrite;
use tokio::sync::mpsc::{self, error::SendError};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Error, Message};

use super::pulse::{self, CLOSING, Listening, Pulse};
use super::sender::Sender;
use super::socket::{flat, frame};
use crate::hosted::live::Hosted;
use crate::relay::attachment::Attachment;
use crate::relay::driver::{FromClient, Sent};
use crate::relay::outbox::Outbox;

/// What a frame has besides a piece's content is less than this.
const FRAME: usize = PIECE + 1024;

/// Not more lines at once: the window bounds their bytes.
const MANY: usize = 256;

/// Serves a new attachment to its end, whatever its connections do.
pub(super) async fn serve(stream: Upgraded, epoch: u64, hosted: Rc<Hosted>) {
    let attachment = hosted.attachments.begin(epoch);
    attachment.arrive(stream);
    let conn = Conn(epoch);
    let outbox = Outbox::resumable(Rc::clone(&hosted.drained), attachment.receipts());
    let relay = &hosted.clients;
    if relay.send(FromClient::Connected(conn, Rc::clone(&outbox))).await.is_ok() {
        tokio::select! {
            () = async { attachment.filled(&outbox).await; std::future::pending().await } => {}
            () = connections(&attachment, conn, relay) => {}
        }
        // The relay may be over already.
        let _ = relay.send(FromClient::Gone(conn)).await;
    }
    hosted.attachments.end(epoch);
    outbox.finish();
}

/// One connection after the other.
async fn connections(attachment: &Attachment, conn: Conn, relay: &mpsc::Sender<FromClient>) {
    // What a connection brought counts as taken: the connection's end does not take it back.
    let mut lines = Vec::new();
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
    let _ = hand_on(&mut lines, conn, relay).await;
}

/// The next connection; meanwhile what the last one brought goes on to the relay.
async fn next(
    attachment: &Attachment,
    lines: &mut Vec<Sent>,
    conn: Conn,
    relay: &mpsc::Sender<FromClient>,
) -> Option<Upgraded> {
    tokio::select! {
        biased;
        handed = hand_on(lines, conn, relay) => handed.ok()?,
        stream = attachment.connection() => return stream,
    }
    attachment.connection().await
}

/// Hands all lines to the relay, or none where this is given up: a send that is given up would take them along.
async fn hand_on(
    lines: &mut Vec<Sent>,
    conn: Conn,
    relay: &mpsc::Sender<FromClient>,
) -> Result<(), SendError<()>> {
    if !lines.is_empty() {
        relay.reserve().await?.send(FromClient::Lines(conn, std::mem::take(lines)));
    }
    Ok(())
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
    stream: &mut Listening,
    attachment: &Attachment,
    lines: &mut Vec<Sent>,
    conn: Conn,
    relay: &mpsc::Sender<FromClient>,
    pulse: &Pulse,
) -> Ended {
    loop {
        if hand_on(lines, conn, relay).await.is_err() {
            return Ended::Over;
        }
        // All that has come is one matter for the relay, also where the connection ends behind it.
        let mut next = Some(pulse.next(stream).await);
        let mut ended = None;
        while let Some(message) = next {
            ended = take(message, attachment, lines);
            next = if ended.is_none() && lines.len() < MANY { pulse.ready(stream) } else { None };
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
    lines: &mut Vec<Sent>,
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
    loop {
        loop {
            let frame = attachment.frame();
            let over = frame.is_none();
            frame.into_iter().for_each(|frame| sender.queue(&frame));
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
        tokio::select! {
            () = attachment.work() => {}
            () = sender.news() => {}
            _ = pings.tick() => sender.ping(),
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
    while let Some(frame) = attachment.frame() {
        sender.queue(&frame);
        if sender.is_full() && sender.send().await.is_err() {
            return;
        }
    }
    if attachment.is_over() {
        let bye = Frame::Bye { code: close::NORMAL, reason: "".into() };
        sender.queue(&Packet::from(&bye));
    }
    // First what was said already: the library says a close only where there is room for it.
    if sender.send().await.is_ok()
        && stream.send(Message::Close(None)).await.is_ok()
        && sender.send().await.is_ok()
    {
        read_on(stream).await;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn what_a_connection_brought_stays_where_it_ends_while_the_relay_has_no_room() {
        let (relay, mut end) = mpsc::channel(1);
        let mut lines = vec![Sent::Line("one".into())];
        assert!(hand_on(&mut lines, Conn(1), &relay).now_or_never().is_some() && lines.is_empty());
        for text in ["two", "three"] {
            lines.push(Sent::Ahead(text.into()));
            // Given up, as by a connection that breaks.
            assert!(hand_on(&mut lines, Conn(1), &relay).now_or_never().is_none());
        }
        assert!(matches!(end.try_recv(), Ok(FromClient::Lines(_, first)) if first.len() == 1));
        assert!(hand_on(&mut lines, Conn(1), &relay).now_or_never().is_some());
        let Ok(FromClient::Lines(_, rest)) = end.try_recv() else { panic!("lost") };
        assert!(
            matches!(&rest[..], [Sent::Ahead(two), Sent::Ahead(three)] if two == "two" && three == "three")
        );
    }
}
