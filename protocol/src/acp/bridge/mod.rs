//! The role of `casemate acp`: one agent towards its host, a client of many workers. No IO.
//!
//! [`Bridge`] owns what the bridge knows: the host's `initialize` and the stored answer, its sessions with their
//! attachments, and which agent request waits for which answer of the host. Events come in, [`Action`]s go out, in order.
//!
//! Invariants:
//! - **The host is outside the wall.** Only what [`wall`] names reaches it.
//! - The host knows a session by its casemate id alone; the agent's own id goes to its own worker alone.
//! - A frame is spliced, never re-serialised; only `initialize` is edited.
//! - Each request of the host is answered once. A request whose worker is lost gets an error that says whether it may
//!   be sent again ([`crate::codes::Delivery`]); a prompt that certainly never left goes to the next worker instead.
//! - Nothing of an ended connection reaches a newer one. Detach is not close.
//! - A conversation that is lost goes on as a new one in the same session; the worker says so inside the next turn.

mod attach;
mod edit;
mod handshake;
mod host;
mod message;
mod prepare;
mod session;
#[cfg(test)]
mod tests;
mod wall;
mod worker;

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::acp::frame::Outline;
use crate::api::Intent;
use crate::ids::SessionId;
use crate::relay::reach::Reach;
use crate::tier::Tier;
use crate::worker::Evidence;

use session::Session;

/// One connection to a worker, or the attempt at one. Never reused within a bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Link(pub u64);

/// What the bridge was started for.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What a new session is made of.
    pub intent: Intent,
    /// The conversation's name, where the host knows it.
    pub key: Option<String>,
}

/// Which session to attach to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Want {
    /// The session of this conversation; `None`: a new one.
    Key(Option<String>),
    /// This one; never makes one.
    Session(SessionId),
    /// A new one without the repository, which may take longer to clone than a host waits for `initialize`. The agent is
    /// asked what it can and the session discarded.
    Blank,
}

/// An open connection to a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// The session.
    pub session: SessionId,
    /// This attachment made it.
    pub created: bool,
    /// It was made with this bridge's intent.
    pub same_intent: bool,
    /// The agent's own id of the conversation that a load continues.
    pub acp_session: Option<String>,
    /// What its worktree holds, as far as known.
    pub evidence: Option<Evidence>,
    /// How it is isolated, as measured.
    pub tier: Tier,
}

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The JSON-RPC code for the host.
    pub code: i64,
    /// What happened and what to do next.
    pub message: String,
}

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// The close code of [`crate::codes::close`], where a close frame came.
    pub code: Option<u16>,
    /// The worker's words or the error's.
    pub reason: String,
    /// What is known of the lines that were sent over it.
    pub fate: Option<Fate>,
}

/// How far lines got over an ended connection of the resumable door.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fate {
    /// By their numbers, counted from 1 on each link.
    pub reach: Reach,
    /// No agent works on them any more.
    pub agent_ended: bool,
}

