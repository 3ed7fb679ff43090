//! The key of a session: the authority's name for a conversation.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// (tenant, agent, platform, thread). Two equal keys are the same conversation; nothing else is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// Who pays and owns: from the authenticated identity, never from a request's body. `local` on one machine.
    pub tenant: String,
    /// The agent's logical name; the same thread may speak with two agents.
    pub agent: String,
    /// Where the conversation takes place (`slack`, `discord`, `editor`, `cli`).
    pub platform: String,
    /// The platform's own name of the thread.
    pub thread: String,
}

impl Key {
    /// A stable, injective digest in hex: every field is preceded by its length, so no two keys share one text.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for field in [&self.tenant, &self.agent, &self.platform, &self.thread] {
            hash.update((field.len() as u64).to_be_bytes());
            hash.update(field.as_bytes());
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}", self.tenant, self.agent, self.platform, self.thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(agent: &str, platform: &str) -> Key {
        Key {
            tenant: "t".into(),
            agent: agent.into(),
            platform: platform.into(),
            thread: "1".into(),
        }
    }

    #[test]
    fn moving_a_character_over_a_field_border_changes_the_digest() {
        assert_ne!(key("ab", "c").digest(), key("a", "bc").digest());
    }
}
