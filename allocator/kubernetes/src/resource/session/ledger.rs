//! The parts of a session's ledger.

use casemate_protocol::api;
use casemate_protocol::end::EndReason;
use casemate_protocol::ids::{Incarnation, SessionId, SlotId};
use casemate_protocol::worker::Evidence;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::resource::profile::{AccessMode, Reset, Sharing, Tier};
use crate::resource::schema;
use crate::resource::text::{Digest, ObjectName, Period, Quantity};

/// Where a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Its worker is being started.
    Starting,
    /// Its worker serves.
    Active,
    /// Its worker is being stopped.
    Stopping,
    /// No compute; its volume is kept.
    Asleep,
    /// The incarnation is over.
    Ended,
}

impl From<Phase> for api::Phase {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Starting => Self::Starting,
            Phase::Active => Self::Active,
            Phase::Stopping => Self::Stopping,
            Phase::Asleep => Self::Asleep,
            Phase::Ended => Self::Ended,
        }
    }
}

impl From<api::Phase> for Phase {
    fn from(phase: api::Phase) -> Self {
        match phase {
            api::Phase::Starting => Self::Starting,
            api::Phase::Active => Self::Active,
            api::Phase::Stopping => Self::Stopping,
            api::Phase::Asleep => Self::Asleep,
            api::Phase::Ended => Self::Ended,
        }
    }
}

/// A profile at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProfileRef {
    /// Its name.
    pub name: ObjectName,
    /// Its UID: one that was deleted and made again is another.
    #[schemars(schema_with = "schema::uid")]
    pub uid: String,
    /// Its `metadata.generation`.
    #[schemars(range(min = 1))]
    pub generation: i64,
}

/// What a profile promised when an incarnation was opened: what its later changes do not touch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Terms {
    /// The weakest isolation that will do.
    pub tier: Tier,
    /// Who shares its Pod.
    pub sharing: Sharing,
    /// Where its files lie.
    #[serde(default)]
    pub storage: StorageKind,
    /// See the profile's `lifetime`.
    pub idle: Period,
    /// See the profile's `lifetime`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asleep: Option<Period>,
    /// See the profile's `lifetime`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<Period>,
    /// See the profile's `lifetime`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unpushed: Option<Period>,
    /// See the profile's `lifetime`.
    #[schemars(range(min = 1, max = 10))]
    pub attempts: u32,
    /// See the profile's `reset`.
    pub reset: Reset,
}

/// Where an incarnation's files lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum StorageKind {
    /// In the Pod: gone with it.
    Ephemeral,
    /// In a volume of its own.
    #[default]
    New,
    /// In somebody else's.
    Borrowed,
}

/// A slot: ServiceAccount, Secret, NetworkPolicy, volume claim and Pod of one random name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SlotRef {
    /// The name.
    #[schemars(schema_with = "schema::slot_id")]
    pub name: SlotId,
    /// It was taken out of the pool; it was not made for this session.
    #[serde(default)]
    pub pooled: bool,
    /// The UID of the Pod whose worker was bound to the session in its present generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::uid")]
    pub pod_uid: Option<String>,
}

/// How a session came to its volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VolumeMode {
    /// Made for it, or for the pool: it is deleted when its time has come.
    New,
    /// Somebody else's: it is never deleted.
    Borrowed,
}

/// A session's volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeRef {
    /// How it came to it.
    pub mode: VolumeMode,
    /// The claim.
    pub claim: ObjectName,
    /// The claim's UID: one of the same name is not this one.
    #[schemars(schema_with = "schema::uid")]
    pub uid: String,
    /// Its storage class, as the API server filled it in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<ObjectName>,
    /// How big it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Quantity>,
    /// Who may mount it at a time.
    #[serde(default)]
    pub access_mode: AccessMode,
}

/// What becomes of an incarnation's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageLedger {
    /// What.
    pub state: StorageState,
    /// While `Retained`: seconds of the allocator's running time until they are deleted. Absent: when somebody discards them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub seconds_left: Option<u64>,
}

/// What becomes of an incarnation's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum StorageState {
    /// They are its.
    #[default]
    Live,
    /// It has ended; they are kept.
    Retained,
    /// They are to be deleted.
    Deleting,
    /// They are gone.
    Deleted,
}

/// An end that is under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ending {
    /// Why.
    #[schemars(schema_with = "schema::end_reason")]
    pub reason: EndReason,
    /// The incarnation ends too; else compute alone.
    pub close: bool,
    /// Delete the volume even where work is unpushed.
    #[serde(default)]
    pub discard: bool,
    /// End a busy worker too.
    #[serde(default)]
    pub force: bool,
    /// What happened, in words.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub detail: String,
    /// The worker has been quiesced, or is gone: what it held then is in `evidence`.
    #[serde(default)]
    pub quiesced: bool,
    /// What its worktree held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::evidence")]
    pub evidence: Option<Evidence>,
}

/// Why compute or storage ended last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ended {
    /// Why.
    #[schemars(schema_with = "schema::end_reason")]
    pub reason: EndReason,
    /// What happened, in words.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub detail: String,
    /// What its worktree held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::evidence")]
    pub evidence: Option<Evidence>,
    /// When.
    pub at: Time,
}

/// Starts that failed since a worker served last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Attempts {
    /// How many.
    #[schemars(range(min = 0, max = 1000))]
    pub failed: u32,
    /// What the last one failed of.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub because: Option<String>,
}

/// Keeps a worker from being stopped, or a volume from being deleted, while somebody needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    /// What for. Holds for different reasons are independent.
    #[schemars(length(min = 1, max = 128))]
    pub reason: String,
    /// Whose.
    #[schemars(length(min = 1, max = 256))]
    pub holder: String,
    /// Seconds of the allocator's running time that it still holds.
    #[schemars(range(min = 0, max = 31_536_000))]
    pub seconds_left: u64,
}

/// A call that was answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestEntry {
    /// Its request id.
    #[schemars(length(min = 1, max = 128))]
    pub id: String,
    /// SHA-256 of its body, in hex.
    pub digest: Digest,
    /// The session that it named.
    #[schemars(schema_with = "schema::session_id")]
    pub session: SessionId,
    /// Whether it opened that incarnation.
    pub created: bool,
}

/// The volume of an incarnation that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeptVolume {
    /// The incarnation.
    #[schemars(schema_with = "schema::count_from_one")]
    pub incarnation: Incarnation,
    /// Its session id.
    #[schemars(schema_with = "schema::session_id")]
    pub session: SessionId,
    /// The volume.
    pub volume: VolumeRef,
    /// What its worktree held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::evidence")]
    pub evidence: Option<Evidence>,
    /// Seconds of the allocator's running time until it is deleted; 0: it is being deleted. Absent: when somebody discards it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub seconds_left: Option<u64>,
}
