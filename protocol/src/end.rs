//! Why compute or storage ended.

use serde::{Deserialize, Serialize};

/// The reason of an end. What each does to compute, volume and incarnation is the table in docs/operators.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum EndReason {
    /// The client went away; nothing ends.
    Detach,
    /// The worker was idle for the profile's idle TTL: compute stops, storage stays.
    Idle,
    /// Room was needed and this was the least recently used idle session.
    Capacity,
    /// The broker or the allocator drains.
    Shutdown,
    /// The agent did not obey a cancel.
    Hung,
    /// The worker died or its agent exited.
    Failed,
    /// The user wants a fresh context.
    Reset,
    /// The user closed the session: the incarnation ends.
    Close,
    /// Kept storage reached its age.
    Retention,
    /// Allocated, never prompted, and no command ran in it: nothing is lost by deleting it.
    Unused,
}

impl EndReason {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Detach,
        Self::Idle,
        Self::Capacity,
        Self::Shutdown,
        Self::Hung,
        Self::Failed,
        Self::Reset,
        Self::Close,
        Self::Retention,
        Self::Unused,
    ];
}
