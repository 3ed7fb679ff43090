//! The supervisor's role: ACP server towards clients, the agent's one client.
//!
//! Events in, actions out, in order; no IO and no clock. [`Server`] owns all state of a generation and hands it to one
//! part a rule:
//!
//! | part | rule |
//! |---|---|
//! | `door` | one connection at a time; `initialize` first |
//! | `handshake` | the agent hears `initialize` once |
//! | `setup`, `conversations` | the agent sets each conversation up once; a later load is answered here |
//! | `early` | a load is answered when all of it was shown, whatever the agent does |
//! | `continuity` | whether a loaded conversation is still the one that was left; a lost one is told |
//! | `calls` | an answer finds its asker under the asker's own id, or nobody |
//! | `turns`, `cancel` | one turn at a time; a cancel hits what it was meant for, or nothing |
//! | `asks` | each request of the agent is answered once |
//! | `updates` | journaled, shown to who attached, never in the wrong turn |
//! | `notices` | what the supervisor has to say is said inside a turn, once |
//! | `refusals` | what the walls refused is said inside its own turn, once and not too often |
//! | `ending` | the agent's end reaches everybody who waits |
//!
//! Invariants: lines for the agent hold no line break; what is not spliced arrives byte for byte; every request of a
//! connection that stays is answered exactly once; nothing of a connection that is gone is sent to another one.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::acp::continuity::record::{Entry, Record};
use crate::acp::frame::{MAX_LINE, Outline};
use crate::worker::Activity;

mod agent;
mod asks;
mod calls;
mod cancel;
mod continuity;
mod conversations;
mod door;
mod early;
mod ending;
mod handshake;
mod lines;
mod notices;
mod refusals;
mod setup;
#[cfg(test)]
mod tests;
mod turns;
mod updates;

use agent::Agent;

/// Names a client connection within one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Conn(pub u64);

/// What the role needs to know from the outside.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The worktree's path as the agent sees it: replaces every `cwd`.
    pub worktree: String,
    /// How long a permission request waits for a client, in milliseconds.
    pub permission_ttl_ms: u64,
}

/// What outlives a worker, kept in `state/`.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Saved {
    /// The agent's id of the newest conversation.
    pub acp_session: Option<String>,
    /// At least one prompt was given to the agent.
    pub prompted: bool,
    /// What the user must learn in the next turn of a conversation: that an earlier one was lost, or may be.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub untold: BTreeMap<String, String>,
}

