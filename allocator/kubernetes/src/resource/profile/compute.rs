//! What a worker takes of its node, which node that may be, and how its Pod is set.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeAffinity, Toleration, TopologySpreadConstraint};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::resource::text::{ObjectName, Period, Quantity, ResourceName};

/// Requests and limits of the worker's container, named as in any Pod: `cpu`, `memory`, `ephemeral-storage`, and
/// extended ones such as `nvidia.com/gpu`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(
    validation = Rule::new("'memory' in self.limits && 'ephemeral-storage' in self.limits")
        .message("without a limit an agent takes what its node has: give `memory` and `ephemeral-storage`")
        .field_path(".limits"),
    validation = Rule::new("self.requests.all(name, !(name in self.limits) || quantity(self.requests[name]).compareTo(quantity(self.limits[name])) <= 0)")
        .message("a request is above its limit")
        .field_path(".requests")
)]
pub struct Resources {
    /// What is set aside for it. Where one is absent it is the limit.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 16))]
    pub requests: BTreeMap<ResourceName, Quantity>,
    /// What it may take at most.
    #[schemars(extend("maxProperties" = 16))]
    pub limits: BTreeMap<ResourceName, Quantity>,
}

/// Which nodes a worker may run on.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Placement {
    /// Labels that a node must have.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub node_selector: BTreeMap<String, String>,
    /// Rules about nodes, as in a Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity: Option<NodeAffinity>,
    /// Taints that are tolerated, as in a Pod.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub tolerations: Vec<Toleration>,
    /// How workers of this profile are spread, as in a Pod.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub topology_spread: Vec<TopologySpreadConstraint>,
    /// The Pod's priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<ObjectName>,
    /// Who schedules it. Absent: the cluster's own scheduler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<ObjectName>,
}

/// How a worker's Pod is set. What Pod Security *restricted* demands is set always and cannot be changed here.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PodSettings {
    /// A runtime class (gVisor, Kata, ...). Absent: the cluster's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_class_name: Option<ObjectName>,
    /// False: the Pod gets a user namespace of its own, which the nodes must be able to give. Absent: the cluster's own choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_users: Option<bool>,
    /// Who the worker runs as.
    pub user_ids: UserIds,
    /// Between TERM and KILL of the whole Pod, the agent's own grace included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace: Option<Period>,
}

/// Who a worker runs as. Never root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum UserIds {
    /// These numbers.
    #[serde(rename_all = "camelCase")]
    Fixed {
        /// The user.
        #[schemars(range(min = 1, max = 2_147_483_647))]
        uid: i64,
        /// The group, also of the volume's files.
        #[schemars(range(min = 1, max = 2_147_483_647))]
        gid: i64,
    },
    /// Whatever the platform assigns (OpenShift's ranges).
    #[serde(rename_all = "camelCase")]
    Assigned {},
}

impl Default for UserIds {
    fn default() -> Self {
        Self::Fixed { uid: 1000, gid: 1000 }
    }
}
