//! What people read of a session.

use casemate_protocol::ids::BootId;
use casemate_protocol::worker::Evidence;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::resource::schema;
use crate::resource::text::Revision;

/// What the allocator observed of a session. For people: it is built anew where it is lost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkerSessionStatus {
    /// The `metadata.generation` that this status is about.
    #[schemars(range(min = 0))]
    pub observed_generation: i64,
    /// Where it stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<ShownPhase>,
    /// What is being waited for, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub waiting: Option<String>,
    /// Why nothing can be done for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked: Option<Blocked>,
    /// Its worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerShown>,
    /// What happens next unless something changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<NextAction>,
    /// What was done last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<LastAction>,
}

/// Where a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ShownPhase {
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
    /// It cannot go on before something outside has changed: see `blocked`.
    Blocked,
}

/// Why nothing can be done for a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Blocked {
    /// Which obstacle.
    pub reason: BlockedReason,
    /// What it is and what ends it.
    #[schemars(length(max = 1024))]
    pub message: String,
    /// Since when.
    pub since: Time,
}

/// An obstacle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BlockedReason {
    /// Its former Pod is not proven gone (terminating, or its node does not answer): a second one could run beside it.
    PreviousWorker,
    /// An object of the slot's name is there that is not the slot's.
    ForeignObject,
    /// Its volume is missing, or is another one.
    VolumeLost,
    /// Its profile is missing, or is another one.
    ProfileLost,
    /// Another session has what it needs.
    ResourceBusy,
    /// The cluster refuses what it needs.
    Refused,
}

/// A session's worker.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkerShown {
    /// Its start.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::boot_id")]
    pub boot: Option<BootId>,
    /// The node that it runs on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub node: Option<String>,
    /// Where its door is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub address: Option<String>,
    /// The isolation that it measured from inside.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::tier")]
    pub tier: Option<casemate_protocol::tier::Tier>,
    /// The policy in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_revision: Option<Revision>,
    /// The skills in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skills_revision: Option<Revision>,
    /// Busy, idle or quiesced, and for how long.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub activity: Option<String>,
    /// Variables by which the agent has a secret itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub secrets_in_variables: Vec<String>,
}

/// What happens to a session next unless something changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NextAction {
    /// What.
    #[schemars(length(max = 128))]
    pub action: String,
    /// When, if nothing changes until then. Absent: when what `because` names has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
    /// Why.
    #[schemars(length(max = 1024))]
    pub because: String,
}

/// What was done with a session last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastAction {
    /// What.
    #[schemars(length(max = 128))]
    pub action: String,
    /// Why.
    #[schemars(length(max = 1024))]
    pub reason: String,
    /// What its worktree held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::evidence")]
    pub evidence: Option<Evidence>,
    /// When.
    pub at: Time,
}
