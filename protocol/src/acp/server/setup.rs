//! `session/new`, `load`, `resume`, `fork`: where a conversation comes from.
//!
//! The agent sets each conversation up once a generation. Who asks for one that lives is answered from the journal and
//! the stored result: agents mix up turns, or refuse, when a live conversation is loaded again.

use std::ops::Range;

use super::calls::{Call, Purpose, is_error};
use super::conversations::Opening;
use super::handshake::cannot_load;
use super::{Action, Conn, Server, lines};
use crate::acp::continuity::record::Entry;
use crate::acp::continuity::{Outcome, meta};
use crate::acp::frame::{self, Frame};
use crate::codes::rpc;

// === impl Server ===

impl Server {
    /// A client asked for a conversation.
    pub(super) fn setup(&mut self, conn: Conn, frame: &Frame<'_>, out: &mut Vec<Action>) {
        let id = frame.id().unwrap_or("null");
        let Some(mut edits) = rewrite(frame, &self.settings.worktree) else {
            let message = format!("params of {} must be an object", frame.method());
            return self.refuse(conn, id, rpc::INVALID_PARAMS, &message, out);
        };
        let shows = match frame.method() {
            "session/load" => true,
            "session/resume" => false,
            _ => {
                self.forward(conn, frame, Purpose::New, edits, out);
                return;
            }
        };
        let Some(session) = frame.session().and_then(frame::string) else {
            let message = "params.sessionId is missing or not a string";
            return self.refuse(conn, id, rpc::INVALID_PARAMS, message, out);
        };
        if self.conversations.is_live(&session) {
            return self.tell_again(conn, id, &session, shows, out);
        }
        if let Some(opening) = self.conversations.opening.get_mut(&*session) {
            return opening.waiters.push((conn, id.to_owned(), shows));
        }
        let loads = self.handshake.loads();
        if shows && loads == Some(false) {
            let message = cannot_load(&self.handshake);
            self.has_failed(&session, &message, None);
            out.push(Action::Recall { session: session.into_owned() });
            return self.refuse(conn, id, rpc::NOT_FOUND, &message, out);
        }
        let replays = shows || loads == Some(true);
        if replays && !shows {
            // Only a replay shows that it is the same conversation; whoever asked does not see it.
            edits.extend(as_load(frame));
        }
        self.conversations.own(&session);
        if replays {
            out.push(Action::ForgetJournal { session: session.to_string() });
        }
        out.push(Action::Recall { session: session.to_string() });
        let opening = Opening { conn, shows, replays, recorded: None, waiters: Vec::new() };
        self.conversations.opening.insert(session.to_string(), opening);
        self.forward(conn, frame, Purpose::Open(session.into_owned()), edits, out);
    }

    /// The agent answered `session/new` or `session/fork`.
    pub(super) fn created(&mut self, call: &Call, frame: &Frame<'_>, out: &mut Vec<Action>) {
        let session = frame.get_string(&["result", "sessionId"]).filter(|_| !is_error(frame));
        let Some(session) = session else { return self.hand_back(call, frame, out) };
        if self.conversations.own(&session) {
            out.push(Action::ForgetJournal { session: session.to_string() });
        }
        // Before it is the newest: whoever comes after a crash in between loads the one before it again.
        let anew = self.begins_anew(&session, out);
        self.now_lives(&session, frame, out);
        out.push(Action::Record { session: session.to_string(), entry: Entry::Begin });
        if anew {
            self.hand_outcome(call, frame, Outcome::Reset, out);
        } else {
            self.hand_back(call, frame, out);
        }
        self.attach(call.conn, &session, out);
    }

