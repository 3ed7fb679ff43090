//! What is laid before an agent read-only: policy, skills, HOME's beginnings. By revision, so that it is the same at
//! each start of a session.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::resource::text::{AbsolutePath, DataKey, ObjectName, PinnedImage, Revision};

/// Files that are mounted read-only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Content {
    /// An immutable ConfigMap of this namespace: another revision is another ConfigMap.
    #[serde(rename_all = "camelCase")]
    ConfigMap {
        /// Its name.
        name: ObjectName,
    },
    /// An image, mounted as a volume by the kubelet (Kubernetes 1.35 and containerd 2.1, or later).
    #[serde(rename_all = "camelCase")]
    ImageVolume {
        /// By digest.
        reference: PinnedImage,
    },
    /// An image, copied at the Pod's start by a container of it, where image volumes are not to be had.
    #[serde(rename_all = "camelCase")]
    CopiedImage {
        /// By digest.
        reference: PinnedImage,
        /// What of it is copied.
        path: AbsolutePath,
    },
}

/// What the agent may touch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Policy {
    /// One that comes with casemate.
    #[serde(rename_all = "camelCase")]
    BuiltIn {
        /// Its name.
        name: BuiltInPolicy,
    },
    /// A file in an immutable ConfigMap of this namespace.
    #[serde(rename_all = "camelCase")]
    ConfigMap {
        /// The ConfigMap.
        name: ObjectName,
        /// The file.
        #[serde(default = "policy_key")]
        key: DataKey,
        /// The SHA-256 of its text. A worker that reads another does not start.
        revision: Revision,
    },
}

fn policy_key() -> DataKey {
    "policy.toml".parse().expect("a key")
}

/// A policy that comes with casemate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BuiltInPolicy {
    /// For work on code one knows.
    #[default]
    Developer,
    /// For code that nobody vouches for.
    Strict,
    /// As `developer`, with the kernel's record of what it refuses.
    Audit,
}

impl BuiltInPolicy {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Developer => "developer",
            Self::Strict => "strict",
            Self::Audit => "audit",
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::BuiltIn { name: BuiltInPolicy::default() }
    }
}

/// Skills for the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Skills {
    /// Where they come from.
    pub content: Content,
    /// The revision that a worker must find, as its status reports it. Absent: any, and the status says which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
}

/// What a HOME begins with.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct HomeFiles {
    /// Copied into a new HOME once. The session may change its copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<Content>,
    /// Configuration that stays read-only beside HOME, at the path in the agent's `CASEMATE_BASELINE`. What a session sets in its HOME overrides
    /// it for that session alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Content>,
}
