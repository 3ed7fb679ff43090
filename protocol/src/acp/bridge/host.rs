//! Lines from the host.

use std::borrow::Cow;

use crate::acp::bridge::session::{Kind, State, Waiting};
use crate::acp::bridge::{Action, Bridge, Handshake, Link, Want, edit, handshake, message, wall};
use crate::acp::frame::{self, Frame, FrameError, MAX_LINE, Outline, Owed};
use crate::codes::rpc;
use crate::ids::SessionId;

/// Host lines that are kept while `initialize` is not answered; a host sends none.
const EARLY: usize = 64;

impl Bridge {
    pub(super) fn host_line(&mut self, line: &[u8], out: &mut Vec<Action>) {
        if line.trim_ascii().is_empty() {
            return;
        }
        let frame = match Frame::parse(line) {
            Ok(frame) => frame,
            Err(error) => {
                // Batches are JSON; both SDKs refuse them as requests, not as text.
                let code = match error {
                    FrameError::NotJson(_) if !line.trim_ascii().starts_with(b"[") => rpc::PARSE,
                    _ => rpc::INVALID_REQUEST,
                };
                return self.host_misspoke(&Outline::of(line).owed, code, &error, out);
            }
        };
        match frame.kind() {
            frame::Kind::Request => self.host_request(&frame, out),
            frame::Kind::Notification => self.host_notification(&frame, out),
            frame::Kind::Response => self.host_response(&frame, out),
        }
    }

    pub(super) fn host_overlong(&mut self, outline: &Outline, out: &mut Vec<Action>) {
        let text =
            format!("{} bytes are more than the {MAX_LINE} that are relayed", outline.length);
        self.host_misspoke(&outline.owed, rpc::INVALID_REQUEST, &text, out);
    }

    /// A line of the host goes no further. A request is refused under its own id, where that can be told; an agent that was
    /// to be answered is told that it was not.
    fn host_misspoke(
        &mut self,
        owed: &Owed,
        code: i64,
        why: &dyn std::fmt::Display,
        out: &mut Vec<Action>,
    ) {
        let text = match owed {
            Owed::Sender(id) => {
                return out.push(Action::ToHost(message::unsent(id, code, &why.to_string())));
            }
            Owed::Asker(id) => {
                let asked = frame::canonical(id).parse().ok().and_then(|id| self.asked.remove(&id));
                let text = format!("the host's answer was dropped: {why}");
                if let Some((link, own)) = asked {
                    let line = message::error(&own, rpc::INTERNAL, &text);
                    out.push(Action::ToWorker(link, line));
                }
                text
            }
            Owed::Nobody => why.to_string(),
        };
        out.push(Action::ToHost(message::error("null", code, &text)));
    }

    pub(super) fn host_ended(&mut self, out: &mut Vec<Action>) {
        self.ended = true;
        for session in self.sessions.values_mut() {
            // An attempt that is still open is judged when its session is known.
            if session.is_attaching() {
                continue;
            }
            if let Some(link) = session.link() {
                out.push(Action::Detach(link));
            }
            session.state = State::Detached;
            if let (true, false, Some(id)) = (session.created, session.used, &session.id) {
                out.push(Action::Discard(id.clone()));
            }
        }
    }

    fn host_request(&mut self, frame: &Frame<'_>, out: &mut Vec<Action>) {
        let id = frame.id().unwrap_or("null");
        let method = frame.method();
        if method == "initialize" {
            return self.host_initialize(frame, id, out);
        }
        match self.handshake {
            Handshake::Known { .. } => {}
            Handshake::None | Handshake::Asking { id: None, .. } => {
                let text = match &self.unintroduced {
                    Some(why) => {
                        format!("initialize failed: {why}; {method} comes after one that succeeds")
                    }
                    None => format!("{method} came before initialize"),
                };
                out.push(Action::ToHost(message::unsent(id, rpc::INVALID_REQUEST, &text)));
                return;
            }
            Handshake::Loading { .. } | Handshake::Asking { id: Some(_), .. } => {
                if self.early.len() < EARLY {
                    self.early.push_back(frame.text().as_bytes().to_vec());
                } else {
                    let text = "too many requests before initialize is answered";
                    out.push(Action::ToHost(message::unsent(id, rpc::INVALID_REQUEST, text)));
                }
                return;
            }
        }
        match method {
            "session/new" => self.host_new(frame, id, out),
            "session/load" | "session/resume" => self.host_load(frame, id, out),
            "session/close" => self.host_close(frame, id, out),
            "authenticate" => self.host_authenticate(frame, id, out),
            _ if wall::withheld(method) => out.push(Action::ToHost(message::unsent(
                id,
                rpc::METHOD_NOT_FOUND,
                &format!("casemate does not offer {method} yet"),
            ))),
            _ => self.host_session_request(frame, id, out),
        }
    }

