//! `initialize`: the agent hears it once, everybody gets that answer.
//!
//! Who asked is not kept waiting for ever: a program that is no ACP agent never answers. It goes on all the same, since a
//! first start may be slow, and an answer that comes late is there for whoever asks next.

use super::calls::{Purpose, is_error};
use super::{Action, Agent, Conn, Server};
use crate::acp::continuity::quirks::AgentInfo;
use crate::acp::fault::{Fault, error_line};
use crate::acp::frame::Frame;
use crate::codes::{Delivery, rpc};

/// What is known of the agent's answer.
#[derive(Debug, Default)]
pub(super) enum Handshake {
    /// Nobody has asked, or the agent refused.
    #[default]
    Unsaid,
    /// Asked; these wait for the same answer.
    Asked(Vec<Waiter>),
    /// The agent's whole response line.
    Said(Vec<u8>),
}

/// Who waits for the agent's answer.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) conn: Conn,
    /// Its own id, byte for byte.
    pub(super) id: String,
    /// When it asked.
    since: u64,
    /// Its request is the one that the agent got.
    pub(super) first: bool,
}

/// How long an agent may take that has said nothing at all, in milliseconds: it may be fetching itself.
const SILENT: u64 = 60_000;
/// The same for a program that writes to its stdout, but not ACP. Shorter than a bridge's host is kept waiting.
const NOISY: u64 = 15_000;

// === impl Handshake ===

impl Handshake {
    /// Whether the agent offers `session/load`; `None` while it has not said.
    pub(super) fn loads(&self) -> Option<bool> {
        let Self::Said(line) = self else { return None };
        let frame = Frame::parse(line).ok()?;
        Some(frame.get(&["result", "agentCapabilities", "loadSession"]) == Some("true"))
    }

    /// How the agent names itself; empty where it does not.
    pub(super) fn agent_info(&self) -> AgentInfo {
        let Self::Said(line) = self else { return AgentInfo::default() };
        let Ok(frame) = Frame::parse(line) else { return AgentInfo::default() };
        let member = |name| frame.get_string(&["result", "agentInfo", name]).map(String::from);
        let member = |name| member(name).unwrap_or_default();
        AgentInfo { name: member("name"), version: member("version") }
    }
}

// === impl Server ===

impl Server {
    /// A client said `initialize`.
    pub(super) fn initialize(
        &mut self,
        conn: Conn,
        frame: &Frame<'_>,
        now: u64,
        out: &mut Vec<Action>,
    ) {
        let id = frame.id().unwrap_or("null");
        let waiter = |first| Waiter { conn, id: id.to_owned(), since: now, first };
        match &mut self.handshake {
            Handshake::Said(line) => {
                let stored = Frame::parse(line).expect("the stored line was parsed before");
                let range = stored.id_range().expect("it answered a request");
                out.push(Action::ToClient(
                    conn,
                    stored.splice(vec![(range, id.to_owned())]).into(),
                ));
                self.mark_answered(conn);
            }
            Handshake::Asked(waiters) => waiters.push(waiter(false)),
            Handshake::Unsaid => {
                if matches!(self.agent, Agent::Unstarted) {
                    self.agent = Agent::Running;
                    out.push(Action::StartAgent);
                }
                self.handshake = Handshake::Asked(vec![waiter(true)]);
                self.forward(conn, frame, Purpose::Initialize, Vec::new(), out);
            }
        }
    }

    /// The agent answered `initialize`.
    pub(super) fn greeted(&mut self, frame: &Frame<'_>, out: &mut Vec<Action>) {
        let next = if is_error(frame) {
            Handshake::Unsaid
        } else {
            Handshake::Said(frame.text().as_bytes().to_vec())
        };
        let before = std::mem::replace(&mut self.handshake, next);
        let waiters = if let Handshake::Asked(waiters) = before { waiters } else { Vec::new() };
        for Waiter { conn, id, .. } in waiters {
            self.hand_to(conn, &id, frame, out);
            if !is_error(frame) {
                self.mark_answered(conn);
            }
        }
    }

    /// When somebody has waited for as long as one is kept waiting.
    pub(super) fn handshake_deadline(&self) -> Option<u64> {
        let Handshake::Asked(waiters) = &self.handshake else { return None };
        waiters.iter().map(|waiter| waiter.since.saturating_add(self.handshake_patience())).min()
    }

    fn handshake_patience(&self) -> u64 {
        if self.noise.is_some() && !self.spoke { NOISY } else { SILENT }
    }

    /// Tells those who have waited long enough.
    pub(super) fn expire_handshake(&mut self, now: u64, out: &mut Vec<Action>) {
        let patience = self.handshake_patience();
        let Handshake::Asked(waiters) = &mut self.handshake else { return };
        let late: Vec<Waiter> =
            waiters.extract_if(.., |waiter| waiter.since.saturating_add(patience) <= now).collect();
        let cause = match self.noise() {
            Some(noise) => noise,
            None => "it said nothing of use: if it is still fetching itself, try again in a moment; if not, check the command \
                     after `--`"
                .to_owned(),
        };
        for Waiter { conn, id, first, .. } in late {
            if !self.is_current(conn) {
                continue;
            }
            let delivery = if first { Delivery::Unknown } else { Delivery::NotDelivered };
            let cause = format!(
                "the agent has not answered initialize within {} s; {cause}",
                patience / 1000
            );
            let fault = Fault { cause: Some(cause.clone()), ..Fault::new(delivery) };
            out.push(Action::ToClient(
                conn,
                error_line(&id, rpc::WORKER, &cause, Some(&fault)).into(),
            ));
        }
    }

    fn mark_answered(&mut self, conn: Conn) {
        if let Some(client) = self.client.as_mut().filter(|client| client.conn == conn) {
            client.answered = true;
        }
    }
}

/// What to say where the agent cannot load: names the agent as it named itself.
pub(super) fn cannot_load(handshake: &Handshake) -> String {
    let name = handshake.agent_info().name;
    format!(
        "{} does not offer session/load, so this conversation cannot be continued: start one with session/new",
        if name.is_empty() { "the agent" } else { &name }
    )
}
