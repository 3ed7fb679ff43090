//! What is said to a worker before the host's requests go through.
//!
//! Up to four requests of our own, one at a time: `initialize` (the host's, stripped), the `authenticate` that another
//! worker accepted, a load whose replay is swallowed (only where the host goes on as if nothing had happened), and, where
//! that fails, a `session/new`, of which the worker tells the user. Only then do waiting requests go out, so that an id of ours never meets
//! one of the host's.

use crate::acp::bridge::host::outgrown;
use crate::acp::bridge::session::{Kind, Sent, State, Step, Waiting};
use crate::acp::bridge::{
    Action, Bridge, Handshake, Link, Refusal, edit, handshake, message, wall,
};
use crate::acp::fault::Fault;
use crate::acp::frame::{self, Frame, MAX_LINE};
use crate::codes::{Delivery, rpc};

/// The id of our own requests: one at a time, before any of the host's.
pub(super) const OWN_ID: &str = "\"casemate\"";

impl Bridge {
    /// One of our own requests was answered.
    pub(super) fn prepared(
        &mut self,
        index: u64,
        link: Link,
        step: Step,
        frame: &Frame<'_>,
        out: &mut Vec<Action>,
    ) {
        match step {
            Step::Initialize => self.initialized(index, link, frame, out),
            // Refused: session/new will say so better than we could.
            Step::Authenticate => self.open(index, link, out),
            Step::Reload if frame.part("error").is_none() => self.ready(index, link, out),
            Step::Reload => {
                let Some(session) = self.sessions.get_mut(&index) else { return };
                session.state = State::Preparing(link, Step::Renew);
                let params = format!(r#"{{"cwd":{},"mcpServers":[]}}"#, session.cwd);
                out.push(Action::ToWorker(link, message::request(OWN_ID, "session/new", &params)));
            }
            Step::Renew => match frame.get_string(&["result", "sessionId"]) {
                Some(acp) => {
                    if let Some(session) = self.sessions.get_mut(&index) {
                        session.acp = Some(acp.into_owned());
                    }
                    self.ready(index, link, out);
                }
                None => {
                    let message = format!(
                        "the agent opened no conversation: {}; session/load tries again",
                        error_text(frame)
                    );
                    self.drop_link(index, link, out);
                    let refusal = Refusal { code: rpc::WORKER, message };
                    self.give_up(index, &refusal, Delivery::NotDelivered, out);
                }
            },
        }
    }

    fn initialized(&mut self, index: u64, link: Link, frame: &Frame<'_>, out: &mut Vec<Action>) {
        let shown = frame.part("result").map(|result| (result, wall::initialize_result(result)));
        let (result, shown) = match shown {
            Some((result, Ok(shown))) => (result, shown),
            Some((_, Err(error))) => {
                let message = format!("the agent's answer to initialize cannot be read: {error}");
                self.drop_link(index, link, out);
                let refusal = Refusal { code: rpc::WORKER, message };
                return self.give_up(index, &refusal, Delivery::NotDelivered, out);
            }
            None => {
                let text = error_text(frame);
                let message = match frame.part("error").and_then(Fault::of_error) {
                    Some(_) => text,
                    None => format!("the agent refused initialize: {text}"),
                };
                self.drop_link(index, link, out);
                let refusal = Refusal { code: rpc::WORKER, message };
                return self.give_up(index, &refusal, Delivery::NotDelivered, out);
            }
        };
        if let Some(session) = self.sessions.get_mut(&index) {
            session.can_load =
                frame.get(&["result", "agentCapabilities", "loadSession"]) == Some("true");
            session.can_resume = frame
                .get(&["result", "agentCapabilities", "sessionCapabilities", "resume"])
                .is_some_and(|raw| raw != "null" && raw != "false");
        }
        match self.handshake.clone() {
            Handshake::Asking { id, key, session } if session == index => {
                out.push(Action::StoreHandshake(key.clone(), result.to_owned()));
                if let Some(id) = id {
                    out.push(Action::ToHost(message::result(&id, &shown)));
                    self.handshake = Handshake::Known { key, result: result.to_owned() };
                } else {
                    self.handshake = Handshake::None;
                }
                if self.sessions.get(&index).is_some_and(|session| session.blank) {
                    self.discard(index, out);
                } else {
                    self.authenticated(index, link, out);
                }
                self.release_early(out);
            }
            Handshake::Known { key, result: stored } if !handshake::agrees(&stored, result) => {
                self.contradicted(index, link, key, result, out);
            }
            _ => self.authenticated(index, link, out),
        }
    }

    /// The worker's agent is not what the host was told. A new session fails; one that exists goes on with a notice, since
    /// the host needs its conversation more than a capability.
    fn contradicted(
        &mut self,
        index: u64,
        link: Link,
        key: String,
        result: &str,
        out: &mut Vec<Action>,
    ) {
        let Some(session) = self.sessions.get_mut(&index) else { return };
        let new = session.waiting.iter().any(|waiting| waiting.kind == Kind::New);
        if session.same_intent {
            out.push(Action::StoreHandshake(key, result.to_owned()));
        }
        if session.same_intent && new {
            self.drop_link(index, link, out);
            let message =
                "the agent changed since its capabilities were last told; start again".into();
            let refusal = Refusal { code: rpc::WORKER, message };
            return self.give_up(index, &refusal, Delivery::NotDelivered, out);
        }
        session.notices.push(if session.same_intent {
            "the agent changed since this program was started; restart it to use all that the agent can".into()
        } else {
            "this session was made with another agent command, which it keeps; close it to start with the new one".into()
        });
        self.authenticated(index, link, out);
    }

    /// After `initialize`: repeats the authentication that another worker accepted.
    fn authenticated(&mut self, index: u64, link: Link, out: &mut Vec<Action>) {
        let repeat = self.authenticate.as_deref().and_then(|line| {
            let frame = Frame::parse(line).ok()?;
            Some(frame.splice(vec![(frame.id_range()?, OWN_ID.into())]))
        });
        match (repeat, self.sessions.get_mut(&index)) {
            (Some(line), Some(session)) => {
                session.state = State::Preparing(link, Step::Authenticate);
                out.push(Action::ToWorker(link, line));
            }
            _ => self.open(index, link, out),
        }
    }

    /// Loads the conversation by itself where the host goes on as if it had never been away.
    fn open(&mut self, index: u64, link: Link, out: &mut Vec<Action>) {
        let Some(session) = self.sessions.get_mut(&index) else { return };
        let goes_on = session
            .waiting
            .front()
            .is_some_and(|waiting| matches!(waiting.kind, Kind::Prompt | Kind::Other));
        match &session.acp {
            Some(acp) if goes_on => {
                // Every agent that can load does it right; one was seen to advertise resume without having it.
                let method = if session.can_resume && !session.can_load {
                    "session/resume"
                } else {
                    "session/load"
                };
                let params = format!(
                    r#"{{"cwd":{},"mcpServers":[],"sessionId":{}}}"#,
                    session.cwd,
                    edit::quote(acp)
                );
                session.state = State::Preparing(link, Step::Reload);
                out.push(Action::ToWorker(link, message::request(OWN_ID, method, &params)));
            }
            _ => self.ready(index, link, out),
        }
    }

    /// Requests go through from now on.
    fn ready(&mut self, index: u64, link: Link, out: &mut Vec<Action>) {
        let Some(session) = self.sessions.get_mut(&index) else { return };
        session.state = State::Ready(link);
        if let (Some(id), Some(tool)) = (&session.id, session.waking.take()) {
            let line =
                message::step(id, &tool, "casemate: the session is awake", message::Step::Done);
            out.push(Action::ToHost(line));
        }
        let held = session.let_go();
        let waiting = std::mem::take(&mut session.waiting);
        for line in held {
            self.worker_line(link, &line, out);
        }
        for waiting in waiting {
            self.forward(index, waiting, out);
        }
    }

    /// Sends a request of the host to its worker.
    pub(super) fn forward(&mut self, index: u64, waiting: Waiting, out: &mut Vec<Action>) {
        let Some(session) = self.sessions.get_mut(&index) else { return };
        let State::Ready(link) = session.state else {
            return session.waiting.push_back(waiting);
        };
        let Ok(frame) = Frame::parse(&waiting.line) else { return };
        let mut edits = Vec::with_capacity(2);
        if !matches!(waiting.kind, Kind::New | Kind::Authenticate) {
            match (&session.acp, frame.locate(&["params", "sessionId"])) {
                (Some(acp), Some(range)) => edits.push((range, edit::quote(acp))),
                _ => {
                    let text = "the session holds no conversation yet; session/new opens one in its worktree";
                    out.push(Action::ToHost(message::unsent(&waiting.id, rpc::NOT_FOUND, text)));
                    if waiting.kind == Kind::Load {
                        self.unloaded = Some(index);
                    }
                    return;
                }
            }
        }
        if matches!(waiting.kind, Kind::New | Kind::Load) {
            if let Some(cwd) = frame.get(&["params", "cwd"]) {
                session.cwd = cwd.to_owned();
            }
            if let Some(range) = frame.locate(&["params", "mcpServers"])
                && let Some(notice) = left_out(&frame.text()[range.clone()])
            {
                edits.push((range, "[]".into()));
                session.notices.push(notice);
            }
        }
        if waiting.kind == Kind::Prompt
            && let Some(id) = session.id.clone()
        {
            for text in std::mem::take(&mut session.notices) {
                let tool = self.notice_id();
                out.push(Action::ToHost(message::notice(&id, &tool, &text)));
            }
        }
        let line = frame.splice(edits);
        if line.len() > MAX_LINE {
            let text = outgrown(&line);
            return out.push(Action::ToHost(message::unsent(
                &waiting.id,
                rpc::INVALID_REQUEST,
                &text,
            )));
        }
        let number = self.next_line(link, out);
        let Some(session) = self.sessions.get_mut(&index) else { return };
        let resumable = session.can_resume && !session.can_load && frame.method() == "session/load";
        let keep = match waiting.kind {
            Kind::Authenticate | Kind::Prompt => Some(waiting.line),
            Kind::Load if resumable => as_resume(&frame),
            _ => None,
        };
        session.sent.insert(waiting.id, Sent { kind: waiting.kind, number, line: keep });
        out.push(Action::ToWorker(link, line));
    }
}

/// The same request, without the history that the agent cannot show again.
fn as_resume(load: &Frame<'_>) -> Option<Vec<u8>> {
    Some(load.splice(vec![(load.locate(&["method"])?, "\"session/resume\"".into())]))
}

/// The message of an error answer.
fn error_text(frame: &Frame<'_>) -> String {
    frame
        .get_string(&["error", "message"])
        .map_or_else(|| "no reason given".into(), std::borrow::Cow::into_owned)
}

/// What the user learns about MCP servers that the host configured: names only, their settings may hold secrets.
fn left_out(servers: &str) -> Option<String> {
    let servers = frame::array(servers).unwrap_or_else(|| vec![servers]);
    if servers.is_empty() {
        return None;
    }
    let names: Vec<_> = servers
        .iter()
        .map(|server| frame::member(server, &["name"]).and_then(frame::string))
        .map(|name| name.unwrap_or_else(|| "unnamed".into()))
        .collect();
    Some(format!(
        "MCP servers of this editor were not given to the agent, which cannot reach them from its session: {}",
        names.join(", ")
    ))
}