    fn host_initialize(&mut self, frame: &Frame<'_>, id: &str, out: &mut Vec<Action>) {
        match &mut self.handshake {
            Handshake::Asking { id: waiting @ None, .. } => return *waiting = Some(id.to_owned()),
            Handshake::Known { result, .. } => {
                return match wall::initialize_result(result) {
                    Ok(shown) => out.push(Action::ToHost(message::result(id, &shown))),
                    Err(error) => out.push(Action::ToHost(message::unsent(
                        id,
                        rpc::INTERNAL,
                        &format!("the agent's answer to initialize: {error}"),
                    ))),
                };
            }
            Handshake::Loading { .. } | Handshake::Asking { .. } => {
                let text = "initialize is being answered already";
                return out.push(Action::ToHost(message::unsent(id, rpc::INVALID_REQUEST, text)));
            }
            Handshake::None => {}
        }
        let params = frame.part("params").unwrap_or("{}");
        let stripped = match wall::initialize_params(params) {
            Ok(stripped) => stripped,
            Err(error) => {
                let text = format!("params of initialize: {error}");
                self.unintroduced = Some(text.clone());
                return out.push(Action::ToHost(message::unsent(id, rpc::INVALID_PARAMS, &text)));
            }
        };
        let line = match frame.locate(&["params"]) {
            Some(range) => frame.splice(vec![(range, stripped.clone())]),
            None => frame.text().as_bytes().to_vec(),
        };
        let member = |name: &str| frame::member(&stripped, &[name]).unwrap_or_default();
        let key = handshake::key(
            &self.settings.intent,
            member("protocolVersion"),
            member("clientCapabilities"),
        );
        self.initialize = Some(line);
        self.handshake = Handshake::Loading { id: id.to_owned(), key: key.clone() };
        out.push(Action::LoadHandshake(key));
    }

    pub(super) fn handshake_loaded(&mut self, stored: Option<&str>, out: &mut Vec<Action>) {
        let Handshake::Loading { id, key } = self.handshake.clone() else { return };
        let shown = stored.and_then(|raw| Some((raw, wall::initialize_result(raw).ok()?)));
        match shown {
            Some((raw, shown)) => {
                self.handshake = Handshake::Known { key, result: raw.to_owned() };
                out.push(Action::ToHost(message::result(&id, &shown)));
                self.release_early(out);
            }
            None if self.ended => {}
            None => {
                let remote = self.settings.intent.repository.as_ref();
                let session = if remote.is_some_and(|name| name.contains("://")) {
                    self.begin(Want::Blank, out)
                } else {
                    self.begin(Want::Key(self.settings.key.clone()), out)
                };
                self.handshake = Handshake::Asking { id: Some(id), key, session };
            }
        }
    }

    /// The worker goes on starting: the next `initialize` gets its answer.
    pub(super) fn handshake_late(&mut self, out: &mut Vec<Action>) {
        let id = match &mut self.handshake {
            Handshake::Asking { id, .. } => id.take(),
            Handshake::Loading { id, .. } => {
                let id = std::mem::take(id);
                self.handshake = Handshake::None;
                Some(id)
            }
            Handshake::None | Handshake::Known { .. } => None,
        };
        let Some(id) = id else { return };
        let text = "the agent's first start takes longer than a host waits; try again in a moment";
        self.unintroduced = Some(text.to_owned());
        out.push(Action::ToHost(message::unsent(&id, rpc::WORKER, text)));
        self.release_early(out);
    }

    /// Takes up what came while `initialize` was being answered.
    pub(super) fn release_early(&mut self, out: &mut Vec<Action>) {
        for line in std::mem::take(&mut self.early) {
            self.host_line(&line, out);
        }
    }

