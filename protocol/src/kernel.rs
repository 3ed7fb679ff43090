//! What this machine's kernel offers: the report of `casemate-supervisor check` and of `casemate doctor`.

use serde::{Deserialize, Serialize};

use crate::tier::Tier;

/// One mechanism, tried, not guessed from a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// The mechanism (`landlock`, `user namespaces`).
    pub name: String,
    /// It can be used.
    pub ok: bool,
    /// What was found (`abi 7, errata 1 2 3`).
    pub found: String,
    /// What to do to get it, or to get a better one.
    pub fix: Option<String>,
}

/// All of them and what follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelReport {
    /// `uname -r`.
    pub release: String,
    /// Landlock's ABI; 0 where it is off.
    pub landlock_abi: u32,
    /// The checks.
    pub checks: Vec<Check>,
    /// The strongest tier that a worker can have here; `None`: not even `domain`.
    pub tier: Option<Tier>,
}
