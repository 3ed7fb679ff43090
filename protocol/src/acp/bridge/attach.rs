//! Connections begin and end: what each means for the requests that wait for one or were sent over it.

use crate::acp::bridge::prepare::OWN_ID;
use crate::acp::bridge::session::{Kind, Session, State, Step, Waiting};
use crate::acp::bridge::{
    Action, Attachment, Bridge, Ending, Handshake, Link, Refusal, Want, message,
};
use crate::acp::frame::Frame;
use crate::codes::{Delivery, close, rpc};
use crate::ids::SessionId;
use crate::tier::Tier;
use crate::worker::Evidence;

/// What people must know who believe that sessions do not see each other at all.
const WEAK: &str = "this session is in tier domain: agents can see and chmod paths of this user that they know, and see \
                    command lines; `casemate doctor` says what a better tier needs";

impl Bridge {
    pub(super) fn new_link(&mut self) -> Link {
        let link = Link(self.next_link);
        self.next_link += 1;
        link
    }

    /// A new session entry with an attempt to attach; its index.
    pub(super) fn begin(&mut self, want: Want, out: &mut Vec<Action>) -> u64 {
        let link = self.new_link();
        let index = self.next_session;
        self.next_session += 1;
        self.links.insert(link, index);
        self.sessions.insert(index, Session::attaching(link, &want));
        out.push(Action::Attach(link, want));
        index
    }

    pub(super) fn attached(&mut self, link: Link, attachment: Attachment, out: &mut Vec<Action>) {
        let Some(index) = self.links.get(&link).copied() else {
            return out.push(Action::Detach(link));
        };
        let twin = self.session_by_id(attachment.session.as_str()).filter(|other| *other != index);
        if let Some(twin) = twin {
            // Two names led to one session; the worker closes the older connection.
            self.replace(twin, out);
        }
        let initialize = self.initialize.clone();
        let Some(session) = self.sessions.get_mut(&index) else { return };
        session.id = Some(attachment.session.clone());
        session.created |= attachment.created;
        session.same_intent = attachment.same_intent;
        if session.acp.is_none() {
            session.acp = attachment.acp_session;
        }
        if !attachment.created && session.key.is_some() && !session.used {
            session.notices.extend(attachment.evidence.as_ref().and_then(unfinished_work));
        }
        if attachment.tier == Tier::Domain && !std::mem::replace(&mut session.weak_said, true) {
            session.notices.push(WEAK.into());
            if !std::mem::replace(&mut self.weak_said, true) {
                out.push(Action::Warn(WEAK.into()));
            }
        }
        if self.ended {
            session.state = State::Detached;
            out.push(Action::Detach(link));
            if session.created && !session.used {
                out.push(Action::Discard(attachment.session));
            }
            return;
        }
        session.state = State::Preparing(link, Step::Initialize);
        let line = initialize.as_deref().and_then(|line| {
            let frame = Frame::parse(line).ok()?;
            Some(frame.splice(vec![(frame.id_range()?, OWN_ID.into())]))
        });
        out.push(Action::ToWorker(link, line.unwrap_or_default()));
    }

    pub(super) fn attach_failed(&mut self, link: Link, refusal: &Refusal, out: &mut Vec<Action>) {
        let Some(index) = self.links.remove(&link) else { return };
        self.give_up(index, refusal, Delivery::NotDelivered, out);
    }

    /// Nothing that waits for this session can be sent.
    pub(super) fn give_up(
        &mut self,
        index: u64,
        refusal: &Refusal,
        delivery: Delivery,
        out: &mut Vec<Action>,
    ) {
        self.given_up.get_or_insert_with(|| refusal.message.clone());
        if let Handshake::Asking { id, session, .. } = self.handshake.clone()
            && session == index
        {
            self.handshake = Handshake::None;
            self.unintroduced = Some(refusal.message.clone());
            if let Some(id) = id {
                out.push(Action::ToHost(message::unsent(&id, refusal.code, &refusal.message)));
            }
            self.release_early(out);
        }
        let Some(session) = self.sessions.get_mut(&index) else { return };
        session.state = State::Detached;
        if let (Some(id), Some(tool)) = (&session.id, session.waking.take()) {
            let line = message::step(id, &tool, &refusal.message, message::Step::Failed);
            out.push(Action::ToHost(line));
        }
        let id = session.id.clone();
        let mut load_failed = false;
        for waiting in session.waiting.drain(..) {
            load_failed |= waiting.kind == Kind::Load;
            let (code, text) = (refusal.code, &refusal.message);
            out.push(Action::ToHost(message::lost(&waiting.id, code, text, delivery, id.as_ref())));
        }
        if refusal.code == rpc::NOT_FOUND || !session.used {
            if session.created
                && let Some(id) = id
            {
                out.push(Action::Discard(id));
            }
            self.sessions.remove(&index);
        } else if load_failed {
            // Not a new and empty session elsewhere: the next session/new tries this one again.
            self.unloaded = Some(index);
        }
    }