    fn host_new(&mut self, frame: &Frame<'_>, id: &str, out: &mut Vec<Action>) {
        let named = frame.get_string(&["params", "_meta", "casemate", "key"]).map(Cow::into_owned);
        let after_failure = self.unloaded.take();
        let key = named.clone().or_else(|| self.settings.key.clone());
        let known = match (&named, after_failure) {
            (None, Some(index)) if self.sessions.contains_key(&index) => Some(index),
            _ => self.sessions.iter().find_map(|(index, session)| {
                let fits = if key.is_some() { session.key == key } else { !session.claimed };
                fits.then_some(*index)
            }),
        };
        let index = known.unwrap_or_else(|| self.begin(Want::Key(key), out));
        self.enqueue(index, Kind::New, frame, id, out);
    }

    fn host_load(&mut self, frame: &Frame<'_>, id: &str, out: &mut Vec<Action>) {
        let Some(wanted) = frame.get_string(&["params", "sessionId"]) else {
            let text = "params.sessionId is not one string";
            return out.push(Action::ToHost(message::unsent(id, rpc::INVALID_PARAMS, text)));
        };
        let index = match (self.session_by_id(&wanted), wanted.parse::<SessionId>()) {
            (Some(index), _) => index,
            (None, Ok(session)) => self.begin(Want::Session(session), out),
            (None, Err(_)) => {
                let text = format!(
                    "session `{wanted}` does not exist, or no longer: session/new opens one"
                );
                return out.push(Action::ToHost(message::unsent(id, rpc::NOT_FOUND, &text)));
            }
        };
        self.enqueue(index, Kind::Load, frame, id, out);
    }

    fn host_close(&mut self, frame: &Frame<'_>, id: &str, out: &mut Vec<Action>) {
        let wanted = frame.get_string(&["params", "sessionId"]).unwrap_or_default();
        let Ok(session) = wanted.parse::<SessionId>() else {
            return out.push(Action::ToHost(unknown(id, &wanted)));
        };
        if let Some(index) = self.session_by_id(&wanted) {
            self.abandon(index, out);
        }
        self.closing.push((session.clone(), id.to_owned()));
        out.push(Action::Stop(session));
    }

    /// `authenticate` goes to one worker; the others are told before they are used.
    fn host_authenticate(&mut self, frame: &Frame<'_>, id: &str, out: &mut Vec<Action>) {
        let some = self
            .sessions
            .iter()
            .find(|(_, session)| !session.claimed || matches!(session.state, State::Ready(_)));
        let index = match some {
            Some((index, _)) => *index,
            None => self.begin(Want::Key(self.settings.key.clone()), out),
        };
        self.enqueue(index, Kind::Authenticate, frame, id, out);
    }

    fn host_session_request(&mut self, frame: &Frame<'_>, id: &str, out: &mut Vec<Action>) {
        let Some(wanted) = frame.get_string(&["params", "sessionId"]) else {
            let method = frame.method();
            let text = format!("{method} names no session and is not a method of casemate");
            return out.push(Action::ToHost(message::unsent(id, rpc::METHOD_NOT_FOUND, &text)));
        };
        let Some(index) = self.session_by_id(&wanted).filter(|index| self.sessions[index].used)
        else {
            return out.push(Action::ToHost(unknown(id, &wanted)));
        };
        let kind = if frame.method() == "session/prompt" { Kind::Prompt } else { Kind::Other };
        self.enqueue(index, kind, frame, id, out);
    }

    fn host_notification(&mut self, frame: &Frame<'_>, out: &mut Vec<Action>) {
        let method = frame.method();
        if method == "$/cancel_request" {
            return self.host_cancel_request(frame, out);
        }
        let session = frame
            .get_string(&["params", "sessionId"])
            .and_then(|wanted| self.session_by_id(&wanted))
            .and_then(|index| self.sessions.get_mut(&index));
        let Some(session) = session else {
            return out.push(Action::Log(format!("dropped {method}: it names no open session")));
        };
        let cancels = method == "session/cancel";
        if cancels {
            session.cancel_unsent(out);
        }
        if let (State::Ready(link), Some(acp)) = (&session.state, &session.acp)
            && let Some(range) = frame.locate(&["params", "sessionId"])
        {
            let (link, line) = (*link, frame.splice(vec![(range, edit::quote(acp))]));
            if line.len() > MAX_LINE {
                return out.push(Action::Log(format!("dropped {method}: {}", outgrown(&line))));
            }
            out.push(if cancels {
                Action::Cancel { link, line, of: session.prompts() }
            } else {
                Action::ToWorker(link, line)
            });
        }
    }

