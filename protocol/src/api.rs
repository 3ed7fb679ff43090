//! The allocator's HTTP API, version 1. JSON over HTTP/1.1 with `Authorization: Bearer`.
//!
//! | call | does |
//! |---|---|
//! | `GET /healthz` | 200 while the process serves; no token needed |
//! | `POST /v1/sessions` [`Allocate`] -> [`Attached`] | find or make the key's session and give it a live worker |
//! | `GET /v1/sessions` -> [`SessionList`] | lists; never wakes anything |
//! | `GET /v1/sessions/{id}` -> [`SessionView`] | one; never wakes |
//! | `POST /v1/sessions/{id}/resume` -> [`Attached`] | a live worker for an existing session; never makes a session |
//! | `POST /v1/sessions/{id}/exec` -> [`Attached`] | as resume; the token opens `/v1/exec` and nothing else |
//! | `POST /v1/sessions/{id}/stop` [`End`] -> [`SessionView`] | compute stops, storage stays |
//! | `POST /v1/sessions/{id}/close` [`End`] -> [`SessionView`] | ends the incarnation |
//! | `GET/PUT /v1/handshakes/{key}` | a profile's stored answer to `initialize` (raw JSON) |
//!
//! Errors are [`ApiError`] with the status code of [`ErrorKind::status`].

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::end::EndReason;
use crate::ids::{BootId, Generation, Incarnation, SessionId, SlotId};
use crate::key::Key;
use crate::tier::Tier;
use crate::tls::Pin;
use crate::worker::{Evidence, StartError};

/// How a client on the same machine finds and opens the allocator: `run/allocator.json`, mode 0600.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Where it listens.
    pub address: SocketAddr,
    /// The bearer token.
    pub token: String,
    /// Its process id, for `casemate doctor` and people.
    pub pid: u32,
    /// The tier of new sessions, for people.
    #[serde(default)]
    pub tier: Option<Tier>,
}

/// The answer to `GET /healthz`, which needs no token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// It serves.
    pub ok: bool,
    /// The answer to `?nonce=` ([`crate::proof`]); a client that gets none, or a wrong one, sends no token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<String>,
}

/// Asks for the key's session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allocate {
    /// Makes the call idempotent: the same id with the same body answers the same; with another body it is a conflict.
    pub request_id: String,
    /// The conversation.
    pub key: Key,
    /// What is wanted. Applies to a new session; a live one keeps what it was made with.
    pub intent: Intent,
}

/// What the session is made of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Intent {
    /// Profile name.
    pub profile: String,
    /// Repository: a path on this machine or an http(s) URL.
    pub repository: Option<String>,
    /// The agent's command line.
    pub agent: Vec<String>,
    /// Variables handed to the agent on purpose.
    pub env: BTreeMap<String, String>,
    /// Further TCP ports that the session may connect to (a model server on loopback, say), besides the profile's.
    #[serde(default)]
    pub connect: Vec<u16>,
    /// Absolute paths of programs, files or directories, outside the system's (the agent's own installation), besides the profile's.
    #[serde(default)]
    pub programs: Vec<PathBuf>,
    /// Absolute path of the read-only skills; `None`: the profile's.
    #[serde(default)]
    pub skills: Option<PathBuf>,
    /// Absolute path of the baseline that a new HOME is copied from; `None`: the profile's.
    #[serde(default)]
    pub home_template: Option<PathBuf>,
}

/// A live worker and how to reach it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// The session.
    pub session: SessionView,
    /// True when this call made the session.
    pub created: bool,
    /// Where its worker serves `/acp`.
    pub address: SocketAddr,
    /// Whom to believe there; absent: it is plain HTTP, and no other than this is to be spoken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<Pin>,
    /// Opens `/acp` of this generation, or, in the answer to exec, its `/v1/exec`.
    pub token: String,
}

