//! The connections of both doors with an echo behind them and nothing of ACP, for `conformance/websocket`: each with its reading, writing
//! and closing as it serves.

use casemate_protocol::acp::frame::MAX_LINE;
use futures_util::{SinkExt as _, StreamExt as _};
use hyper::upgrade::Upgraded;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::Data;
use tokio_tungstenite::tungstenite::{Error, Message};

use super::pulse::{self, CLOSING};
use super::resumable::parting;
use super::socket::frame;

/// What a message is to an echo.
enum Heard {
    Say(Message),
    Nothing,
    /// The peer closed, or is to be told why we do.
    Close(Option<CloseFrame>),
    Gone,
}

fn heard(message: Option<Result<Message, Error>>) -> Heard {
    match message {
        Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => Heard::Say(message),
        Some(Ok(Message::Close(_))) => Heard::Close(None),
        Some(Ok(_)) => Heard::Nothing,
        Some(Err(error)) => pulse::breach(&error)
            .map_or(Heard::Gone, |(code, words)| Heard::Close(Some(frame(code, words)))),
        None => Heard::Gone,
    }
}

/// As the plain door is served.
pub async fn plain(stream: Upgraded) {
    let (socket, pulse) = pulse::open(stream, MAX_LINE).await;
    let (mut sink, mut stream) = socket.split();
    loop {
        match heard(pulse.next(&mut stream).await) {
            Heard::Say(message) => {
                if sink.send(message).await.is_err() {
                    return;
                }
            }
            Heard::Nothing => {}
            Heard::Close(frame) => return pulse::close(&mut sink, &mut stream, frame).await,
            Heard::Gone => return,
        }
    }
}

/// As the resumable door is.
pub async fn apart(stream: Upgraded) {
    let (mut stream, mut sender, pulse) = pulse::open_apart(stream, MAX_LINE).await;
    loop {
        let next = tokio::select! {
            next = pulse.next(&mut stream) => heard(next),
            () = sender.news() => Heard::Nothing,
        };
        match next {
            Heard::Say(Message::Text(text)) => sender.message(Data::Text, text.into()),
            Heard::Say(message) => sender.message(Data::Binary, message.into_data()),
            Heard::Nothing => {}
            Heard::Close(frame) => {
                let _ = timeout(CLOSING, parting(&mut stream, &mut sender, frame)).await;
                return;
            }
            Heard::Gone => return,
        }
        if sender.send().await.is_err() {
            return;
        }
    }
}
