//! When compute and storage end, what a reset does, how many there may be.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::resource::text::Period;

/// When compute and storage end. Only observed idleness spends time: an allocator that is down, a clock that is set and
/// a node that is suspended spend none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Lifetime {
    /// A worker that was idle for so long is stopped; its volume stays.
    pub idle: Period,
    /// A session that slept for so long ends. Absent: it sleeps until somebody closes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asleep: Option<Period>,
    /// How long the volume of a closed session is kept that holds nothing unpushed. Absent: it is deleted at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed: Option<Period>,
    /// How long the volume of an ended session is kept that holds unpushed work, or of which that is not known. Absent:
    /// until somebody discards it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unpushed: Option<Period>,
    /// How long a worker may take from its Pod's creation until it serves.
    pub start: Period,
    /// How often a start is tried before the session's caller is told that it failed.
    #[schemars(range(min = 1, max = 10))]
    pub attempts: u32,
    /// Between TERM and KILL of the agent.
    pub grace: Period,
    /// How long a permission request waits for a client.
    pub permission: Period,
    /// How long an agent waits of which no more can be kept, until its turn is cancelled.
    pub blocked: Period,
    /// The longest that a hold may keep a worker.
    pub hold: Period,
}

impl Default for Lifetime {
    fn default() -> Self {
        let period = |text: &str| text.parse().expect("a period");
        Self {
            idle: period("30m"),
            asleep: None,
            closed: None,
            unpushed: None,
            start: period("10m"),
            attempts: 3,
            grace: period("5s"),
            permission: period("10m"),
            blocked: period("10m"),
            hold: period("1h"),
        }
    }
}

/// What a reset (the user wants a fresh context) does besides setting the agent's conversation aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.worktree != 'fresh' || self.incarnation == 'next'",
    "message": "a volume belongs to one incarnation: a fresh worktree needs `incarnation: next`",
    "fieldPath": ".incarnation"
}]))]
pub struct Reset {
    /// What becomes of the worktree.
    pub worktree: ResetWorktree,
    /// Whether the incarnation goes on.
    pub incarnation: ResetIncarnation,
}

/// What becomes of the worktree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ResetWorktree {
    /// It stays.
    #[default]
    Keep,
    /// A new clone in a new volume. The old one stays until it is known to hold nothing unpushed.
    Fresh,
}

/// Whether the incarnation goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ResetIncarnation {
    /// It goes on.
    #[default]
    Same,
    /// It ends and the next one begins.
    Next,
}

/// How many there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.activePerTenant <= self.active",
    "message": "a tenant cannot have more than all: lower `activePerTenant`",
    "fieldPath": ".activePerTenant"
}]))]
pub struct Capacity {
    /// Pods of this profile, warm ones included.
    #[schemars(range(min = 1, max = 100_000))]
    pub active: u32,
    /// Of these, those of one tenant.
    #[schemars(range(min = 1, max = 100_000))]
    pub active_per_tenant: u32,
    /// Sessions of one tenant that have not ended, asleep or not.
    #[schemars(range(min = 1, max = 100_000))]
    pub sessions_per_tenant: u32,
}

impl Default for Capacity {
    fn default() -> Self {
        Self { active: 50, active_per_tenant: 50, sessions_per_tenant: 1000 }
    }
}
