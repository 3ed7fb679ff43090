//! What a look at a slot's objects found.

use casemate_protocol::ids::{Generation, Incarnation};
use casemate_protocol::worker::Evidence;

use super::{Cause, Claim};

/// An object's UID: one that was deleted and made again under its name has another.
pub type Uid = String;
/// An object's `resourceVersion`: another after each write.
pub type Version = String;

/// An object that is there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Object {
    /// Which one.
    pub uid: Uid,
    /// In which version.
    pub version: Version,
    /// It carries the marks of this installation's slot of this name.
    pub ours: bool,
    /// The UID of its controller.
    pub owner: Option<Uid>,
    /// It is being deleted.
    pub terminating: bool,
}

/// All objects of a slot's name, and its worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct World {
    /// The ServiceAccount.
    pub anchor: Option<Anchor>,
    /// The Secret.
    pub secret: Option<Object>,
    /// The NetworkPolicy.
    pub policy: Option<Object>,
    /// The volume claim.
    pub volume: Option<Volume>,
    /// The Pod.
    pub pod: Option<Pod>,
}

/// The ServiceAccount, which the rest of the slot but the volume belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Anchor {
    /// The ServiceAccount.
    pub object: Object,
    /// Whose the slot is; `None`: the pool's.
    pub claim: Option<Claim>,
}

/// A volume claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Volume {
    /// The claim.
    pub object: Object,
    /// Digest of the key whose files are on it; `None`: nobody's yet.
    pub key: Option<String>,
    /// The incarnation that it belongs to; zero where it is nobody's.
    pub incarnation: Incarnation,
    /// The newest generation that it was opened to; zero where no worker was ever bound in it.
    pub floor: Generation,
    /// The Pod that it was opened to last. Each Pod is written here before it is bound, so that a deletion which was decided before
    /// is refused.
    pub opened_to: Option<Uid>,
}

/// A Pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pod {
    /// The Pod.
    pub object: Object,
    /// Whose it is; `None`: the pool's.
    pub claim: Option<Claim>,
    /// How far it is.
    pub state: PodState,
}

/// How far a Pod is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PodState {
    /// Not running yet; what it waits for.
    Pending(String),
    /// Running.
    Running(WorkerSeen),
    /// Its containers have ended and will not start again; or it does not serve yet, and whoever looked gives it up
    /// ([`Cause::StartTimeout`], [`Cause::ImagePull`]).
    Ended(Cause),
    /// Its node does not answer: it may be running.
    Unknown,
}

/// What the worker in a Pod said.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum WorkerSeen {
    /// Nothing (yet).
    Silent,
    /// It waits for a session.
    Unbound,
    /// It is bound and makes its session; what it does now.
    Preparing(Claim, String),
    /// Its session is served.
    Serving {
        /// Whose.
        claim: Claim,
        /// A turn or a command is running.
        busy: bool,
    },
    /// It takes no prompts any more; what its worktree held then, where that could be read.
    Quiesced(Claim, Option<Evidence>),
}

// === impl World ===

impl World {
    /// Some session has marked something of it as its own: it is not the pool's any more, nor will be.
    #[must_use]
    pub fn is_claimed(&self) -> bool {
        self.anchor.as_ref().is_some_and(|anchor| anchor.claim.is_some())
            || self.pod.as_ref().is_some_and(|pod| pod.claim.is_some())
            || self.volume.as_ref().is_some_and(|volume| volume.key.is_some())
    }
}

// === impl WorkerSeen ===

impl WorkerSeen {
    /// What it is bound to.
    #[must_use]
    pub fn bound(&self) -> Option<&Claim> {
        match self {
            Self::Silent | Self::Unbound => None,
            Self::Preparing(claim, _) | Self::Serving { claim, .. } | Self::Quiesced(claim, _) => {
                Some(claim)
            }
        }
    }
}
