//! What a worker that waits, or waited, says of itself to the holder of its slot's own token.

use serde::{Deserialize, Serialize};

use super::Bound;
use crate::ids::{BootId, SlotId};

/// The signed claims of a slot's own token. It opens nothing of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlotClaims {
    /// The slot, by the UID of its Pod.
    pub slot: SlotId,
    /// Seconds since the Unix epoch after which it is refused.
    pub expires: u64,
}

/// `GET /v1/status` with a slot's own token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotStatus {
    /// The slot, by the UID of its Pod.
    pub slot: SlotId,
    /// Its name.
    pub name: SlotId,
    /// This start.
    pub boot: BootId,
    /// Whether it waits.
    pub phase: SlotPhase,
    /// The slot's policy, as it was when it was last read: at the start, and when a bind came.
    pub policy_revision: String,
    /// The slot's skills, likewise.
    pub skills_revision: Option<String>,
    /// How the supervisor is shielded and what of the Pod was measured: one line a mechanism.
    pub enforcement: Vec<String>,
}

/// How far a worker is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "is")]
pub enum SlotPhase {
    /// It waits for a bind.
    Waiting,
    /// Its session is being made.
    Starting(Bound),
    /// Its session is served.
    Serving(Bound),
    /// It ends.
    Ending,
}
