//! How strong the isolation between two sessions is. Measured, never assumed.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Ordered from weak to strong: `a < b` means that `b` refuses more.
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
