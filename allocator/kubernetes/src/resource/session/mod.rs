//! `WorkerSession`: the one authority for which slot a key has.
//!
//! One object a key, for as long as the key is known: its name follows from the key, so that it cannot be made twice, and it
//! outlives incarnations, so that the number of none is given again. Everything that decides is in `spec`, which a restore of a
//! backup keeps; `status` is for people.
//!
//! Fields that a newer casemate wrote are passed over in reading, so that an older one that is put back can still end what it
//! finds; and they stay, because a change is written as a patch of what it changes. A *profile* with a field that is not known is
//! refused instead: passing over a restriction would lift it.

mod ledger;
mod name;
mod status;

pub use ledger::{
    Attempts, Ended, Ending, Hold, KeptVolume, Phase, ProfileRef, RequestEntry, SlotRef,
    StorageKind, StorageLedger, StorageState, Terms, VolumeMode, VolumeRef,
};
pub use name::name_of;
pub use status::{
    Blocked, BlockedReason, LastAction, NextAction, ShownPhase, WorkerSessionStatus, WorkerShown,
};

use casemate_protocol::ids::{Generation, Incarnation, SessionId};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::schema;
use super::text::{Label, ObjectName};

/// What the allocator knows of a key and must not forget. Written by the allocator alone, each time with the version that it read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "casemate.dev",
    version = "v1alpha1",
    kind = "WorkerSession",
    plural = "workersessions",
    namespaced,
    status = "WorkerSessionStatus",
    derive = "PartialEq",
    shortname = "ws",
    category = "casemate",
    doc = "One conversation (tenant, agent, platform, thread) and the slot that its worker has. Written by the allocator alone.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Generation", type_ = "integer", json_path = ".spec.generation"),
    printcolumn(name = "Agent", type_ = "string", json_path = ".spec.key.agent"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Next", type_ = "string", json_path = ".status.next.action"),
    printcolumn(name = "At", type_ = "date", json_path = ".status.next.at", priority = 1),
    printcolumn(name = "Because", type_ = "string", json_path = ".status.next.because", priority = 1),
    printcolumn(name = "Session", type_ = "string", json_path = ".spec.session", priority = 1),
    printcolumn(name = "Slot", type_ = "string", json_path = ".spec.slot.name", priority = 1),
    printcolumn(name = "Tier", type_ = "string", json_path = ".status.worker.tier", priority = 1),
    validation = Rule::new("self.metadata.name.matches('^k-[a-z2-7]{26}$')")
        .message("a session's name follows from its key: sessions are opened at the allocator's API, not by hand")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.incarnation >= oldSelf.incarnation")
        .message("an incarnation's number never falls"),
    validation = Rule::new("self.incarnation <= oldSelf.incarnation || (oldSelf.phase == 'Ended' && self.incarnation == oldSelf.incarnation + 1 && self.phase == 'Starting')")
        .message("the next incarnation is the next number, begins once the former has ended, and begins with a start"),
    validation = Rule::new("self.incarnation <= oldSelf.incarnation || !has(oldSelf.volume) || oldSelf.volume.mode == 'Borrowed' || (has(self.kept) && self.kept.exists(k, k.incarnation == oldSelf.incarnation && k.volume.uid == oldSelf.volume.uid))")
        .message("the volume of the former incarnation is still there: it goes on in `kept`"),
    validation = Rule::new("self.incarnation > oldSelf.incarnation || !has(oldSelf.kept) || oldSelf.kept.all(k, has(k.secondsLeft) || (has(self.kept) && self.kept.exists(l, l.volume.uid == k.volume.uid)))")
        .message("a kept volume is forgotten only after its deletion was decided (`secondsLeft`)"),
    validation = Rule::new("self.incarnation > oldSelf.incarnation || !((oldSelf.phase == 'Asleep' && self.phase in ['Active', 'Stopping']) || (oldSelf.phase == 'Active' && self.phase in ['Starting', 'Ended']) || (oldSelf.phase == 'Stopping' && self.phase == 'Starting'))")
        .message("a session goes from Asleep to Starting, from there to Active, and ends by way of Stopping or asleep"),
    validation = Rule::new("self.generation >= oldSelf.generation")
        .message("a generation never falls: it fences every worker before it"),
    validation = Rule::new("(self.incarnation == oldSelf.incarnation) == (self.session == oldSelf.session)")
        .message("each incarnation has one session id of its own"),
    validation = Rule::new("self.incarnation > oldSelf.incarnation || oldSelf.phase != 'Ended' || self.phase == 'Ended'")
        .message("an incarnation that has ended does not go on: open the next one"),
    validation = Rule::new("self.incarnation > oldSelf.incarnation || self.terms == oldSelf.terms")
        .message("an incarnation keeps the terms that it was opened with"),
    validation = Rule::new("self.incarnation > oldSelf.incarnation || self.profile == oldSelf.profile")
        .message("a change of the profile applies at the next incarnation"),
    validation = Rule::new("self.incarnation > oldSelf.incarnation || !has(oldSelf.volume) || has(self.volume) || self.phase == 'Ended' || !oldSelf.served")
        .message("the volume of a session that has not ended is not forgotten, once a worker served in it"),
    validation = Rule::new("self.incarnation > oldSelf.incarnation || !has(oldSelf.volume) || !has(self.volume) || self.volume == oldSelf.volume")
        .message("a volume is never exchanged within an incarnation"),
    validation = Rule::new("!has(self.slot) || (has(oldSelf.slot) && self.slot.name == oldSelf.slot.name) || self.generation > oldSelf.generation")
        .message("another slot is another worker: its generation is a higher one"),
    validation = Rule::new("!has(self.slot) || !has(self.slot.podUid) || (has(oldSelf.slot) && has(oldSelf.slot.podUid) ? self.slot.podUid == oldSelf.slot.podUid || self.generation > oldSelf.generation : true)")
        .message("another Pod is another worker: its generation is a higher one"),
    validation = Rule::new("!has(self.host) || !has(self.slot)")
        .message("a session that lives in a user's Pod has no slot of its own"),
    validation = Rule::new("self.phase == 'Starting' || (self.phase == 'Stopping') == has(self.ending)")
        .message("a session that is being stopped says how it ends, and no other does but one that is started to be looked into"),
    validation = Rule::new("!(self.phase in ['Starting', 'Active', 'Stopping']) || has(self.slot) || has(self.host)")
        .message("a session with compute says where")
)]
pub struct WorkerSessionSpec {
    /// Whose conversation it is.
    #[x_kube(validation = Rule::new("self == oldSelf").message("a session is its key's for ever"))]
    pub key: SessionKey,
    /// Which life of the key. Each close ends one; the next message opens the next.
    #[schemars(schema_with = "schema::count_from_one")]
    pub incarnation: Incarnation,
    /// The incarnation's own name at the API and in its volume.
    #[schemars(schema_with = "schema::session_id")]
    pub session: SessionId,
    /// The newest worker's number. Whatever names an older one is stale.
    #[schemars(schema_with = "schema::count")]
    pub generation: Generation,
    /// Where it stands. `Starting` and `Stopping` are the session's lock.
    pub phase: Phase,
    /// The profile as it was when the incarnation was opened.
    pub profile: ProfileRef,
    /// The alias of the repository, if one was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Label>,
    /// What the profile promised when the incarnation was opened.
    pub terms: Terms,
    /// Where its worker is, or is to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<SlotRef>,
    /// The user's session whose slot it shares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<ObjectName>,
    /// Where its files are, once they are somewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeRef>,
    /// What becomes of these.
    #[serde(default)]
    pub storage: StorageLedger,
    /// The end that is under way. While `Starting`: its worker is started for nothing but to look what its volume holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<Ending>,
    /// Why compute or storage ended last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_end: Option<Ended>,
    /// Starts that failed since a worker served last.
    #[serde(default)]
    pub attempts: Attempts,
    /// A worker of this incarnation served at least once: before that there is nothing to lose.
    #[serde(default)]
    pub served: bool,
    /// It was prompted at least once, or a command ran in it.
    #[serde(default)]
    pub used: bool,
    /// What keeps its worker or its volume for now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub holds: Vec<Hold>,
    /// The newest calls that were answered, so that a repeated one is answered the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub requests: Vec<RequestEntry>,
    /// Volumes of incarnations that have ended and whose volume is still there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub kept: Vec<KeptVolume>,
}

