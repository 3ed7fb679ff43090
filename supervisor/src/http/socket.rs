//! One client's WebSocket: text messages to lines, lines to text messages.
//!
//! Owns the stream. Reading and writing are two halves that do not wait for each other, so a cancel gets through while
//! the client is slow to read. Binary messages are ignored (the transport's profile); a ping goes out every 20 s, and
//! a peer that was silent for 60 s is gone.

use std::io::{self, BufReader, Read as _};
use std::rc::Rc;

use casemate_protocol::acp::frame::MAX_LINE;
use casemate_protocol::acp::server::Conn;
use casemate_protocol::codes::close;
use futures_util::stream::SplitSink;
use futures_util::{SinkExt as _, StreamExt as _};
use hyper::upgrade::Upgraded;
use memchr::memchr2;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::{Bytes, Error, Message, Utf8Bytes};

use super::brought::Brought;
use super::pulse::{self, Messages, Pulse, Socket};
use crate::relay::backlog::Backlog;
use crate::relay::driver::{FromClient, Sent};
use crate::relay::journal::UNREADABLE;
use crate::relay::outbox::{Item, Outbox};
use crate::relay::shelf::Shelf;

/// A message of more bytes goes in fragments of so many (RFC 6455 section 5.4): nobody has to hold all of it to send the first of it.
const FRAGMENT: usize = 1024 * 1024;

/// RFC 6455 section 5.5: a control frame carries 125 bytes at most, two of them the close code.
const LONGEST_REASON: usize = 123;

/// Serves one client until either side ends.
pub async fn serve(
    stream: Upgraded,
    conn: Conn,
    outbox: Rc<Outbox>,
    shelf: Shelf,
    relay: mpsc::Sender<FromClient>,
) {
    let (socket, pulse) = pulse::open(stream, MAX_LINE).await;
    if relay.send(FromClient::Connected(conn, Rc::clone(&outbox))).await.is_ok() {
        let backlog = Backlog::new(shelf);
        let mut lines = Brought::default();
        tokio::select! {
            () = attached(socket, &pulse, conn, &backlog, &mut lines, &relay) => {}
            () = async { backlog.fill(&outbox).await; std::future::pending().await } => {}
        }
        // Before the relay learns of it: that may be long after, and nothing need be kept until then.
        outbox.finish();
        // It may be over already.
        let _ = lines.hand_on(conn, &relay).await;
        let _ = relay.send(FromClient::Gone(conn)).await;
    }
}

async fn attached(
    socket: Socket,
    pulse: &Pulse,
    conn: Conn,
    backlog: &Backlog,
    lines: &mut Brought,
    relay: &mpsc::Sender<FromClient>,
) {
    let (mut sink, mut stream) = socket.split();
    let ended = tokio::select! {
        ended = read(&mut stream, lines, conn, relay, pulse) => ended,
        ended = write(&mut sink, backlog, pulse) => ended,
        () = pulse.silence() => Ended::Gone,
    };
    let frame = match ended {
        Ended::Gone => return,
        Ended::Closed => None,
        Ended::Refused(code, reason) => Some(frame(code, reason)),
    };
    pulse::close(&mut sink, &mut stream, frame).await;
}

/// Why an attachment ended.
enum Ended {
    /// Nobody is there to be told.
    Gone,
    /// The peer, or an item of the outbox, closed it.
    Closed,
    /// We close it.
    Refused(u16, String),
}

async fn read(
    stream: &mut impl Messages,
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
                Err(_) => return Ended::Refused(close::GOING_AWAY, "the worker ends".into()),
            },
            message = pulse.next(stream), if room => message,
        };
        match message {
            Some(Ok(Message::Text(text))) => lines.push(Sent::Line(one_line(text))),
            Some(Ok(Message::Close(_))) => return Ended::Closed,
            // Binary is not part of the profile; pongs have served their purpose; pings are answered below us.
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                return pulse::breach(&error)
                    .map_or(Ended::Gone, |(code, words)| Ended::Refused(code, words));
            }
            None => return Ended::Gone,
        }
    }
}

