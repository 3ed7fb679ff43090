//! The agent is gone: everybody who waits is told why, and what became of the request.

use super::calls::Purpose;
use super::handshake::{Handshake, Waiter};
use super::{Action, Agent, Conn, Server, lines};
use crate::acp::fault::{Fault, error_line};
use crate::codes::{Delivery, close, rpc};

// === impl Server ===

impl Server {
    /// The agent ended.
    pub(super) fn agent_ended(&mut self, cause: &str, out: &mut Vec<Action>) {
        if matches!(self.agent, Agent::Ended { .. }) {
            return;
        }
        self.agent = Agent::Ended { cause: cause.to_owned() };
        let calls = std::mem::take(&mut self.calls.open);
        for call in calls.into_values() {
            if let Purpose::Open(session) = &call.purpose {
                // Half a replay is no conversation.
                if self.conversations.opening.get(session).is_some_and(|opening| opening.replays) {
                    out.push(Action::ForgetJournal { session: session.clone() });
                }
            }
            // Its asker is among those who wait for the handshake.
            if call.purpose != Purpose::Initialize {
                self.mourn(call.conn, &call.id, Delivery::Interrupted, out);
            }
        }
        if let Handshake::Asked(waiters) = std::mem::take(&mut self.handshake) {
            for Waiter { conn, id, first, .. } in waiters {
                let delivery = if first { Delivery::Interrupted } else { Delivery::NotDelivered };
                self.mourn(conn, &id, delivery, out);
            }
        }
        for opening in std::mem::take(&mut self.conversations.opening).into_values() {
            for (conn, id, _) in opening.waiters {
                self.mourn(conn, &id, Delivery::NotDelivered, out);
            }
        }
        for one in std::mem::take(&mut self.turns.waiting) {
            self.mourn(one.conn, &one.id, Delivery::NotDelivered, out);
        }
        self.turns.abandon();
        self.asks.clear();
        if let Some(client) = self.client.take() {
            let reason = lines::reason(cause);
            out.push(Action::Close(client.conn, close::AGENT_GONE, reason));
        }
    }

    /// Answers a request that the agent will not answer.
    pub(super) fn mourn(&self, conn: Conn, id: &str, delivery: Delivery, out: &mut Vec<Action>) {
        let Agent::Ended { cause } = &self.agent else { return };
        if !self.is_current(conn) {
            return;
        }
        let message = match delivery {
            Delivery::NotDelivered => format!(
                "{cause}; this request did not reach it: load the session again, then repeat it"
            ),
            _ => format!(
                "{cause}; it was working on this: load the session again, and look at what was done before you repeat it"
            ),
        };
        let fault = Fault { cause: Some(cause.clone()), ..Fault::new(delivery) };
        out.push(Action::ToClient(
            conn,
            error_line(id, rpc::WORKER, &message, Some(&fault)).into(),
        ));
    }
}
