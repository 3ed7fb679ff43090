//! Why a Pod ended, in words, and whether its worker is to blame.

/// Why a Pod ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The worker left with this code.
    Exit(i32),
    /// It went above its memory limit.
    OutOfMemory,
    /// It went above its limit of the node's disk.
    DiskLimit,
    /// Its node was short of something.
    Evicted(String),
    /// A Pod of a higher priority needed the place.
    Preempted,
    /// Its node is gone.
    NodeLost,
    /// Somebody deleted it (`kubectl drain`, `kubectl delete`).
    Deleted,
    /// Its image could not be pulled.
    ImagePull(String),
    /// It did not serve within the profile's `lifetime.start`.
    StartTimeout(String),
    /// The worker was bound to something else.
    ForeignBinding,
}

impl Cause {
    /// Whether another try would likely end the same way. What the cluster did to it is no attempt of the worker's.
    #[must_use]
    pub fn counts(&self) -> bool {
        match self {
            Self::Exit(_)
            | Self::OutOfMemory
            | Self::DiskLimit
            | Self::ImagePull(_)
            | Self::StartTimeout(_)
            | Self::ForeignBinding => true,
            Self::Evicted(_) | Self::Preempted | Self::NodeLost | Self::Deleted => false,
        }
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exit(code) => write!(f, "the worker ended with code {code}"),
            Self::OutOfMemory => f.write_str("the worker went above its memory limit: raise `resources.limits.memory`"),
            Self::DiskLimit => {
                f.write_str("the worker went above its limit of the node's disk: raise `resources.limits.ephemeral-storage`")
            }
            Self::Evicted(why) => write!(f, "its node evicted it: {why}"),
            Self::Preempted => f.write_str("a Pod of a higher priority needed its place"),
            Self::NodeLost => f.write_str("its node is gone"),
            Self::Deleted => f.write_str("its Pod was deleted (a drained node, or somebody did it)"),
            Self::ImagePull(why) => write!(f, "its image could not be pulled: {why}"),
            Self::StartTimeout(why) => write!(f, "it did not serve in time: {why}"),
            Self::ForeignBinding => f.write_str("its worker serves another session"),
        }
    }
}
