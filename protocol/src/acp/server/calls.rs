//! Client requests that the agent has not answered: who asked under which id, and what the answer changes here.
//!
//! Ids towards the agent are integers that never come twice in a generation, so an answer finds its asker or nobody.

use std::collections::BTreeMap;

use super::{Action, Conn, Server, lines};
use crate::acp::fault::error_line;
use crate::acp::frame::{Frame, Kind};

/// What an answer is used for besides being handed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Purpose {
    /// `initialize`.
    Initialize,
    /// `session/new` or `session/fork`: the result names the conversation.
    New,
    /// `session/load` or `session/resume` of a conversation that did not live here.
    Open(String),
    /// `session/prompt`.
    Prompt,
    /// `session/close`.
    Close(String),
    /// `session/delete`.
    Delete(String),
    /// A choice that the setup result shows: conversation, path in that result, raw value.
    Choice(String, [&'static str; 2], String),
    /// `session/set_config_option`: the result holds all options anew.
    Options(String),
    /// Nothing.
    Pass,
}

/// One open request.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) conn: Conn,
    /// The client's own id, byte for byte.
    pub(super) id: String,
    pub(super) purpose: Purpose,
}

/// All open requests by the id that the agent knows.
#[derive(Debug, Default)]
pub(super) struct Calls {
    last: u64,
    pub(super) open: BTreeMap<u64, Call>,
}

// === impl Calls ===

impl Calls {
    /// Notes a request and names it for the agent.
    pub(super) fn begin(&mut self, call: Call) -> u64 {
        self.last += 1;
        self.open.insert(self.last, call);
        self.last
    }
}

// === impl Server ===

impl Server {
    /// Forwards a client's request under a new id, with further edits.
    pub(super) fn forward(
        &mut self,
        conn: Conn,
        frame: &Frame<'_>,
        purpose: Purpose,
        mut edits: Vec<(std::ops::Range<usize>, String)>,
        out: &mut Vec<Action>,
    ) -> u64 {
        let id = frame.id().unwrap_or("null").to_owned();
        let call = self.calls.begin(Call { conn, id, purpose });
        edits.extend(frame.id_range().map(|range| (range, call.to_string())));
        out.push(Action::ToAgent(frame.splice(edits).into()));
        call
    }

    /// Forwards a request that needs no treatment of its own.
    pub(super) fn pass(&mut self, conn: Conn, frame: &Frame<'_>, out: &mut Vec<Action>) {
        let named = frame.session().and_then(crate::acp::frame::string).map(String::from);
        let choice = |path: [&'static str; 2], session: String, member: &str| match frame
            .get(&["params", member])
        {
            Some(raw) => Purpose::Choice(session, path, raw.to_owned()),
            None => Purpose::Pass,
        };
        let purpose = match (frame.method(), named) {
            ("session/close", Some(session)) => {
                self.drop_waiting(Some(&session), out);
                self.cancel_asks(&session, out);
                Purpose::Close(session)
            }
            ("session/delete", Some(session)) => Purpose::Delete(session),
            ("session/set_mode", Some(session)) => {
                choice(["modes", "currentModeId"], session, "modeId")
            }
            ("session/set_model", Some(session)) => {
                choice(["models", "currentModelId"], session, "modelId")
            }
            ("session/set_config_option", Some(session)) => Purpose::Options(session),
            _ => Purpose::Pass,
        };
        self.forward(conn, frame, purpose, Vec::new(), out);
    }

    /// The agent answered one of our requests.
    pub(super) fn answered(&mut self, frame: &Frame<'_>, now: u64, out: &mut Vec<Action>) {
        let Some((key, call)) =
            frame.integer_id().and_then(|key| self.calls.open.remove_entry(&key))
        else {
            let id: String = frame.id().unwrap_or("none").chars().take(40).collect();
            out.push(Action::Log(format!("the agent answered an unknown request, id {id}")));
            return;
        };
        let result = frame.part("result").filter(|_| !is_error(frame));
        match call.purpose {
            Purpose::Initialize => self.greeted(frame, out),
            Purpose::New => self.created(&call, frame, out),
            Purpose::Open(ref session) => self.opened(&call, session, frame, out),
            Purpose::Prompt => {
                self.sum_refusals(out);
                if is_error(frame) {
                    self.prompt_refused(out);
                }
                self.hand_back(&call, frame, out);
                self.turn_ended(key, now);
            }
            Purpose::Close(ref session) => {
                if result.is_some() {
                    self.conversations.end(session);
                }
                self.hand_back(&call, frame, out);
            }
            Purpose::Delete(ref session) => {
                if result.is_some() {
                    self.conversations.end(session);
                    out.push(Action::ForgetJournal { session: session.clone() });
                }
                self.hand_back(&call, frame, out);
            }
            Purpose::Choice(ref session, path, ref value) => {
                if result.is_some() {
                    self.conversations.choose(session, &path, value);
                }
                self.hand_back(&call, frame, out);
            }
            Purpose::Options(ref session) => {
                if let Some(options) =
                    result.and_then(|raw| crate::acp::frame::member(raw, &["configOptions"]))
                {
                    self.conversations.choose(session, &["configOptions"], options);
                }
                self.hand_back(&call, frame, out);
            }
            Purpose::Pass => self.hand_back(&call, frame, out),
        }
    }

    /// Sends the agent's answer to whoever asked, under the asker's own id; to nobody if that connection is gone.
    pub(super) fn hand_back(&self, call: &Call, frame: &Frame<'_>, out: &mut Vec<Action>) {
        self.hand_to(call.conn, &call.id, frame, out);
    }

    /// Sends the agent's answer under `id`.
    pub(super) fn hand_to(&self, conn: Conn, id: &str, frame: &Frame<'_>, out: &mut Vec<Action>) {
        if let Some(range) = frame.id_range().filter(|_| self.is_current(conn)) {
            out.push(Action::ToClient(conn, frame.splice(vec![(range, id.to_owned())]).into()));
        }
    }

    /// Answers a client's request ourselves.
    pub(super) fn reply(&self, conn: Conn, id: &str, result: &str, out: &mut Vec<Action>) {
        if self.is_current(conn) {
            out.push(Action::ToClient(conn, lines::result(id, result).into()));
        }
    }

    /// Refuses a client's request ourselves.
    pub(super) fn refuse(
        &self,
        conn: Conn,
        id: &str,
        code: i64,
        message: &str,
        out: &mut Vec<Action>,
    ) {
        if self.is_current(conn) {
            out.push(Action::ToClient(conn, error_line(id, code, message, None).into()));
        }
    }
}

/// An error response; a null `error` beside a result is none.
pub(super) fn is_error(frame: &Frame<'_>) -> bool {
    frame.kind() == Kind::Response && frame.part("error").is_some_and(|error| error != "null")
}