/// Characters that a tenant, an agent and a platform may have.
const SHORT: usize = 256;
/// Those of a thread.
const LONG: usize = 1024;

/// Names a conversation: two equal keys are the same one, nothing else is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionKey {
    /// Who pays and owns, from the caller's authenticated identity.
    #[schemars(length(min = 1, max = SHORT))]
    pub tenant: String,
    /// The agent's name.
    #[schemars(length(min = 1, max = SHORT))]
    pub agent: String,
    /// Where the conversation takes place.
    #[schemars(length(min = 1, max = SHORT))]
    pub platform: String,
    /// The platform's own name of the thread.
    #[schemars(length(min = 1, max = LONG))]
    pub thread: String,
}

// === impl SessionKey ===

/// A field of a key that no session can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidKey {
    field: &'static str,
    most: usize,
}

impl std::fmt::Display for InvalidKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { field, most } = self;
        write!(f, "a key's `{field}` has 1 to {most} characters")
    }
}

impl std::error::Error for InvalidKey {}

impl TryFrom<casemate_protocol::key::Key> for SessionKey {
    type Error = InvalidKey;

    fn try_from(key: casemate_protocol::key::Key) -> Result<Self, InvalidKey> {
        let fields = [
            ("tenant", &key.tenant, SHORT),
            ("agent", &key.agent, SHORT),
            ("platform", &key.platform, SHORT),
            ("thread", &key.thread, LONG),
        ];
        for (field, text, most) in fields {
            // The API server counts characters, not bytes.
            if !(1..=most).contains(&text.chars().count()) {
                return Err(InvalidKey { field, most });
            }
        }
        let casemate_protocol::key::Key { tenant, agent, platform, thread } = key;
        Ok(Self { tenant, agent, platform, thread })
    }
}

impl From<SessionKey> for casemate_protocol::key::Key {
    fn from(key: SessionKey) -> Self {
        Self { tenant: key.tenant, agent: key.agent, platform: key.platform, thread: key.thread }
    }
}
