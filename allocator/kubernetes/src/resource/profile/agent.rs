//! The worker's image and the agent in it.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::resource::text::{ImageName, Label, ObjectName, Variable};

/// An image of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(
    validation = Rule::new("self.allowTag || self.reference.contains('@sha256:')")
        .message("a tag moves, and a session would resume in another image: name a digest (NAME@sha256:...), or set `allowTag: true`")
        .field_path(".reference"),
    validation = Rule::new("self.allowTag || !has(self.supervisor) || self.supervisor.contains('@sha256:')")
        .message("a tag moves: name a digest (NAME@sha256:...), or set `allowTag: true`")
        .field_path(".supervisor")
)]
pub struct Image {
    /// By digest: `registry.example/worker@sha256:...`.
    pub reference: ImageName,
    /// Take a tag for what it points to at each start.
    #[serde(default)]
    pub allow_tag: bool,
    /// When the kubelet asks the registry.
    #[serde(default)]
    pub pull_policy: PullPolicy,
    /// Secrets of type `kubernetes.io/dockerconfigjson` in this namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub pull_secrets: Vec<ObjectName>,
    /// An image that casemate's supervisor is copied from, for images that do not hold it; by digest as well, unless
    /// `allowTag`. Absent: `reference` holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supervisor: Option<ImageName>,
}

/// When the kubelet asks the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum PullPolicy {
    /// Unless the node has the image.
    #[default]
    IfNotPresent,
    /// At each start.
    Always,
    /// Not at all: the image is on the nodes already.
    Never,
}

/// The agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Agent {
    /// What callers call it: part of a session's key.
    pub name: Label,
    /// Its ACP command line: program and arguments.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 4096)))]
    pub command: Vec<String>,
    /// Variables that it gets. Secrets belong in `credentials`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 128))]
    pub env: BTreeMap<Variable, String>,
    /// What is said to it after a session of it has been made or loaded, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub setup: Vec<SetupStep>,
}

/// One step of an agent's setup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SetupStep {
    /// ACP `authenticate`.
    #[serde(rename_all = "camelCase")]
    Authenticate {
        /// One of the agent's `authMethods`.
        #[schemars(length(min = 1, max = 256))]
        method_id: String,
    },
    /// ACP `session/set_mode`.
    #[serde(rename_all = "camelCase")]
    SetMode {
        /// One of the session's `modes`.
        #[schemars(length(min = 1, max = 256))]
        mode_id: String,
    },
    /// ACP `session/set_config_option`.
    #[serde(rename_all = "camelCase")]
    SetConfigOption {
        /// One of the session's `configOptions`.
        #[schemars(length(min = 1, max = 256))]
        config_id: String,
        /// Its value.
        #[schemars(length(max = 1024))]
        value: String,
    },
}
