//! The supervisor's role: ACP server towards clients, the agent's one client.

use crate::worker::Activity;

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
}

/// What happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// A client's WebSocket is open. A newer one supersedes the older.
    Connected(Conn),
    /// A client sent one line.
    FromClient(Conn, &'a [u8]),
    /// A client is gone. Not a cancel, not a close.
    Disconnected(Conn),
    /// The agent wrote one line.
    FromAgent(&'a [u8]),
    /// The agent is gone, all its output having been given in.
    AgentEnded {
        /// What ended it, in words.
        cause: &'a str,
    },
    /// Time has passed (see [`Server::deadline`]).
    Tick,
}

/// What to do, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Start the agent; lines for it that follow are written once it runs.
    StartAgent,
    /// Write one line to the agent's stdin (no line end included).
    ToAgent(Vec<u8>),
    /// Send one line to a client.
    ToClient(Conn, Vec<u8>),
    /// Close a client's connection with a code of [`crate::codes::close`].
    Close(Conn, u16, String),
    /// Append one line to the journal of an ACP session.
    Journal {
        /// The agent's session id.
        session: String,
        /// A `session/update` notification.
        line: Vec<u8>,
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
}

impl Server {
    /// A new generation. Times are milliseconds of one monotonic clock.
    #[must_use]
    pub fn new(settings: Settings, saved: Saved, _now: u64) -> Self {
        Self { settings, saved }
    }

    /// Takes one event and appends what to do.
    pub fn handle(&mut self, _event: Event<'_>, _now: u64, _out: &mut Vec<Action>) {
        let _ = &self.settings;
    }

    /// When [`Event::Tick`] is wanted next.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        None
    }

    /// Busy or idle since when.
    #[must_use]
    pub fn activity(&self, now: u64) -> Activity {
        Activity::Idle { for_ms: now }
    }

    /// Refuses new prompts from now on; false (and nothing changed) where a turn runs or waits.
    pub fn quiesce(&mut self) -> bool {
        true
    }

    /// Takes a quiesce back.
    pub fn reopen(&mut self) {}

    /// What to keep over generations.
    #[must_use]
    pub fn saved(&self) -> &Saved {
        &self.saved
    }
}