/// A message may be laid out over several lines; a line for the agent may not. Line ends are white space in JSON, and
/// cannot occur within its strings (RFC 8259 section 7), so a blank says the same.
fn one_line(text: Utf8Bytes) -> Bytes {
    flat(text.into())
}

pub(super) fn flat(line: Bytes) -> Bytes {
    let Some(mut at) = memchr2(b'\n', b'\r', &line) else { return line };
    let mut flat = Vec::from(line);
    flat[at] = b' ';
    while let Some(further) = memchr2(b'\n', b'\r', &flat[at..]) {
        at += further;
        flat[at] = b' ';
    }
    flat.into()
}

async fn write(sink: &mut SplitSink<Socket, Message>, backlog: &Backlog, pulse: &Pulse) -> Ended {
    let mut pings = pulse::pings();
    loop {
        let item = tokio::select! {
            item = backlog.next() => item,
            _ = pings.tick() => {
                if !pulse.ping(sink).await {
                    return Ended::Gone;
                }
                continue;
            }
        };
        let sent = match item {
            Item::Line(line) => send_line(sink, line).await.map_err(|_| NotSent::Gone),
            Item::Journal { file, length } => {
                send_journal(sink, BufReader::new(file.take(length))).await
            }
            Item::Close(code, reason) => return Ended::Refused(code, reason),
        };
        let sent = match sent {
            Ok(()) if backlog.is_empty() => sink.flush().await.map_err(|_| NotSent::Gone),
            sent => sent,
        };
        match sent {
            Ok(()) => {}
            Err(NotSent::Gone) => return Ended::Gone,
            Err(NotSent::Unreadable(error)) => {
                tracing::error!(%error, "a journal cannot be read");
                return Ended::Refused(close::INTERNAL, UNREADABLE.to_owned());
            }
        }
    }
}

/// Why something was not sent.
enum NotSent {
    /// Nobody takes it.
    Gone,
    /// It could not be read.
    Unreadable(io::Error),
}

async fn send_line(sink: &mut SplitSink<Socket, Message>, line: Bytes) -> Result<(), Error> {
    let Ok(text) = Utf8Bytes::try_from(line) else {
        tracing::error!("a line that is not UTF-8 was not sent");
        return Ok(());
    };
    if text.len() <= FRAGMENT {
        return sink.feed(Message::Text(text)).await;
    }
    let mut rest = Bytes::from(text);
    let mut kind = Data::Text;
    while !rest.is_empty() {
        let fragment = rest.split_to(rest.len().min(FRAGMENT));
        let fragment = Frame::message(fragment, OpCode::Data(kind), rest.is_empty());
        sink.feed(Message::Frame(fragment)).await?;
        kind = Data::Continue;
    }
    Ok(())
}

async fn send_journal(
    sink: &mut SplitSink<Socket, Message>,
    mut journal: impl io::BufRead,
) -> Result<(), NotSent> {
    loop {
        let mut line = Vec::new();
        // A local file: read without a thread of its own, a line at a time, as fast as the client takes them.
        if journal.read_until(b'\n', &mut line).map_err(NotSent::Unreadable)? == 0 {
            return Ok(());
        }
        line.pop_if(|byte| *byte == b'\n');
        send_line(sink, line.into()).await.map_err(|_| NotSent::Gone)?;
    }
}

pub(super) fn frame(code: u16, mut reason: String) -> CloseFrame {
    let end = reason.floor_char_boundary(LONGEST_REASON);
    reason.truncate(end);
    CloseFrame { code: CloseCode::from(code), reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_over_several_lines_becomes_one() {
        assert_eq!(one_line("{\r\n \"a\":\"\\n\"\n}".into()), "{   \"a\":\"\\n\" }");
    }

    #[test]
    fn a_reason_fits_a_control_frame_and_stays_text() {
        let frame = frame(4003, "ü".repeat(100));
        assert_eq!(frame.reason.len(), 122);
    }
}