    /// The agent answered `session/load` or `session/resume`.
    pub(super) fn opened(
        &mut self,
        call: &Call,
        session: &str,
        frame: &Frame<'_>,
        out: &mut Vec<Action>,
    ) {
        let mut opening = self.conversations.opening.remove(session);
        if is_error(frame) {
            // What it replayed before it failed is no conversation.
            if opening.as_ref().is_some_and(|opening| opening.replays) {
                out.push(Action::ForgetJournal { session: session.to_owned() });
            }
            let sent = opening.as_ref().and_then(|opening| Some(opening.recorded.as_ref()?.0));
            let error = self.load_error(session, sent, frame);
            let waiters = opening.into_iter().flat_map(|opening| opening.waiters);
            let first = (call.conn, call.id.clone(), false);
            for (conn, id, _) in std::iter::once(first).chain(waiters) {
                self.hand_edited(conn, &id, frame, "error", error.clone(), out);
            }
            return;
        }
        self.now_lives(session, frame, out);
        let recorded = opening.as_mut().and_then(|opening| opening.recorded.take());
        let replays = opening.as_ref().is_some_and(|opening| opening.replays);
        let outcome = self.judge(session, recorded, replays, out);
        self.hand_outcome(call, frame, outcome, out);
        self.attach(call.conn, session, out);
        for (conn, id, replay) in opening.into_iter().flat_map(|opening| opening.waiters) {
            self.tell_again(conn, &id, session, replay, out);
        }
    }

    /// Answers for a conversation that lives.
    fn tell_again(
        &mut self,
        conn: Conn,
        id: &str,
        session: &str,
        replay: bool,
        out: &mut Vec<Action>,
    ) {
        if !self.is_current(conn) {
            return;
        }
        if replay {
            out.push(Action::Replay { conn, session: session.to_owned() });
        }
        let result = self.conversations.result(session).unwrap_or("{}");
        let result = meta::result(result, Outcome::Resumed);
        self.reply(conn, id, &result, out);
        self.attach(conn, session, out);
    }

    fn now_lives(&mut self, session: &str, frame: &Frame<'_>, out: &mut Vec<Action>) {
        self.conversations.begin(session, frame.part("result").unwrap_or("{}"));
        if self.saved.acp_session.as_deref() != Some(session) {
            self.saved.acp_session = Some(session.to_owned());
            out.push(Action::Save(self.saved.clone()));
        }
    }

    /// From now on this client sees the conversation's updates, and the permissions that waited for somebody.
    pub(super) fn attach(&mut self, conn: Conn, session: &str, out: &mut Vec<Action>) {
        let Some(client) = self.client.as_mut().filter(|client| client.conn == conn) else {
            return;
        };
        client.attached.insert(session.to_owned());
        client.ready = true;
        self.deliver_asks(out);
    }
}

/// The edits that make a resume a load, which wants `mcpServers`.
fn as_load(frame: &Frame<'_>) -> Vec<(Range<usize>, String)> {
    let method = frame.locate(&["method"]).map(|range| (range, "\"session/load\"".to_owned()));
    let end = frame.locate(&["params"]).map(|params| params.end - 1);
    let none = frame.locate(&["params", "mcpServers"]).is_none();
    let servers = end.filter(|_| none).map(|end| (end..end, r#","mcpServers":[]"#.to_owned()));
    method.into_iter().chain(servers).collect()
}

/// The edits of a setup call: the agent works in the worktree, and with nothing that the client's machine offers.
/// `None` where `params` is no object.
fn rewrite(frame: &Frame<'_>, worktree: &str) -> Option<Vec<(Range<usize>, String)>> {
    let params = frame.locate(&["params"])?;
    let members = frame::object(&frame.text()[params.clone()])?;
    let cwd = lines::quote(worktree);
    let mut edits = Vec::new();
    for name in ["additionalDirectories", "mcpServers"] {
        if let Some(range) = frame.locate(&["params", name]) {
            edits.push((range, "[]".to_owned()));
        }
    }
    match frame.locate(&["params", "cwd"]) {
        Some(range) => edits.push((range, cwd)),
        None => {
            let at = params.start + 1;
            let comma = if members.is_empty() { "" } else { "," };
            edits.push((at..at, format!(r#""cwd":{cwd}{comma}"#)));
        }
    }
    Some(edits)
}
