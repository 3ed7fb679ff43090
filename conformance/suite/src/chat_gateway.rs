//! OpenAB's custom gateway, played from the chat's side.
//!
//! The broker dials in over WebSocket, receives chat messages as `openab.gateway.event.v1`, and sends replies, edits
//! and reactions (openabdev/openab, `crates/openab-core/src/gateway.rs`). Everything that it posted is kept by thread.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;

use crate::background::Background;

/// The platform's name, in the broker's configuration and in every event.
pub const PLATFORM: &str = "stub";

/// One message that the broker posted, with its edits applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posted {
    /// The thread.
    pub thread: String,
    /// Our name of the message.
    id: String,
    /// Its text.
    pub text: String,
}

#[derive(Debug, Default)]
struct Chat {
    posted: Vec<Posted>,
    /// To the broker that is connected now.
    broker: Option<mpsc::UnboundedSender<Message>>,
    events: u64,
}

#[derive(Debug, Default)]
struct Shared {
    chat: Mutex<Chat>,
    changed: Condvar,
}

/// A running gateway.
#[derive(Debug)]
pub struct ChatGateway {
    server: Background,
    shared: Arc<Shared>,
}

// === impl ChatGateway ===

impl ChatGateway {
    /// Starts one.
    ///
    /// # Errors
    /// Where no port or thread is to be had.
    pub fn start() -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let server = Background::start("chat-gateway", move |stream| {
            let shared = Arc::clone(&theirs);
            async move { serve(stream, shared).await }
        })?;
        Ok(Self { server, shared })
    }

    /// Where a broker dials.
    #[must_use]
    pub fn url(&self) -> String {
        format!("ws://127.0.0.1:{}/ws", self.server.port())
    }

    /// Waits until a broker is connected; false when none came in time.
    #[must_use]
    pub fn wait_for_broker(&self, within: Duration) -> bool {
        self.wait(within, |chat| chat.broker.is_some().then_some(())).is_some()
    }

    /// Plays a chat message; false where no broker is connected.
    #[must_use]
    pub fn say(&self, thread: &str, text: &str) -> bool {
        let mut chat = self.shared.lock();
        chat.events += 1;
        let number = chat.events;
        let event = json!({
            "schema": "openab.gateway.event.v1",
            "event_id": format!("event-{number}"),
            "timestamp": "2026-01-02T03:04:05Z",
            "platform": PLATFORM,
            "event_type": "message",
            "channel": {"id": "C1", "type": "group", "thread_id": thread},
            "sender": {"id": "u1", "name": "u1", "display_name": "U1", "is_bot": false},
            "content": {"type": "text", "text": text, "attachments": []},
            "mentions": [],
            "message_id": format!("message-{number}"),
        });
        chat.broker
            .as_ref()
            .is_some_and(|broker| broker.send(Message::text(event.to_string())).is_ok())
    }

    /// Waits for a message in a thread that contains `part`; gives back its text.
    #[must_use]
    pub fn expect(&self, thread: &str, part: &str, within: Duration) -> Option<String> {
        self.wait(within, |chat| {
            chat.posted
                .iter()
                .find(|posted| posted.thread == thread && posted.text.contains(part))
                .map(|posted| posted.text.clone())
        })
    }

    /// All that was posted in a thread, oldest first.
    #[must_use]
    pub fn posted(&self, thread: &str) -> Vec<String> {
        let chat = self.shared.lock();
        chat.posted
            .iter()
            .filter(|posted| posted.thread == thread)
            .map(|posted| posted.text.clone())
            .collect()
    }

    fn wait<T>(&self, within: Duration, look: impl Fn(&Chat) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + within;
        let mut chat = self.shared.lock();
        loop {
            if let Some(found) = look(&chat) {
                return Some(found);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            chat = self
                .shared
                .changed
                .wait_timeout(chat, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

// === impl Shared ===

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Chat> {
        self.chat.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one frame of the broker in.
    fn take(&self, reply: &Value) {
        let mut chat = self.lock();
        let channel = &reply["channel"];
        let thread = channel["thread_id"].as_str().or(channel["id"].as_str()).unwrap_or_default();
        let text = reply["content"]["text"].as_str().unwrap_or_default();
        let mut answer = None;
        match reply["command"].as_str() {
            None => {
                let id = format!("reply-{}", chat.posted.len() + 1);
                answer = Some(("message_id", id.clone()));
                chat.posted.push(Posted { thread: thread.into(), id, text: text.into() });
            }
            Some("edit_message") => {
                let edited = reply["reply_to"].as_str().unwrap_or_default();
                if let Some(posted) = chat.posted.iter_mut().find(|posted| posted.id == edited) {
                    text.clone_into(&mut posted.text);
                }
            }
            Some("create_topic") => answer = Some(("thread_id", format!("topic-{thread}"))),
            // Reactions tell a person that the broker is at work; nothing here depends on them.
            Some(_) => {}
        }
        if let (Some((field, value)), Some(request)) = (answer, reply["request_id"].as_str()) {
            let mut response = json!({
                "schema": "openab.gateway.response.v1", "request_id": request, "success": true,
                "thread_id": null, "message_id": null, "error": null,
            });
            response[field] = json!(value);
            if let Some(broker) = &chat.broker {
                broker.send(Message::text(response.to_string())).ok();
            }
        }
        self.changed.notify_all();
    }
}

/// One broker's connection, until it ends.
async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let Ok(socket) = tokio_tungstenite::accept_async(stream).await else {
        return;
    };
    let (mut sink, mut source) = socket.split();
    let (broker, mut outgoing) = mpsc::unbounded_channel();
    shared.lock().broker = Some(broker.clone());
    shared.changed.notify_all();
    loop {
        tokio::select! {
            message = outgoing.recv() => match message {
                Some(message) => if sink.send(message).await.is_err() { break },
                None => break,
            },
            message = source.next() => match message {
                Some(Ok(Message::Text(text))) => {
                    if let Ok(reply) = serde_json::from_str(&text) {
                        shared.take(&reply);
                    }
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => break,
                Some(Ok(_)) => {}
            },
        }
    }
    let mut chat = shared.lock();
    // A restarted broker may have connected before the old connection was seen to end.
    if chat.broker.as_ref().is_some_and(|current| current.same_channel(&broker)) {
        chat.broker = None;
    }
}
