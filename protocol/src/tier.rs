//! How strong the isolation between two sessions is. Measured, never assumed.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Ordered from weak to strong: with `a < b` sessions are kept apart at least as well in `b`. What an agent's own wall refuses is another
/// matter: see [`Tier::wall`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Landlock and seccomp alone: contents are refused (EACCES), the metadata of a known path leaks.
    Domain,
    /// Own user, mount and pid namespaces: other sessions' files do not exist (ENOENT).
    Namespace,
    /// Own Pod: own cgroup, network namespace and service account as well.
    Pod,
}

impl Tier {
    /// All of them, from weak to strong.
    pub const ALL: [Self; 3] = [Self::Domain, Self::Namespace, Self::Pod];

    /// The tier whose rules an agent's wall is built by. A Pod keeps other sessions out, by itself; what it holds (the supervisor's
    /// state, the slot's key) is in the agent's view, as in tier `domain`.
    #[must_use]
    pub fn wall(self) -> Self {
        match self {
            Self::Domain | Self::Pod => Self::Domain,
            Self::Namespace => Self::Namespace,
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Domain => "domain",
            Self::Namespace => "namespace",
            Self::Pod => "pod",
        })
    }
}