    /// Gets a detached session a connection.
    pub(super) fn reattach(&mut self, index: u64, out: &mut Vec<Action>) {
        let link = self.new_link();
        let tool = self.notice_id();
        let Some(session) = self.sessions.get_mut(&index) else { return };
        let new = session.waiting.front().is_some_and(|waiting| waiting.kind == Kind::New);
        let want = match &session.id {
            // A key leads to a session even where the one that it led to is over.
            Some(id) if !(new && session.key.is_some()) => Want::Session(id.clone()),
            _ => Want::Key(session.key.clone()),
        };
        session.state = State::Attaching(link);
        let in_turn = session.waiting.iter().any(|waiting| waiting.kind == Kind::Prompt);
        if let (true, Some(id)) = (in_turn, &session.id) {
            let line =
                message::step(id, &tool, "casemate: waking the session", message::Step::Running);
            out.push(Action::ToHost(line));
            session.waking = Some(tool);
        }
        self.links.insert(link, index);
        out.push(Action::Attach(link, want));
    }

    /// A request that its worker did not take goes to the session's next one.
    pub(super) fn send_again(&mut self, index: u64, waiting: Waiting, out: &mut Vec<Action>) {
        let Some(session) = self.sessions.get_mut(&index) else { return };
        session.waiting.push_front(waiting);
        self.reattach(index, out);
    }

    pub(super) fn worker_ended(&mut self, link: Link, ending: &Ending, out: &mut Vec<Action>) {
        self.told.remove(&link);
        let Some(index) = self.links.remove(&link) else { return };
        self.asked.retain(|_, (asker, _)| *asker != link);
        let Some(session) = self.sessions.get_mut(&index) else { return };
        let preparing = matches!(session.state, State::Preparing(..) | State::Attaching(_));
        let superseded = ending.code == Some(close::SUPERSEDED);
        let (guess, message) = explain(session.id.as_ref(), ending);
        let mut sent: Vec<_> = session.sent.drain().collect();
        sent.sort_by_key(|(_, sent)| sent.number);
        let mut unsent = Vec::new();
        for (id, sent) in sent {
            let known = ending.fate.map(|fate| fate.reach.delivery(sent.number, fate.agent_ended));
            let delivery = known.unwrap_or(guess);
            match sent.line {
                Some(line) if sent.kind == Kind::Prompt && may_repeat(delivery, superseded) => {
                    unsent.push(Waiting { kind: sent.kind, id, line });
                }
                _ => {
                    let id_of = session.id.as_ref();
                    let line = message::lost(&id, rpc::WORKER, &message, delivery, id_of);
                    out.push(Action::ToHost(line));
                }
            }
        }
        session.state = State::Detached;
        drop(session.let_go());
        if preparing {
            let refusal = Refusal { code: rpc::WORKER, message };
            return self.give_up(index, &refusal, Delivery::NotDelivered, out);
        }
        if superseded {
            session.state = State::Superseded;
        } else if !unsent.is_empty() && !self.ended {
            session.waiting.extend(unsent);
            self.reattach(index, out);
        }
    }

    pub(super) fn stopped(
        &mut self,
        session: &SessionId,
        outcome: Result<(), Refusal>,
        out: &mut Vec<Action>,
    ) {
        let Some(at) = self.closing.iter().position(|(other, _)| other == session) else { return };
        let (_, id) = self.closing.remove(at);
        out.push(Action::ToHost(match outcome {
            Ok(()) => message::result(&id, "{}"),
            Err(refusal) => {
                let Refusal { code, message: text } = &refusal;
                message::lost(&id, *code, text, Delivery::Unknown, Some(session))
            }
        }));
    }

