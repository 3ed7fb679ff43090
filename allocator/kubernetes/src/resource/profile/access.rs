//! Who may use a profile, whose sessions share a Pod, what a chat may name.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::resource::text::{Label, ObjectName, RepositoryUrl};

/// Somebody who is authenticated at the allocator's API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Subject {
    /// A Pod's identity.
    #[serde(rename_all = "camelCase")]
    ServiceAccount {
        /// Where it is.
        namespace: Label,
        /// What it is called.
        name: ObjectName,
    },
    /// A user, as TokenReview or the OIDC provider names them.
    #[serde(rename_all = "camelCase")]
    User {
        /// The name.
        #[schemars(length(min = 1, max = 256))]
        name: String,
    },
    /// All members of a group.
    #[serde(rename_all = "camelCase")]
    Group {
        /// The name.
        #[schemars(length(min = 1, max = 256))]
        name: String,
    },
}

/// Who shares a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Sharing {
    /// Nobody: a Pod a session.
    #[default]
    Session,
    /// The sessions of one user, never those of two.
    User,
}

/// How strong the isolation between sessions is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Tier {
    /// Own Pod: other sessions' files do not exist.
    #[default]
    Pod,
    /// One Pod: other sessions' files are refused; the metadata of a known path leaks.
    Domain,
}

impl From<Tier> for casemate_protocol::tier::Tier {
    fn from(tier: Tier) -> Self {
        match tier {
            Tier::Pod => Self::Pod,
            Tier::Domain => Self::Domain,
        }
    }
}

/// A logical repository seed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Workspace {
    /// Where it is cloned from.
    pub repository: RepositoryUrl,
    /// For people: what is in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub description: Option<String>,
}
