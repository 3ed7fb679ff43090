//! `initialize`: the agent hears it once, everybody gets that answer.

use super::calls::{Call, Purpose, is_error};
use super::{Action, Agent, Conn, Server};
use crate::acp::frame::{self, Frame};

/// What is known of the agent's answer.
#[derive(Debug, Default)]
pub(super) enum Handshake {
    /// Nobody has asked, or the agent refused.
    #[default]
    Unsaid,
    /// Asked; these wait for the same answer.
    Asked(Vec<(Conn, String)>),
    /// The agent's whole response line.
    Said(Vec<u8>),
}

// === impl Handshake ===

impl Handshake {
    /// Whether the agent offers `session/load`; `None` while it has not said.
    pub(super) fn loads(&self) -> Option<bool> {
        let Self::Said(line) = self else { return None };
        let frame = Frame::parse(line).ok()?;
        Some(frame.get(&["result", "agentCapabilities", "loadSession"]) == Some("true"))
    }
}

// === impl Server ===

impl Server {
    /// A client said `initialize`.
    pub(super) fn initialize(&mut self, conn: Conn, frame: &Frame<'_>, out: &mut Vec<Action>) {
        let id = frame.id().unwrap_or("null");
        match &mut self.handshake {
            Handshake::Said(line) => {
                let stored = Frame::parse(line).expect("the stored line was parsed before");
                let range = stored.id_range().expect("it answered a request");
                out.push(Action::ToClient(conn, stored.splice(vec![(range, id.to_owned())])));
                self.mark_answered(conn);
            }
            Handshake::Asked(waiters) => waiters.push((conn, id.to_owned())),
            Handshake::Unsaid => {
                if matches!(self.agent, Agent::Unstarted) {
                    self.agent = Agent::Running;
                    out.push(Action::StartAgent);
                }
                self.handshake = Handshake::Asked(Vec::new());
                self.forward(conn, frame, Purpose::Initialize, Vec::new(), out);
            }
        }
    }

    /// The agent answered `initialize`.
    pub(super) fn greeted(&mut self, call: &Call, frame: &Frame<'_>, out: &mut Vec<Action>) {
        let next = if is_error(frame) {
            Handshake::Unsaid
        } else {
            Handshake::Said(frame.text().as_bytes().to_vec())
        };
        let before = std::mem::replace(&mut self.handshake, next);
        let waiters = if let Handshake::Asked(waiters) = before { waiters } else { Vec::new() };
        for (conn, id) in std::iter::once((call.conn, call.id.clone())).chain(waiters) {
            self.hand_to(conn, &id, frame, out);
            if !is_error(frame) {
                self.mark_answered(conn);
            }
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
    let name = match handshake {
        Handshake::Said(line) => Frame::parse(line).ok().and_then(|answer| {
            let name = answer.get(&["result", "agentInfo", "name"])?;
            frame::string(name).map(String::from)
        }),
        _ => None,
    };
    format!(
        "{} does not offer session/load, so this conversation cannot be continued: start one with session/new",
        name.as_deref().unwrap_or("the agent")
    )
}
