//! Many sessions of one user in one worker: what such a worker is started with, what it is asked for, what it answers.
//!
//! A worker is bound to one user for the life of its slot. Its own tokens ([`WorkerClaims`]) open the list of its sessions and
//! nothing of any session; a session's tokens ([`crate::token::Claims`]) open that session and nothing of the worker.

mod config;

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::{BootId, Generation, Incarnation, SessionId, SlotId};
use crate::tier::Tier;
use crate::worker::{Activity, AgentState};

pub use config::{SessionConfig, SharedWorkerConfig, Sharing};

/// The longest name of a user, in bytes.
const LONGEST_USER: usize = 256;

/// Whose sessions a worker has: the authority's own word for a user (tenant and user), compared byte by byte.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct UserId(String);

/// Text that names no user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a user's name is 1 to 256 bytes without control characters")]
pub struct InvalidUser;

// === impl UserId ===

impl UserId {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for UserId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for UserId {
    type Err = InvalidUser;

    fn from_str(text: &str) -> Result<Self, InvalidUser> {
        text.to_owned().try_into()
    }
}

impl TryFrom<String> for UserId {
    type Error = InvalidUser;

    fn try_from(text: String) -> Result<Self, InvalidUser> {
        let sound = (1..=LONGEST_USER).contains(&text.len()) && !text.contains(char::is_control);
        if sound { Ok(Self(text)) } else { Err(InvalidUser) }
    }
}

impl From<UserId> for String {
    fn from(user: UserId) -> Self {
        user.0
    }
}

/// The signed claims of a worker's own token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerClaims {
    /// The slot that the worker lives in.
    pub slot: SlotId,
    /// The user that it is bound to.
    pub user: UserId,
    /// Seconds since the Unix epoch after which it is refused.
    pub expires: u64,
}

/// Why a worker does not take, or does not end, a session. The body of the answer, whose status is [`Refusal::status`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Refusal {
    /// The session is another user's.
    #[error("this worker is bound to another user: start one for the user of this session")]
    OtherUser,
    /// Only tier `domain` is to be had here.
    #[error(
        "tier {wanted} is not to be had in a worker of many sessions: ask for domain, or start a worker of its own"
    )]
    Tier {
        /// The tier asked for.
        wanted: Tier,
    },
    /// The session is hosted, and something else was asked for then.
    #[error(
        "session {session} is hosted with another configuration: end it first, or ask as before"
    )]
    OtherIntent {
        /// The session.
        session: SessionId,
    },
    /// A newer generation was hosted.
    #[error(
        "session {session} was hosted in incarnation {incarnation} generation {generation}: ask for a later generation"
    )]
    Stale {
        /// The session.
        session: SessionId,
        /// The newest incarnation hosted.
        incarnation: Incarnation,
        /// The newest generation of that.
        generation: Generation,
    },
    /// Another generation than the named one is hosted.
    #[error("session {session} is hosted in generation {generation}: name that one")]
    OtherGeneration {
        /// The session.
        session: SessionId,
        /// The one that is hosted.
        generation: Generation,
    },
    /// No more sessions fit.
    #[error("{most} sessions are hosted here and no more fit: end one, or start another worker")]
    Full {
        /// How many there may be.
        most: u32,
    },
    /// The session is neither hosted nor stored.
    #[error("session {session} is neither hosted nor stored here")]
    NoSession {
        /// The session.
        session: SessionId,
    },
    /// The session is hosted: its storage is not to be deleted below it, and it did not end.
    #[error("session {session} has not ended in time: ask again")]
    Hangs {
        /// The session.
        session: SessionId,
    },
    /// The session's storage could not be deleted.
    #[error("the storage of session {session} is not deleted: {message}")]
    Storage {
        /// The session.
        session: SessionId,
        /// What happened.
        message: String,
    },
    /// The worker is ending.
    #[error("the worker is ending: start another")]
    Ending,
}

impl Refusal {
    /// The HTTP status.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::OtherUser => 403,
            Self::NoSession { .. } => 404,
            Self::Tier { .. } => 422,
            Self::OtherIntent { .. } | Self::Stale { .. } | Self::OtherGeneration { .. } => 409,
            Self::Full { .. } | Self::Ending => 503,
            Self::Hangs { .. } | Self::Storage { .. } => 500,
        }
    }
}