/// What happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// A client's WebSocket is open. A newer one supersedes the older.
    Connected(Conn),
    /// A client sent one line.
    FromClient(Conn, &'a Bytes),
    /// A client sent a cancel that goes ahead of lines that it sent earlier. It comes again in its turn, empty.
    Ahead(Conn, &'a Bytes),
    /// A client is gone. Not a cancel, not a close.
    Disconnected(Conn),
    /// The agent wrote one line.
    FromAgent(&'a Bytes),
    /// The agent wrote a line above [`crate::acp::frame::MAX_LINE`], which was thrown away.
    AgentOverlong(&'a Outline),
    /// The agent is gone, all its output having been given in.
    AgentEnded {
        /// What ended it, in words.
        cause: &'a str,
    },
    /// Answers [`Action::Recall`], before anything else happens.
    Recalled {
        /// The agent's session id.
        session: &'a str,
        /// The record of its prompts; `None` where there is none that can be relied upon.
        record: Option<&'a Record>,
    },
    /// Nobody takes what the agent says, which therefore waits: why its turn is cancelled, in one sentence.
    Blocked(&'a str),
    /// Something that whoever prompts should know, in one sentence.
    Notice(&'a str),
    /// The walls refused the agent something.
    Refused {
        /// What, in one line.
        what: &'a str,
        /// Why, and what would allow it.
        why: &'a str,
        /// How often.
        times: u64,
    },
    /// The walls refused more, of which only the number is known.
    RefusedMore(u64),
    /// Time has passed (see [`Server::deadline`]).
    Tick,
}

/// What to do, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Start the agent; lines for it that follow are written once it runs.
    StartAgent,
    /// Write one line to the agent's stdin (no line end included).
    ToAgent(Bytes),
    /// The same, and it is an answer of ours to a request of the agent's own: what an agent that asks without end and reads nothing
    /// has to thank itself for.
    AnswerAgent(Bytes),
    /// Send one line to a client.
    ToClient(Conn, Bytes),
    /// Close a client's connection with a code of [`crate::codes::close`].
    Close(Conn, u16, String),
    /// Append one line to the journal of an ACP session.
    Journal {
        /// The agent's session id: any text that an agent may choose, so never a file's name as it is.
        session: String,
        /// A `session/update` notification.
        line: Bytes,
    },
    /// Forget the journal of an ACP session: the agent is about to replay it.
    ForgetJournal {
        /// The agent's session id.
        session: String,
    },
    /// Send the journal of an ACP session to a client, line by line, before any later action.
    Replay {
        /// To whom.
        conn: Conn,
        /// The agent's session id.
        session: String,
    },
    /// Append to the record of an ACP session's prompts, once all lines for the agent before it are written whole; where
    /// they were not, do nothing.
    Record {
        /// The agent's session id.
        session: String,
        /// What.
        entry: Entry,
    },
    /// Tell what the record of an ACP session says ([`Event::Recalled`]).
    Recall {
        /// The agent's session id.
        session: String,
    },
    /// Make durable before any later action.
    Save(Saved),
    /// A line for the worker's log.
    Log(String),
}

/// The role.
#[derive(Debug)]
pub struct Server {
    settings: Settings,
    saved: Saved,
    agent: Agent,
    client: Option<door::Client>,
    handshake: handshake::Handshake,
    calls: calls::Calls,
    conversations: conversations::Conversations,
    early: early::Early,
    /// The conversation whose load failed last.
    failed: Option<continuity::Failed>,
    turns: turns::Turns,
    asks: asks::Asks,
    notices: notices::Notices,
    refusals: refusals::Refusals,
    quiesced: bool,
    /// The last line of the agent that was no message.
    noise: Option<String>,
    /// The agent has said a message.
    spoke: bool,
    /// Busy at the end of the last event, and since when that or the contrary holds.
    busy: bool,
    since: u64,
}

// === impl Server ===

impl Server {
    /// A new generation. Times are milliseconds of one monotonic clock.
    #[must_use]
    pub fn new(settings: Settings, saved: Saved, now: u64) -> Self {
        Self {
            settings,
            saved,
            agent: Agent::default(),
            client: None,
            handshake: handshake::Handshake::default(),
            calls: calls::Calls::default(),
            conversations: conversations::Conversations::default(),
            early: early::Early::default(),
            failed: None,
            turns: turns::Turns::default(),
            asks: asks::Asks::default(),
            notices: notices::Notices::default(),
            refusals: refusals::Refusals::default(),
            quiesced: false,
            noise: None,
            spoke: false,
            busy: false,
            since: now,
        }
    }

    /// Takes one event and appends what to do.
    pub fn handle(&mut self, event: Event<'_>, now: u64, out: &mut Vec<Action>) {
        let before = out.len();
        match event {
            Event::Connected(conn) => self.connected(conn, now, out),
            Event::FromClient(conn, line) => self.client_sent(conn, line, now, out),
            Event::Ahead(conn, line) => self.client_hurried(conn, line, now, out),
            Event::Disconnected(conn) => self.disconnected(conn, now, out),
            Event::FromAgent(line) => self.agent_wrote(line, now, out),
            Event::AgentOverlong(outline) => self.agent_wrote_too_much(outline, now, out),
            Event::AgentEnded { cause } => self.agent_ended(cause, out),
            Event::Recalled { session, record } => self.recalled(session, record),
            Event::Blocked(why) => self.blocked(why, out),
            Event::Notice(text) => self.notice(text, out),
            Event::Refused { what, why, times } => self.refused(what, why, times, out),
            Event::RefusedMore(times) => self.refused_more(times),
            Event::Tick => {}
        }
        self.expire_asks(now, out);
        self.expire_handshake(now, out);
        self.release_held(now, out);
        self.settle(now, out);
        for action in &mut out[before..] {
            // An answer may have outgrown the limit by its asker's own id.
            if let Action::ToClient(_, line) = action
                && line.len() > MAX_LINE
            {
                *line = lines::too_long(line).into();
            }
        }
        if self.busy != self.turns.busy() {
            self.busy = !self.busy;
            self.since = now;
        }
    }

    /// When [`Event::Tick`] is wanted next.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        [
            self.asks.deadline(),
            self.turns.deadline(),
            self.handshake_deadline(),
            self.early.deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Busy (a turn runs or waits) or idle, and since when.
    #[must_use]
    pub fn activity(&self, now: u64) -> Activity {
        let for_ms = now.saturating_sub(self.since);
        match (self.quiesced, self.busy) {
            (true, _) => Activity::Quiesced,
            (false, true) => Activity::Busy { for_ms },
            (false, false) => Activity::Idle { for_ms },
        }
    }

    /// Refuses new prompts from now on; false (and nothing changed) where a turn runs or waits.
    pub fn quiesce(&mut self) -> bool {
        if !self.turns.busy() {
            self.quiesced = true;
        }
        !self.turns.busy()
    }

    /// Takes a quiesce back.
    pub fn reopen(&mut self) {
        self.quiesced = false;
    }

    /// What to keep over generations.
    #[must_use]
    pub fn saved(&self) -> &Saved {
        &self.saved
    }
}
