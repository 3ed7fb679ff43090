//! What clients send: one connection at a time, `initialize` first, then each message to the part that knows it.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::{Action, Agent, Conn, Server};
use crate::acp::fault::error_line;
use crate::acp::frame::{Frame, FrameError, Kind, Outline, Owed};
use crate::codes::{Delivery, close, rpc};

/// The connected client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) conn: Conn,
    /// It has said `initialize`.
    greeted: bool,
    /// And been answered.
    pub(super) answered: bool,
    /// It opened a conversation or prompted: it can make sense of a permission request.
    pub(super) ready: bool,
    /// The conversations whose updates it gets.
    pub(super) attached: BTreeSet<String>,
    /// Lines that it has sent.
    pub(super) arrived: u64,
}

/// Methods that are requests; as notifications they would slip past what is done about them.
const REQUESTS: [&str; 8] = [
    "initialize",
    "session/new",
    "session/load",
    "session/resume",
    "session/fork",
    "session/prompt",
    "session/close",
    "session/delete",
];

/// Methods that are notifications, for the same reason.
const NOTIFICATIONS: [&str; 2] = ["session/cancel", "$/cancel_request"];

// === impl Server ===

impl Server {
    /// A client connected. The one before is closed.
    pub(super) fn connected(&mut self, conn: Conn, now: u64, out: &mut Vec<Action>) {
        if let Some(old) = self.client.as_ref().map(|client| client.conn) {
            let reason = "a newer client attached to this session";
            self.close(old, close::SUPERSEDED, reason, now, out);
        }
        self.client = Some(Client {
            conn,
            greeted: false,
            answered: false,
            ready: false,
            attached: BTreeSet::new(),
            arrived: 0,
        });
    }

    /// A client is gone; what it began goes on.
    pub(super) fn disconnected(&mut self, conn: Conn, now: u64, out: &mut Vec<Action>) {
        if !self.is_current(conn) {
            return;
        }
        self.client = None;
        self.forget_waiting(conn, out);
        self.take_asks_back(conn, now, out);
    }

    fn close(&mut self, conn: Conn, code: u16, reason: &str, now: u64, out: &mut Vec<Action>) {
        self.disconnected(conn, now, out);
        out.push(Action::Close(conn, code, reason.to_owned()));
    }

    /// Whether this is the connection that answers go to.
    pub(super) fn is_current(&self, conn: Conn) -> bool {
        self.client.as_ref().is_some_and(|client| client.conn == conn)
    }

    /// A client sent a line.
    pub(super) fn client_sent(
        &mut self,
        conn: Conn,
        line: &Bytes,
        now: u64,
        out: &mut Vec<Action>,
    ) {
        let Some(client) = self.client.as_mut().filter(|client| client.conn == conn) else {
            return;
        };
        client.arrived += 1;
        let greeted = client.greeted;
        if greeted && line.is_empty() {
            return;
        }
        let parsed = Frame::of(line);
        let begins =
            |frame: &Frame<'_>| frame.kind() == Kind::Request && frame.method() == "initialize";
        if !greeted && !parsed.as_ref().is_ok_and(begins) {
            let reason = "the first message must be an initialize request";
            return self.close(conn, close::PROTOCOL, reason, now, out);
        }
        let frame = match parsed {
            Ok(frame) => frame,
            Err(error) => return self.client_misspoke(conn, line, &error, out),
        };
        client.greeted = true;
        match frame.on_one_line() {
            None => self.dispatch(conn, &frame, now, out),
            Some(flat) => {
                let frame = Frame::of(&flat).expect("spaces between tokens change nothing");
                self.dispatch(conn, &frame, now, out);
            }
        }
    }

    /// A line that is no message is refused under its own id, where that can be told. The agent waits for an answer.
    fn client_misspoke(
        &mut self,
        conn: Conn,
        line: &[u8],
        error: &FrameError,
        out: &mut Vec<Action>,
    ) {
        let code = match error {
            FrameError::NotUtf8 { .. } | FrameError::NotJson(_) => rpc::PARSE,
            _ => rpc::INVALID_REQUEST,
        };
        let owed = Outline::of(line).owed;
        if let Owed::Asker(id) = &owed {
            let text = format!("the client's answer was dropped: {error}");
            let failed = error_line(id, rpc::INTERNAL, &text, None);
            if let Ok(frame) = Frame::parse(&failed) {
                self.client_answered(conn, &frame, out);
            }
        }
        let id = if let Owed::Sender(id) = &owed { id } else { "null" };
        out.push(Action::ToClient(conn, error_line(id, code, &error.to_string(), None).into()));
    }

    /// A client sent a line ahead of others: a cancel, and nothing else.
    pub(super) fn client_hurried(
        &mut self,
        conn: Conn,
        line: &Bytes,
        now: u64,
        out: &mut Vec<Action>,
    ) {
        let Some(client) = self.client.as_ref().filter(|client| client.conn == conn) else {
            return;
        };
        let greeted = client.greeted;
        let cancels = |frame: &Frame<'_>| {
            frame.kind() == Kind::Notification && NOTIFICATIONS.contains(&frame.method())
        };
        match Frame::of(line) {
            Ok(frame) if greeted && cancels(&frame) => self.dispatch(conn, &frame, now, out),
            _ => {
                let reason = "only a cancel goes ahead of other messages";
                self.close(conn, close::PROTOCOL, reason, now, out);
            }
        }
    }

    fn dispatch(&mut self, conn: Conn, frame: &Frame<'_>, now: u64, out: &mut Vec<Action>) {
        let method = frame.method();
        match frame.kind() {
            Kind::Request if matches!(self.agent, Agent::Ended { .. }) => {
                self.mourn(conn, frame.id().unwrap_or("null"), Delivery::NotDelivered, out);
            }
            Kind::Request if NOTIFICATIONS.contains(&method) => {
                let message = format!("{method} is a notification: send it without an id");
                let id = frame.id().unwrap_or("null");
                self.refuse(conn, id, rpc::INVALID_REQUEST, &message, out);
            }
            Kind::Request => match method {
                "initialize" => self.initialize(conn, frame, now, out),
                "session/new" | "session/load" | "session/resume" | "session/fork" => {
                    self.setup(conn, frame, out);
                }
                "session/prompt" => self.prompt(conn, frame, now, out),
                _ => self.pass(conn, frame, out),
            },
            Kind::Notification if REQUESTS.contains(&method) => {
                out.push(Action::Log(format!("a client sent {method} without an id: dropped")));
            }
            Kind::Notification => match method {
                "session/cancel" => self.cancel(frame, out),
                "$/cancel_request" => self.cancel_request(conn, frame, out),
                _ if matches!(self.agent, Agent::Running) => {
                    out.push(Action::ToAgent(frame.line()));
                }
                _ => {}
            },
            Kind::Response => self.client_answered(conn, frame, out),
        }
    }
}
