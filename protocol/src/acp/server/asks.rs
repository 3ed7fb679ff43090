//! Requests of the agent that no client has answered: who has them, which wait, and until when.
//!
//! Each is answered to the agent exactly once: by the client that it was delivered to, or by us.

use bytes::Bytes;

use super::{Action, Conn, Server, lines};
use crate::acp::fault::error_line;
use crate::acp::frame::{self, Frame, canonical};
use crate::codes::rpc;

/// How many may be open at once. An agent that goes on asking is answered with an error.
const MOST: usize = 256;

/// How many bytes of them may be kept; one that is open alone may be as long as a line.
const MOST_BYTES: usize = 16 * 1024 * 1024;

/// What ends a permission request that nobody can answer any more.
const CANCELLED: &str = r#"{"outcome":{"outcome":"cancelled"}}"#;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A client has it.
    With(Conn),
    /// For the next client, until then (a permission only).
    Waiting { until: u64 },
}

/// One open request of the agent.
#[derive(Debug)]
struct Ask {
    /// The agent's id, byte for byte, and in one spelling.
    id: String,
    key: String,
    /// Only a permission is kept for another delivery.
    permission: Option<Bytes>,
    session: Option<String>,
    place: Place,
}

/// All of them, oldest first.
#[derive(Debug, Default)]
pub(super) struct Asks(Vec<Ask>);

// === impl Ask ===

impl Ask {
    /// The memory that it holds.
    fn bytes(&self) -> usize {
        let session = self.session.as_ref().map_or(0, String::len);
        let permission = self.permission.as_ref().map_or(0, Bytes::len);
        self.id.len() + self.key.len() + session + permission
    }
}

// === impl Asks ===

impl Asks {
    /// Whether one more may be open.
    fn has_room(&self, ask: &Ask) -> bool {
        let bytes: usize = self.0.iter().map(Ask::bytes).sum();
        self.0.is_empty() || (self.0.len() < MOST && bytes + ask.bytes() <= MOST_BYTES)
    }

    /// When the first waiting one must be answered by us.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.0
            .iter()
            .filter_map(|ask| match ask.place {
                Place::Waiting { until } => Some(until),
                Place::With(_) => None,
            })
            .min()
    }

    /// The agent is gone: nobody wants an answer.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

// === impl Server ===

impl Server {
    /// The agent asks its client something.
    pub(super) fn asked(&mut self, frame: &Frame<'_>, now: u64, out: &mut Vec<Action>) {
        let id = frame.id().unwrap_or("null");
        let key = canonical(id);
        if self.asks.0.iter().any(|ask| ask.key == key) {
            return out.push(Action::Log(format!(
                "the agent reused the id of an open {} request: dropped",
                frame.method()
            )));
        }
        let permission = frame.method() == "session/request_permission";
        let client = self.client.as_ref().filter(|client| client.answered);
        let place = match client {
            Some(client) if client.ready || !permission => Place::With(client.conn),
            _ if permission => Place::Waiting { until: self.permission_deadline(now) },
            _ => return out.push(Action::AnswerAgent(nobody(id, frame.method()).into())),
        };
        let ask = Ask {
            id: id.to_owned(),
            key,
            permission: permission.then(|| Bytes::copy_from_slice(frame.text().as_bytes())),
            session: frame.session().and_then(frame::string).map(String::from),
            place,
        };
        if !self.asks.has_room(&ask) {
            let message = "too many open requests: wait for answers first";
            let line = error_line(id, rpc::INTERNAL, message, None);
            return out.push(Action::AnswerAgent(line.into()));
        }
        if let Place::With(conn) = place {
            out.push(Action::ToClient(conn, frame.line()));
        }
        self.asks.0.push(ask);
    }

    /// A client answered something.
    pub(super) fn client_answered(&mut self, conn: Conn, frame: &Frame<'_>, out: &mut Vec<Action>) {
        let key = frame.id().map(canonical).unwrap_or_default();
        let open = |ask: &Ask| ask.key == key && ask.place == Place::With(conn);
        let Some(index) = self.asks.0.iter().position(open) else {
            return out.push(Action::Log("a client answered a request that is not open".into()));
        };
        let ask = self.asks.0.remove(index);
        let range = frame.id_range().expect("it had a key");
        out.push(Action::ToAgent(frame.splice(vec![(range, ask.id)]).into()));
    }

    /// The agent takes a request back.
    pub(super) fn ask_withdrawn(&mut self, frame: &Frame<'_>, out: &mut Vec<Action>) {
        let key = frame.get(&["params", "requestId"]).map(canonical).unwrap_or_default();
        let Some(index) = self.asks.0.iter().position(|ask| ask.key == key) else { return };
        match self.asks.0[index].place {
            // The client's answer, which the agent is owed, comes as after any other request.
            Place::With(conn) => {
                out.push(Action::ToClient(conn, frame.line()));
            }
            Place::Waiting { .. } => {
                let ask = self.asks.0.remove(index);
                out.push(Action::AnswerAgent(lines::result(&ask.id, CANCELLED).into()));
            }
        }
    }

    /// Hands the waiting permissions to the client that is there now.
    pub(super) fn deliver_asks(&mut self, out: &mut Vec<Action>) {
        let Some(client) = self.client.as_ref().filter(|client| client.ready) else { return };
        for ask in &mut self.asks.0 {
            if let (Place::Waiting { .. }, Some(line)) = (ask.place, &ask.permission) {
                out.push(Action::ToClient(client.conn, line.clone()));
                ask.place = Place::With(client.conn);
            }
        }
    }

    /// A connection is gone: its permissions wait for the next client, all else is answered.
    pub(super) fn take_asks_back(&mut self, conn: Conn, now: u64, out: &mut Vec<Action>) {
        let until = self.permission_deadline(now);
        self.asks.0.retain_mut(|ask| {
            if ask.place != Place::With(conn) {
                return true;
            }
            if ask.permission.is_none() {
                out.push(Action::AnswerAgent(nobody(&ask.id, "").into()));
                return false;
            }
            ask.place = Place::Waiting { until };
            true
        });
    }

    /// Answers the permissions of a conversation whose turn is cancelled.
    pub(super) fn cancel_asks(&mut self, session: &str, out: &mut Vec<Action>) {
        self.cancel_asks_where(|ask| ask.session.as_deref() == Some(session), out);
    }

    /// Answers the permissions that nobody came for in time.
    pub(super) fn expire_asks(&mut self, now: u64, out: &mut Vec<Action>) {
        let due = |ask: &Ask| matches!(ask.place, Place::Waiting { until } if until <= now);
        self.cancel_asks_where(due, out);
    }

    fn cancel_asks_where(&mut self, wanted: impl Fn(&Ask) -> bool, out: &mut Vec<Action>) {
        self.asks.0.retain(|ask| {
            let ends = ask.permission.is_some() && wanted(ask);
            if ends {
                out.push(Action::AnswerAgent(lines::result(&ask.id, CANCELLED).into()));
            }
            !ends
        });
    }

    fn permission_deadline(&self, now: u64) -> u64 {
        now.saturating_add(self.settings.permission_ttl_ms)
    }
}

/// The answer to a request that no client is there for.
fn nobody(id: &str, method: &str) -> Vec<u8> {
    let host = method.starts_with("fs/") || method.starts_with("terminal/");
    let code = if host { rpc::METHOD_NOT_FOUND } else { rpc::INTERNAL };
    error_line(id, code, "no client is attached to answer this", None)
}