    /// Lines were taken back that a cancel was for: nobody has seen them, so they are answered here.
    pub(super) fn revoked(&mut self, link: Link, numbers: &[u64], out: &mut Vec<Action>) {
        let session = self.links.get(&link).and_then(|index| self.sessions.get_mut(index));
        let Some(session) = session else { return };
        session.sent.retain(|id, sent| {
            let kept = !numbers.contains(&sent.number);
            if !kept {
                out.push(Action::ToHost(message::cancelled(id, sent.kind == Kind::Prompt)));
            }
            kept
        });
    }

    fn host_cancel_request(&mut self, frame: &Frame<'_>, out: &mut Vec<Action>) {
        let Some(id) = frame.get(&["params", "requestId"]) else { return };
        for session in self.sessions.values_mut() {
            if let Some(sent) = session.sent.get(id) {
                if let State::Ready(link) = session.state {
                    let (line, of) = (frame.text().as_bytes().to_vec(), vec![sent.number]);
                    out.push(Action::Cancel { link, line, of });
                }
                return;
            }
            if let Some(at) = session.waiting.iter().position(|waiting| waiting.id == id) {
                let prompt = session.waiting.remove(at).is_some_and(|one| one.kind == Kind::Prompt);
                out.push(Action::ToHost(message::cancelled(id, prompt)));
                return;
            }
        }
    }

    fn host_response(&mut self, frame: &Frame<'_>, out: &mut Vec<Action>) {
        let asked = frame.integer_id().and_then(|id| self.asked.remove(&id));
        match (asked, frame.id_range()) {
            (Some((link, own)), Some(range)) => {
                let mut line = frame.splice(vec![(range, own.clone())]);
                if line.len() > MAX_LINE {
                    line = message::error(&own, rpc::INTERNAL, &outgrown(&line));
                }
                out.push(Action::ToWorker(link, line));
            }
            _ => out.push(Action::Log(format!(
                "dropped the host's answer {}: nothing waits for it",
                frame.id().unwrap_or("without id")
            ))),
        }
    }

    /// Sends a request where its session is ready; keeps it, and attaches if need be, where it is not.
    fn enqueue(
        &mut self,
        index: u64,
        kind: Kind,
        frame: &Frame<'_>,
        id: &str,
        out: &mut Vec<Action>,
    ) {
        let in_use = self.sessions.values().any(|session| {
            session.sent.contains_key(id) || session.waiting.iter().any(|waiting| waiting.id == id)
        });
        if in_use {
            let text = format!("request id {id} is still in use");
            return out.push(Action::ToHost(message::unsent(id, rpc::INVALID_REQUEST, &text)));
        }
        let line = frame.text().as_bytes().to_vec();
        let waiting = Waiting { kind, id: id.to_owned(), line };
        let Some(session) = self.sessions.get_mut(&index) else { return };
        session.claimed |= matches!(kind, Kind::New | Kind::Load);
        // The host knows its id already.
        session.used |= kind == Kind::Load;
        match session.state {
            State::Ready(_) => self.forward(index, waiting, out),
            State::Attaching(_) | State::Preparing(..) => session.waiting.push_back(waiting),
            State::Superseded if !matches!(kind, Kind::Load | Kind::New) => {
                out.push(Action::ToHost(message::lost(
                    id,
                    rpc::WORKER,
                    "another client took this session over; session/load takes it back",
                    crate::codes::Delivery::NotDelivered,
                    session.id.as_ref(),
                )));
            }
            State::Detached | State::Superseded => {
                session.waiting.push_back(waiting);
                self.reattach(index, out);
            }
        }
    }
}

/// Why a line is not sent that is too long since it bears the agent's ids.
pub(super) fn outgrown(line: &[u8]) -> String {
    let length = line.len();
    format!("with the agent's ids it has {length} bytes, more than the {MAX_LINE} that are relayed")
}

fn unknown(id: &str, wanted: &str) -> Vec<u8> {
    let text = format!(
        "no session `{wanted}` is open here: session/load opens an earlier one, session/new a new one"
    );
    message::unsent(id, rpc::NOT_FOUND, &text)
}