/// What happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// The host wrote one line.
    FromHost(&'a [u8]),
    /// The host wrote a line of more than [`crate::acp::frame::MAX_LINE`] bytes, which was thrown away.
    HostOverlong(&'a Outline),
    /// The host hung up, or this process was told to end.
    HostEnded,
    /// Answers [`Action::LoadHandshake`]: the stored raw `result`, if there is one.
    Handshake(Option<&'a str>),
    /// `initialize` has waited for as long as a host may be kept waiting.
    HandshakeLate,
    /// Answers [`Action::Attach`].
    Attached(Link, Attachment),
    /// Answers [`Action::Attach`].
    AttachFailed(Link, Refusal),
    /// A worker sent one line.
    FromWorker(Link, &'a [u8]),
    /// Answers [`Action::Cancel`]: these lines were taken back before anything of them was sent.
    Revoked(Link, Vec<u64>),
    /// A connection is gone, all its lines having been given in.
    WorkerEnded(Link, Ending),
    /// Answers [`Action::Stop`].
    Stopped(SessionId, Result<(), Refusal>),
}

/// What to do, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Write one line to the host (no line end included).
    ToHost(Vec<u8>),
    /// Send one line to a worker.
    ToWorker(Link, Vec<u8>),
    /// Send a cancel to a worker, past every line that waits but those that it is for.
    Cancel {
        /// Over this connection.
        link: Link,
        /// The notification.
        line: Vec<u8>,
        /// The lines that it is for, by their numbers: take back those of which nothing was sent.
        of: Vec<u64>,
    },
    /// Ask for a stored handshake.
    LoadHandshake(String),
    /// Keep a handshake: key and raw `result`.
    StoreHandshake(String, String),
    /// Get a session a live worker, connect to it, read its status.
    Attach(Link, Want),
    /// Close a connection in order. Its end is reported no more.
    Detach(Link),
    /// Stop a session's compute, a running turn included. Its storage stays.
    Stop(SessionId),
    /// Close a session that was made and never used.
    Discard(SessionId),
    /// Something for the log.
    Log(String),
    /// Something that people must see, on stderr.
    Warn(String),
}

// === impl Action ===

impl Action {
    /// Over which connection it sends a line.
    fn worker(&self) -> Option<Link> {
        match self {
            Self::ToWorker(link, _) | Self::Cancel { link, .. } => Some(*link),
            _ => None,
        }
    }
}

/// The role.
#[derive(Debug)]
pub struct Bridge {
    settings: Settings,
    handshake: Handshake,
    /// The host's `initialize`, stripped, once it came; its id is replaced for each worker.
    initialize: Option<Vec<u8>>,
    /// Host lines that came before `initialize` was answered.
    early: VecDeque<Vec<u8>>,
    /// The last `authenticate` that an agent accepted: said to each further worker.
    authenticate: Option<Vec<u8>>,
    sessions: BTreeMap<u64, Session>,
    links: HashMap<Link, u64>,
    /// Lines that were sent over each link up to the event at hand, and where that event's actions begin.
    told: HashMap<Link, u64>,
    begin: usize,
    /// Agent requests that the host has not answered: our id -> whose, its own raw id.
    asked: BTreeMap<u64, (Link, String)>,
    /// `session/close` requests that wait for the allocator.
    closing: Vec<(SessionId, String)>,
    /// The session whose load failed last: the next `session/new` stays in it.
    unloaded: Option<u64>,
    /// Why the first session that could not be attached to was given up.
    given_up: Option<String>,
    /// Why the last `initialize` was not answered with who the agent is.
    unintroduced: Option<String>,
    /// A weaker tier was told on stderr.
    weak_said: bool,
    ended: bool,
    next_session: u64,
    next_link: u64,
    next_ask: u64,
    next_notice: u64,
}

/// What the host was told about the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Handshake {
    /// No `initialize` yet.
    None,
    /// `initialize` with this raw id waits for the stored answer.
    Loading { id: String, key: String },
    /// This session's worker is asked; `id` waits for it, unless that took too long.
    Asking { id: Option<String>, key: String, session: u64 },
    /// The agent's raw result.
    Known { key: String, result: String },
}

// === impl Bridge ===

impl Bridge {
    /// A bridge whose host has said nothing yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            handshake: Handshake::None,
            initialize: None,
            early: VecDeque::new(),
            authenticate: None,
            sessions: BTreeMap::new(),
            links: HashMap::new(),
            told: HashMap::new(),
            begin: 0,
            asked: BTreeMap::new(),
            closing: Vec::new(),
            unloaded: None,
            given_up: None,
            unintroduced: None,
            weak_said: false,
            ended: false,
            next_session: 0,
            next_link: 0,
            next_ask: 1,
            next_notice: 1,
        }
    }

    /// Takes one event and appends what to do.
    pub fn handle(&mut self, event: Event<'_>, out: &mut Vec<Action>) {
        self.begin = out.len();
        self.decide(event, out);
        for action in &out[self.begin..] {
            if let Some(link) = action.worker() {
                *self.told.entry(link).or_default() += 1;
            } else if let Action::Detach(link) = action {
                self.told.remove(link);
            }
        }
    }

    /// The number of the line that is sent over a link next.
    fn next_line(&self, link: Link, out: &[Action]) -> u64 {
        let now = out[self.begin..].iter().filter(|action| action.worker() == Some(link));
        self.told.get(&link).copied().unwrap_or_default() + now.count() as u64 + 1
    }

    fn decide(&mut self, event: Event<'_>, out: &mut Vec<Action>) {
        match event {
            Event::FromHost(line) => self.host_line(line, out),
            Event::HostOverlong(outline) => self.host_overlong(outline, out),
            Event::HostEnded => self.host_ended(out),
            Event::Handshake(stored) => self.handshake_loaded(stored, out),
            Event::HandshakeLate => self.handshake_late(out),
            Event::Attached(link, attachment) => self.attached(link, attachment, out),
            Event::AttachFailed(link, refusal) => self.attach_failed(link, &refusal, out),
            Event::FromWorker(link, line) => self.worker_line(link, line, out),
            Event::Revoked(link, numbers) => self.revoked(link, &numbers, out),
            Event::WorkerEnded(link, ending) => self.worker_ended(link, &ending, out),
            Event::Stopped(session, outcome) => self.stopped(&session, outcome, out),
        }
    }

    /// Whether a session is open in this bridge.
    #[must_use]
    pub fn serves(&self) -> bool {
        self.sessions.values().any(|session| session.used)
    }

    /// Why a session could not be attached to, of the first that was given up.
    #[must_use]
    pub fn given_up(&self) -> Option<&str> {
        self.given_up.as_deref()
    }

    /// True while `initialize` is not answered: the driver reports when it takes too long.
    #[must_use]
    pub fn is_introducing(&self) -> bool {
        matches!(self.handshake, Handshake::Loading { .. } | Handshake::Asking { id: Some(_), .. })
    }

    /// True once the host is gone and nothing is open that must be waited for: an attempt to attach
    /// whose session might have to be discarded, a `session/close`.
    #[must_use]
    pub fn finished(&self) -> bool {
        self.ended && self.closing.is_empty() && !self.sessions.values().any(Session::is_attaching)
    }

    fn session_by_id(&self, id: &str) -> Option<u64> {
        self.sessions
            .iter()
            .find(|(_, session)| session.id.as_ref().is_some_and(|own| own.as_str() == id))
            .map(|(index, _)| *index)
    }

    fn notice_id(&mut self) -> String {
        let id = format!("casemate-{}", self.next_notice);
        self.next_notice += 1;
        id
    }
}