    /// Forgets a session that the host closes: its prompts are cancelled, its other requests get an error.
    pub(super) fn abandon(&mut self, index: u64, out: &mut Vec<Action>) {
        let Some(mut session) = self.sessions.remove(&index) else { return };
        session.cancel_unsent(out);
        session.sent.retain(|id, sent| {
            let prompt = sent.kind == Kind::Prompt;
            if prompt {
                out.push(Action::ToHost(message::cancelled(id, true)));
            }
            !prompt
        });
        self.forget(session, "the session was closed here", out);
    }

    /// Forgets a session that another entry stands for now.
    fn replace(&mut self, index: u64, out: &mut Vec<Action>) {
        if let Some(session) = self.sessions.remove(&index) {
            self.forget(session, "the session was opened again under another name", out);
        }
    }

    fn forget(&mut self, mut session: Session, why: &str, out: &mut Vec<Action>) {
        let waiting = session.waiting.drain(..).map(|one| (one.id, Delivery::NotDelivered));
        let sent = session.sent.drain().map(|(id, _)| (id, Delivery::Unknown));
        for (id, delivery) in waiting.chain(sent) {
            let line = message::lost(&id, rpc::WORKER, why, delivery, session.id.as_ref());
            out.push(Action::ToHost(line));
        }
        self.unlink(&session, out);
    }

    /// Closes a session that was made and is of no use.
    pub(super) fn discard(&mut self, index: u64, out: &mut Vec<Action>) {
        let Some(session) = self.sessions.remove(&index) else { return };
        self.unlink(&session, out);
        if let (true, Some(id)) = (session.created, session.id) {
            out.push(Action::Discard(id));
        }
    }

    fn unlink(&mut self, session: &Session, out: &mut Vec<Action>) {
        if let Some(link) = session.link() {
            self.links.remove(&link);
            self.asked.retain(|_, (asker, _)| *asker != link);
            out.push(Action::Detach(link));
        }
    }

    /// Ends a connection that is of no use.
    pub(super) fn drop_link(&mut self, index: u64, link: Link, out: &mut Vec<Action>) {
        self.links.remove(&link);
        self.asked.retain(|_, (asker, _)| *asker != link);
        out.push(Action::Detach(link));
        let Some(session) = self.sessions.get_mut(&index) else { return };
        session.state = State::Detached;
        let text = "the session's worker was stopped";
        for (id, _) in session.sent.drain() {
            let (code, delivery) = (rpc::WORKER, Delivery::Unknown);
            let line = message::lost(&id, code, text, delivery, session.id.as_ref());
            out.push(Action::ToHost(line));
        }
        drop(session.let_go());
    }
}

fn unfinished_work(evidence: &Evidence) -> Option<String> {
    (!evidence.is_clean())
        .then(|| format!("this conversation goes on in its worktree with {}", evidence.in_words()))
}

/// What never left may go to the next worker, but not past another client's back.
fn may_repeat(delivery: Delivery, superseded: bool) -> bool {
    delivery == Delivery::NotDelivered && !superseded
}

/// What the end of a connection means for the requests that were sent over it.
fn explain(session: Option<&SessionId>, ending: &Ending) -> (Delivery, String) {
    let session = session.map_or_else(|| "a new session".into(), |id| format!("session {id}"));
    let reason = &ending.reason;
    match ending.code {
        Some(close::SUPERSEDED) => (
            Delivery::Unknown,
            format!("{session} was taken over by another client; session/load takes it back"),
        ),
        Some(close::AGENT_GONE) => (
            Delivery::Interrupted,
            format!("{session}: {reason}; the next message starts it again"),
        ),
        Some(close::IDLE | close::GOING_AWAY) => (
            Delivery::Unknown,
            format!("{session}: its worker was stopped ({reason}); the next message wakes it"),
        ),
        _ if ending.fate.is_some_and(|fate| fate.agent_ended) => (
            Delivery::Unknown,
            format!("{session}: {reason}; the next message starts the next one"),
        ),
        _ => (
            Delivery::Unknown,
            format!(
                "{session}: the connection to its worker broke ({reason}), so what became of the turn is not known: the \
                 next message re-attaches, and waits where the turn still runs"
            ),
        ),
    }
}