/// One session as the allocator knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionView {
    /// The session.
    pub id: SessionId,
    /// Its key.
    pub key: Key,
    /// Which life of the key this is.
    pub incarnation: Incarnation,
    /// Its newest generation.
    pub generation: Generation,
    /// What it was made with.
    pub intent: Intent,
    /// Where it stands.
    pub phase: Phase,
    /// Its slot.
    pub slot: SlotId,
    /// Its worker, while one lives.
    pub worker: Option<WorkerView>,
    /// Why it ended or stopped last.
    pub last_end: Option<LastEnd>,
    /// What is going to happen to it, and why.
    pub next: Option<NextAction>,
    /// Where the trees of a session that has ended are kept, on this machine's own paths, with its worktree in `work`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<PathBuf>,
    /// Seconds since the Unix epoch.
    pub created: u64,
    /// What of the machine besides the system's directories the agent may read and run: its own program, found by
    /// itself, and what the intent and the profile name. Empty in the answers to stop and close.
    #[serde(default)]
    pub programs: Vec<PathBuf>,
}

/// Where a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Its worker is being started.
    Starting,
    /// Its worker serves.
    Active,
    /// No compute, storage kept.
    Asleep,
    /// Its worker is being stopped.
    Stopping,
    /// The incarnation is over.
    Ended,
}

/// A live worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerView {
    /// Its start.
    pub boot: BootId,
    /// Measured tier.
    pub tier: Tier,
    /// Its process id on this machine.
    pub pid: u32,
    /// Busy or idle, and since when, at the last look.
    pub activity: Option<crate::worker::Activity>,
    /// What its walls stop and let through, as tried from inside; from the first look on.
    #[serde(default)]
    pub matrix: Option<crate::matrix::Matrix>,
    /// What the session takes of the machine and may take, at the last look.
    #[serde(default)]
    pub usage: Option<crate::usage::Usage>,
    /// The worktree on this machine's own paths, for people.
    pub worktree: PathBuf,
}

/// Why compute or storage ended last.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LastEnd {
    /// The reason.
    pub reason: EndReason,
    /// In words.
    pub detail: String,
    /// What the worktree held then.
    pub evidence: Option<Evidence>,
    /// Seconds since the Unix epoch.
    pub at: u64,
}

/// `status.next`: what will happen unless something changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextAction {
    /// What.
    pub action: String,
    /// In how many seconds of further idleness.
    pub after_idle_seconds: u64,
    /// Why.
    pub because: String,
}

/// All sessions, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionList {
    /// The sessions.
    pub sessions: Vec<SessionView>,
}

/// Answer of `POST /v1/keys/rotate`: tokens are signed with another key from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rotated {
    /// Its public half, in base64url.
    pub key: String,
    /// Living workers that take it and no other.
    pub workers: usize,
    /// Those that take the former one as well, until they end or the allocator starts again.
    pub behind: Vec<String>,
}

/// Body of stop and close.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// Why.
    pub reason: EndReason,
    /// Close: delete the storage even where work is unpushed.
    #[serde(default)]
    pub discard: bool,
    /// End a busy worker too (cancel, grace, kill) instead of answering `busy`.
    #[serde(default)]
    pub force: bool,
    /// Only where this is still the session's newest generation, so that none is ended which was woken since it was looked at; else
    /// `conflict`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<Generation>,
}

impl End {
    /// For this reason, of whatever generation, and of nothing that is busy or has unpushed work.
    #[must_use]
    pub fn by(reason: EndReason) -> Self {
        Self { reason, discard: false, force: false, generation: None }
    }
}

/// A refused call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// Which refusal; decides the status code.
    pub kind: ErrorKind,
    /// What happened and what to do next.
    pub message: String,
    /// The worker's own error, where it did not start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<StartError>,
}

/// The refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    /// The body or path is wrong.
    Invalid,
    /// No or a wrong token.
    Unauthorized,
    /// No such session, profile or repository.
    NotFound,
    /// The request id was used with another intent, or the session is in another phase.
    Conflict,
    /// A turn or a command of exec is running; try again or force.
    Busy,
    /// The worker did not start; `start` says why.
    WorkerFailed,
    /// The tier, kernel or disk does not allow it.
    Unavailable,
    /// Ours.
    Internal,
}

impl ErrorKind {
    /// The HTTP status code.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::Invalid => 400,
            Self::Unauthorized => 401,
            Self::NotFound => 404,
            Self::Conflict => 409,
            Self::Busy => 423,
            Self::WorkerFailed => 502,
            Self::Unavailable => 503,
            Self::Internal => 500,
        }
    }
}
