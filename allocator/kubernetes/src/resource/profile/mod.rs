//! `WorkerProfile`: what an administrator lets workers be, and who may have one.

mod access;
mod agent;
mod compute;
mod content;
mod credentials;
mod lifetime;
mod network;
mod storage;

pub use access::{Sharing, Subject, Tier, Workspace};
pub use agent::{Agent, Image, PullPolicy, SetupStep};
pub use compute::{Placement, PodSettings, Resources, UserIds};
pub use content::{BuiltInPolicy, Content, HomeFiles, Policy, Skills};
pub use credentials::{Credential, CredentialUse};
pub use lifetime::{Capacity, Lifetime, Reset, ResetIncarnation, ResetWorktree};
pub use network::{Caller, Destination, Egress, KeyOf, Network, Port, Protocol, Proxy};
pub use storage::{AccessMode, Disk, PathAccess, PathRule, SharedResource, SharedUse, Storage};

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::text::{Label, Revision};

/// What workers of this profile are, how long they live, and who may use them. A change applies to sessions that are
/// opened after it, and to others at their next incarnation or at an explicit reset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "casemate.dev",
    version = "v1alpha1",
    kind = "WorkerProfile",
    plural = "workerprofiles",
    namespaced,
    status = "WorkerProfileStatus",
    derive = "PartialEq",
    shortname = "wp",
    category = "casemate",
    doc = "What workers are, how long they live, and who may use them. Owned by an administrator.",
    printcolumn(name = "Agent", type_ = "string", json_path = ".spec.agent.name"),
    printcolumn(name = "Tier", type_ = "string", json_path = ".spec.tier"),
    printcolumn(name = "Sharing", type_ = "string", json_path = ".spec.sharing", priority = 1),
    printcolumn(name = "Active", type_ = "integer", json_path = ".status.active"),
    printcolumn(name = "Warm", type_ = "integer", json_path = ".status.warm"),
    printcolumn(
        name = "Image",
        type_ = "string",
        json_path = ".spec.image.reference",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(
    validation = Rule::new("self.sharing != 'user' || self.tier == 'domain'")
        .message("sessions that share a Pod are kept apart in tier `domain`: set `tier: domain`, or `sharing: session`")
        .field_path(".tier"),
    validation = Rule::new("self.sharing != 'session' || self.tier == 'pod'")
        .message("a session with a Pod of its own has tier `pod`: set `tier: pod`, or `sharing: user`")
        .field_path(".tier"),
    validation = Rule::new("self.sharing != 'user' || self.pool == 0")
        .message("warm slots are claimed by sessions, and with `sharing: user` a slot is a user's: set `pool: 0`")
        .field_path(".pool"),
    validation = Rule::new("self.pool == 0 || !has(self.storage.borrowed)")
        .message("a borrowed volume is one, and each warm slot needs its own: set `pool: 0`, or another storage")
        .field_path(".pool"),
    validation = Rule::new("self.pool == 0 || self.shared.all(s, s.use != 'Exclusive')")
        .message("a warm slot would hold an exclusive resource before anybody works in it: set `pool: 0`, or another use")
        .field_path(".pool"),
    validation = Rule::new("self.pool <= self.capacity.active")
        .message("warm slots count as active: raise `capacity.active`, or lower `pool`")
        .field_path(".pool"),
    validation = Rule::new("!has(self.defaultWorkspace) || self.defaultWorkspace in self.workspaces")
        .message("`defaultWorkspace` names none of `workspaces`")
        .field_path(".defaultWorkspace"),
    validation = Rule::new("self.shared.all(s, self.shared.exists_one(t, t.mountPath == s.mountPath))")
        .message("two shared resources have one `mountPath`")
        .field_path(".shared")
)]
pub struct WorkerProfileSpec {
    /// The worker's image.
    pub image: Image,
    /// The agent that runs in it.
    pub agent: Agent,
    /// What a worker may take of its node.
    pub resources: Resources,
    /// Which nodes it may run on.
    #[serde(default)]
    pub placement: Placement,
    /// The Pod's settings.
    #[serde(default)]
    pub pod: PodSettings,
    /// Where a session's HOME, worktree and state lie.
    pub storage: Storage,
    /// Volumes of others that sessions of this profile see as well.
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub shared: Vec<SharedResource>,
    /// What the agent may touch.
    #[serde(default)]
    pub policy: Policy,
    /// Skills for the agent, read-only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skills: Option<Skills>,
    /// What a new HOME begins with, and what lies beside it.
    #[serde(default)]
    pub home: HomeFiles,
    /// Whom a worker reaches, and who reaches it.
    #[serde(default)]
    pub network: Network,
    /// Secrets that a worker uses for its agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub credentials: Vec<Credential>,
    /// Repositories by the name that a chat may say. A chat can name no other.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 128))]
    pub workspaces: BTreeMap<Label, Workspace>,
    /// The workspace where a chat names none. Absent: an empty repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_workspace: Option<Label>,
    /// When compute and storage end.
    #[serde(default)]
    pub lifetime: Lifetime,
    /// What a reset does.
    #[serde(default)]
    pub reset: Reset,
    /// How many there may be.
    #[serde(default)]
    pub capacity: Capacity,
    /// Slots that are kept warm: Pods that wait for a session.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1000))]
    pub pool: u32,
    /// Who shares a Pod.
    #[serde(default)]
    pub sharing: Sharing,
    /// The weakest isolation between sessions that will do; a worker that measures less is refused.
    #[serde(default)]
    pub tier: Tier,
    /// Who may have sessions of this profile. Nobody else: an empty list is nobody.
    #[serde(rename = "use", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub subjects: Vec<Subject>,
}

/// What the allocator observed of a profile. For people: it is built anew where it is lost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkerProfileStatus {
    /// The `metadata.generation` that this status is about.
    #[schemars(range(min = 0))]
    pub observed_generation: i64,
    /// Slots that are bound to a session.
    pub active: u32,
    /// Slots that wait for one.
    pub warm: u32,
    /// Sessions without compute.
    pub asleep: u32,
    /// The policy that new workers get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_revision: Option<Revision>,
    /// The skills that new workers get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skills_revision: Option<Revision>,
    /// `Ready`: new sessions of this profile can be opened; else why not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub conditions: Vec<Condition>,
}
