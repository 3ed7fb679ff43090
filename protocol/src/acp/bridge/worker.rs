//! Lines from workers.

use crate::acp::bridge::prepare::OWN_ID;
use crate::acp::bridge::session::{Kind, Session, State, Step, Waiting};
use crate::acp::bridge::wall::{self, Passage};
use crate::acp::bridge::{Action, Bridge, Link, edit, message};
use crate::acp::fault::Fault;
use crate::acp::frame::{self, Frame};
use crate::codes::{Delivery, rpc};

/// Requests of one agent that may wait for the host at once; an agent asks one or two.
const ASKED: usize = 256;

/// The bytes of their ids, which are kept.
const ASKED_BYTES: usize = 1024 * 1024;

impl Bridge {
    pub(super) fn worker_line(&mut self, link: Link, line: &[u8], out: &mut Vec<Action>) {
        let Some(index) = self.links.get(&link).copied() else { return };
        // A message may hold line breaks between its tokens; for the host each would end the line.
        let flat;
        let frame = match Frame::parse(line) {
            Ok(frame) => match frame.on_one_line() {
                None => frame,
                Some(on_one_line) => {
                    flat = on_one_line;
                    Frame::parse(&flat).expect("spaces between tokens change nothing")
                }
            },
            Err(error) => {
                return out.push(Action::Log(format!("dropped a worker's line: {error}")));
            }
        };
        match frame.kind() {
            frame::Kind::Request => self.agent_request(index, link, &frame, out),
            frame::Kind::Notification => self.agent_notification(index, link, &frame, out),
            frame::Kind::Response => self.agent_response(index, link, &frame, out),
        }
    }

    fn agent_request(&mut self, index: u64, link: Link, frame: &Frame<'_>, out: &mut Vec<Action>) {
        let own = frame.id().unwrap_or("null");
        let method = frame.method();
        if wall::agent_request(method) == Passage::Refused {
            return out.push(Action::ToWorker(link, message::refused(own, method)));
        }
        let Some(session) = self.sessions.get(&index) else { return };
        let (Some(range), Some(id), Some(session)) =
            (own_session(session, frame), frame.id_range(), &session.id)
        else {
            let text = format!("{method} does not name this connection's session");
            let line = message::error(own, rpc::INVALID_PARAMS, &text);
            return out.push(Action::ToWorker(link, line));
        };
        let asked = self.asked.values().filter(|(asker, _)| *asker == link);
        let (count, bytes) =
            asked.fold((0, own.len()), |(count, bytes), (_, id)| (count + 1, bytes + id.len()));
        if count >= ASKED || bytes > ASKED_BYTES {
            let text = "too many requests are unanswered";
            return out.push(Action::ToWorker(link, message::error(own, rpc::INTERNAL, text)));
        }
        let ask = self.next_ask;
        self.next_ask += 1;
        self.asked.insert(ask, (link, own.to_owned()));
        let edits = vec![(range, edit::quote(session.as_str())), (id, ask.to_string())];
        out.push(Action::ToHost(frame.splice(edits)));
    }

    fn agent_notification(
        &mut self,
        index: u64,
        link: Link,
        frame: &Frame<'_>,
        out: &mut Vec<Action>,
    ) {
        let method = frame.method();
        match wall::agent_notification(method) {
            Passage::Session => {}
            Passage::Bare if frame.session().is_none() => {
                return out.push(Action::ToHost(frame.text().as_bytes().to_vec()));
            }
            Passage::Bare => {}
            Passage::CancelRequest => return self.agent_cancel(link, frame, out),
            Passage::Refused => {
                return out.push(Action::Log(format!("dropped the agent's notification {method}")));
            }
        }
        let Some(session) = self.sessions.get_mut(&index) else { return };
        if matches!(session.state, State::Preparing(_, Step::Reload)) {
            // The host has this history already.
            return;
        }
        match (own_session(session, frame), &session.id) {
            (Some(range), Some(id)) => {
                let line = frame.splice(vec![(range, edit::quote(id.as_str()))]);
                out.push(Action::ToHost(line));
            }
            _ if session.is_opening() => session.hold(frame.text()),
            _ => out.push(Action::Log(format!("dropped {method}: it names another session"))),
        }
    }

