//! Secrets by reference: what a worker uses for its agent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::network::KeyOf;
use crate::resource::text::Variable;

/// A secret and what it is for. It is mounted as a file that the agent cannot open; it is in no variable of the Pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Credential {
    /// A key of a Secret in this namespace.
    pub secret: KeyOf,
    /// What it is for.
    #[serde(rename = "for")]
    pub purpose: CredentialUse,
}

/// What a secret is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum CredentialUse {
    /// The supervisor puts it into requests to one host; the agent never has it.
    #[serde(rename_all = "camelCase")]
    Route {
        /// The host: `api.example.com`.
        #[schemars(length(min = 1, max = 253), regex(pattern = "^[a-z0-9.-]+$"))]
        host: String,
        /// The header that carries it.
        #[schemars(length(min = 1, max = 64), regex(pattern = "^[A-Za-z0-9-]+$"))]
        header: String,
        /// What stands before it in the header: `Bearer `.
        #[serde(default)]
        #[schemars(length(max = 32))]
        prefix: String,
    },
    /// The supervisor uses it for Git over HTTPS with one host; the agent never has it.
    #[serde(rename_all = "camelCase")]
    Git {
        /// The host.
        #[schemars(length(min = 1, max = 253), regex(pattern = "^[a-z0-9.-]+$"))]
        host: String,
    },
    /// The agent gets it in a variable, and can give it away. Status says so.
    #[serde(rename_all = "camelCase")]
    AgentVariable {
        /// The variable.
        name: Variable,
    },
}