/// `DELETE /v1/sessions/{id}?generation=N&storage=keep`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndSession {
    /// Only this generation is ended; `None`: whichever is hosted.
    pub generation: Option<Generation>,
    /// What becomes of its trees and its state.
    pub storage: Storage,
}

/// A query that says something else than how a session is to be ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}`: give `storage=keep` or `storage=delete`, and `generation=N` where only that one is meant"
)]
pub struct InvalidQuery(String);

impl EndSession {
    /// Reads a query.
    ///
    /// # Errors
    /// [`InvalidQuery`] where `storage` is missing or anything else is there.
    pub fn from_query(query: &str) -> Result<Self, InvalidQuery> {
        let wrong = || InvalidQuery(query.to_owned());
        let (mut generation, mut storage) = (None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("storage", "keep")) => storage = Some(Storage::Keep),
                Some(("storage", "delete")) => storage = Some(Storage::Delete),
                Some(("generation", number)) => {
                    generation = Some(Generation(number.parse().map_err(|_| wrong())?));
                }
                _ => return Err(wrong()),
            }
        }
        Ok(Self { generation, storage: storage.ok_or_else(wrong)? })
    }

    /// As [`EndSession::from_query`] reads it.
    #[must_use]
    pub fn to_query(self) -> String {
        let storage = match self.storage {
            Storage::Keep => "storage=keep",
            Storage::Delete => "storage=delete",
        };
        self.generation.map_or_else(
            || storage.to_owned(),
            |generation| format!("{storage}&generation={generation}"),
        )
    }
}

/// What becomes of an ended session's trees and state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Storage {
    /// They stay, for the next generation.
    Keep,
    /// They are deleted.
    Delete,
}

/// The answer to the end of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionEnded {
    /// The session.
    pub session: SessionId,
    /// The generation that was ended; `None` where none was hosted.
    pub generation: Option<Generation>,
    /// What became of its trees and its state.
    pub storage: Storage,
}

/// One line of `GET /v1/sessions`' list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSummary {
    /// The session.
    pub session: SessionId,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Its generation.
    pub generation: Generation,
    /// As measured from inside; `None` while it is made.
    pub tier: Option<Tier>,
    /// The policy in force, by the SHA-256 of its text; `None` while it is made.
    #[serde(default)]
    pub policy_revision: Option<String>,
    /// What is going on; `None` while it is made.
    pub activity: Option<Activity>,
    /// The agent's process.
    pub agent: AgentState,
    /// Connected clients.
    pub attachments: u32,
}

/// `GET /v1/sessions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionList {
    /// By id.
    pub sessions: Vec<SessionSummary>,
}

/// `GET /v1/status` with a worker's own token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedStatus {
    /// Whose sessions it takes.
    pub user: UserId,
    /// The slot.
    pub slot: SlotId,
    /// This start.
    pub boot: BootId,
    /// How the supervisor is shielded: one line a mechanism.
    pub enforcement: Vec<String>,
    /// What it hosts.
    pub sessions: Vec<SessionSummary>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_short_printable_text() {
        assert!("tenant/ann".parse::<UserId>().is_ok());
        for wrong in ["", "a\nb", &"x".repeat(257)] {
            assert_eq!(wrong.parse::<UserId>(), Err(InvalidUser), "{wrong:?}");
        }
    }

    #[test]
    fn a_refusal_keeps_its_kind_and_its_facts() {
        let refusal = Refusal::Tier { wanted: Tier::Namespace };
        let json = serde_json::to_string(&refusal).unwrap();
        assert_eq!(json, r#"{"kind":"tier","wanted":"namespace"}"#);
        assert_eq!(serde_json::from_str::<Refusal>(&json).unwrap(), refusal);
    }

    #[test]
    fn how_a_session_is_to_be_ended_is_said_in_full_or_not_at_all() {
        for wanted in [
            EndSession { generation: None, storage: Storage::Keep },
            EndSession { generation: Some(Generation(7)), storage: Storage::Delete },
        ] {
            assert_eq!(EndSession::from_query(&wanted.to_query()), Ok(wanted));
        }
        for wrong in
            ["", "generation=1", "storage=burn", "storage=keep&x=1", "storage=keep&generation=-1"]
        {
            assert!(EndSession::from_query(wrong).is_err(), "{wrong}");
        }
    }
}