    /// The agent takes one of its own requests back.
    fn agent_cancel(&mut self, link: Link, frame: &Frame<'_>, out: &mut Vec<Action>) {
        let path = ["params", "requestId"];
        let (Some(own), Some(range)) = (frame.get(&path), frame.locate(&path)) else { return };
        let asked = self.asked.iter().find(|(_, (asker, id))| *asker == link && id == own);
        if let Some((ask, _)) = asked {
            out.push(Action::ToHost(frame.splice(vec![(range, ask.to_string())])));
        }
    }

    fn agent_response(&mut self, index: u64, link: Link, frame: &Frame<'_>, out: &mut Vec<Action>) {
        let Some(id) = frame.id() else { return };
        let Some(session) = self.sessions.get_mut(&index) else { return };
        if let State::Preparing(_, step) = session.state {
            if id == OWN_ID {
                self.prepared(index, link, step, frame, out);
            }
            return;
        }
        let Some(mut sent) = session.sent.remove(id) else {
            return out.push(Action::Log(format!("dropped an answer to {id}, which nobody asked")));
        };
        let fault = frame.part("error").and_then(Fault::of_error);
        if fault.is_some_and(|fault| fault.reattach && fault.delivery == Delivery::NotDelivered)
            && let Some(line) = sent.line.take()
        {
            // The worker is being stopped for idleness and this request came a moment too late.
            self.drop_link(index, link, out);
            return self.send_again(
                index,
                Waiting { kind: sent.kind, id: id.to_owned(), line },
                out,
            );
        }
        let failed = frame.part("error").is_some();
        let path = ["result", "sessionId"];
        let named = frame.get_string(&path);
        match sent.kind {
            Kind::New if !failed => {
                let (Some(named), Some(own)) = (named, session.id.clone()) else {
                    drop(session.let_go());
                    let text = "the agent answered session/new without a session id";
                    return out.push(Action::ToHost(message::error(id, rpc::WORKER, text)));
                };
                session.acp = Some(named.into_owned());
                session.used = true;
                let edits = frame.locate(&path).map(|range| (range, edit::quote(own.as_str())));
                out.push(Action::ToHost(frame.splice(edits.into_iter().collect())));
                for line in session.let_go() {
                    self.worker_line(link, &line, out);
                }
                return;
            }
            Kind::New => {
                drop(session.let_go());
                session.claimed = session.used;
            }
            Kind::Load if failed && sent.line.is_some() => {
                let line = sent.line.unwrap_or_default();
                let again = Waiting { kind: Kind::Load, id: id.to_owned(), line };
                return self.forward(index, again, out);
            }
            Kind::Load if failed => self.unloaded = Some(index),
            Kind::Load => self.unloaded = None,
            Kind::Authenticate if !failed => self.authenticate = sent.line,
            _ => {}
        }
        let Some(session) = self.sessions.get(&index) else { return };
        let own = named.filter(|named| session.acp.as_deref() == Some(named));
        let edits = match (own, frame.locate(&path), &session.id) {
            (Some(_), Some(range), Some(id)) => vec![(range, edit::quote(id.as_str()))],
            _ => Vec::new(),
        };
        out.push(Action::ToHost(frame.splice(edits)));
    }
}

/// Where a frame names this session's conversation; `None` where it names another or none.
fn own_session(session: &Session, frame: &Frame<'_>) -> Option<std::ops::Range<usize>> {
    let path = ["params", "sessionId"];
    let named = frame.get_string(&path)?;
    (session.acp.as_deref() == Some(&*named)).then(|| frame.locate(&path)).flatten()
}
