//! The message that binds a worker to its session, and the answers to it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

use crate::ids::{BootId, Generation, Incarnation, RefusalId, SessionId, SlotId};
use crate::origin::Origin;
use crate::tier::Tier;
use crate::token::TokenError;
use crate::worker::{AgentCommand, Repository, StartError, StartEvent};

/// Binds the worker of one Pod to one generation of one session. It is sent signed as a whole
/// ([`crate::token::SigningSecret::sign_bind`]), as the body of `POST /v1/bind`: whoever carries it can change nothing in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bind {
    /// The slot, by the UID of its Pod.
    pub slot: SlotId,
    /// The session.
    pub session: SessionId,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The worker's generation: above every one that the slot's volume has seen.
    pub generation: Generation,
    /// Seconds since the Unix epoch after which it is refused, repeated or not.
    pub expires: u64,
    /// The target of [`super::Canary::Refused`]: a port of the very address that the bind is sent from, at which its sender listens.
    #[serde(default)]
    pub canary: Option<SocketAddr>,
    /// In a repetition: whoever signs it has connected to that target *after* this refusal ([`BindEvent::Refused`]), and the target
    /// answered.
    #[serde(default)]
    pub answered: Option<RefusalId>,
    /// What the session is to be.
    pub terms: Terms,
}

/// What a session is to be. The fields mean what they mean in [`crate::worker::WorkerConfig`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// Where the agent's repository comes from; looked at once in a session's life.
    pub repository: Option<Repository>,
    /// The agent, without what it gets from Secrets: the slot has those.
    pub agent: AgentCommand,
    /// The policy that the slot must have, by the SHA-256 of its text. None: whichever it has.
    #[serde(default)]
    pub policy_revision: Option<String>,
    /// The skills that it must have, as status names them. None: whichever it has.
    #[serde(default)]
    pub skills_revision: Option<String>,
    /// Further TCP ports that the session may connect to.
    #[serde(default)]
    pub connect: Vec<u16>,
    /// The pages that may attach to it.
    #[serde(default)]
    pub origins: Vec<Origin>,
    /// How long a permission request waits for a client, in seconds.
    pub permission_ttl: u64,
    /// How many bytes are kept on the disk for a client that does not take what the agent says.
    #[serde(default = "crate::worker::kept")]
    pub kept: u64,
    /// How long the agent waits above that until its turn is cancelled, in seconds.
    #[serde(default = "crate::worker::blocked_ttl")]
    pub blocked_ttl: u64,
    /// How long the agent has between TERM and KILL, in seconds.
    pub grace: u64,
}

/// What a worker is bound to. The same for whoever asks with equal claims, in every repetition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// The session.
    pub session: SessionId,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The worker's generation.
    pub generation: Generation,
    /// This start.
    pub boot: BootId,
}

/// One line of JSON in the answer to a bind. `bound` comes first, when it is on the disk; then `progress`, and where a canary is wanted one
/// `refused`, which asks for a repetition; nothing follows `ready` or `failed`, and after `failed` the worker ends. A bind that is repeated is answered with the same lines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "event")]
pub enum BindEvent {
    /// From now on it is nobody else's.
    Bound(Bound),
    /// What is being done now, for a person.
    Progress {
        /// The sentence.
        what: String,
    },
    /// A connection to the canary's target was refused. What is gone refuses as well, so nothing of the session runs until the bind is
    /// repeated with this refusal in [`Bind::answered`], by somebody who has connected there since.
    Refused {
        /// The target.
        target: SocketAddr,
        /// Names this refusal.
        refusal: RefusalId,
    },
    /// The session is served.
    Ready {
        /// As measured from inside.
        tier: Tier,
        /// The worktree's path as the agent sees it.
        worktree: PathBuf,
    },
    /// It is not, and the worker ends.
    Failed {
        /// Why.
        error: StartError,
    },
}

/// Why a worker is not bound by a message. The body of the answer, whose status is [`BindRefusal::status`]; the worker is as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum BindRefusal {
    /// No signed bind.
    #[error("this is no signed bind of a known version")]
    Malformed,
    /// The signature does not fit any key.
    #[error("the signature is of none of the keys that this slot has")]
    Signature,
    /// Past its expiry.
    #[error("the bind has expired: sign a new one")]
    Expired,
    /// For the worker of another Pod.
    #[error("the bind is for another Pod")]
    OtherSlot,
    /// It is bound already.
    #[error(
        "the worker is bound to session {session} incarnation {incarnation} generation {generation} and stays so: take another slot"
    )]
    BoundOtherwise {
        /// The session.
        session: SessionId,
        /// Its incarnation.
        incarnation: Incarnation,
        /// The generation.
        generation: Generation,
    },
    /// It is bound to just that, and other terms were said then.
    #[error(
        "the worker is bound to this session with other terms: a change takes a new generation"
    )]
    OtherTerms,
    /// The slot's volume has seen this generation or a later one.
    #[error(
        "the volume was used in incarnation {incarnation} generation {generation}: bind a later one"
    )]
    Stale {
        /// The newest incarnation.
        incarnation: Incarnation,
        /// The newest generation of that.
        generation: Generation,
    },
    /// The slot's volume holds the files of another session.
    #[error("the volume holds the files of session {session}: take another slot")]
    OtherVolume {
        /// That session.
        session: SessionId,
    },
    /// The slot wants a canary and the bind names none.
    #[error("this slot wants a canary: name a port at which you listen")]
    NoCanary,
    /// The canary is in the Pod itself, where no policy is in between.
    #[error("the canary {target} is in this Pod: name a port of yours")]
    LocalCanary {
        /// What was named.
        target: SocketAddr,
    },
    /// The canary is not where the bind comes from, so that nothing shows that it can be reached from here.
    #[error("the canary {target} is not where this bind comes from, {from}: name a port of yours")]
    OtherCanary {
        /// What was named.
        target: SocketAddr,
        /// Whence the bind came.
        from: IpAddr,
    },
    /// The slot has another policy.
    #[error("the slot's policy is {found}: take a slot of the wanted one")]
    OtherPolicy {
        /// Its revision.
        found: String,
    },
    /// The slot has other skills.
    #[error("the slot's skills are {}: take a slot of the wanted ones", found.as_deref().unwrap_or("none"))]
    OtherSkills {
        /// Their revision.
        found: Option<String>,
    },
    /// What the slot mounts was changed while it waited, to what cannot be used.
    #[error("what the slot mounts cannot be used any more: {error}")]
    Content {
        /// Why.
        error: String,
    },
    /// The worker is ending.
    #[error("the worker is ending: take another slot")]
    Ending,
}

// === impl Bind ===

impl Bind {
    /// Who it is for, without the rest: session, incarnation, generation.
    #[must_use]
    pub fn whose(&self) -> (&SessionId, Incarnation, Generation) {
        (&self.session, self.incarnation, self.generation)
    }

    /// Whether another one says the same: until when it holds, and what it says of the canary, make no difference.
    #[must_use]
    pub fn says_the_same(&self, other: &Self) -> bool {
        let Self { slot, session, incarnation, generation, terms, .. } = self;
        (slot, session, incarnation, generation, terms)
            == (&other.slot, &other.session, &other.incarnation, &other.generation, &other.terms)
    }
}

// === impl BindEvent ===

impl BindEvent {
    /// Whether nothing follows.
    #[must_use]
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Ready { .. } | Self::Failed { .. })
    }
}

impl From<StartEvent> for BindEvent {
    fn from(event: StartEvent) -> Self {
        match event {
            StartEvent::Progress { what } => Self::Progress { what },
            StartEvent::Ready { tier, worktree, .. } => Self::Ready { tier, worktree },
            StartEvent::Failed { error } => Self::Failed { error },
        }
    }
}

// === impl BindRefusal ===

impl BindRefusal {
    /// The HTTP status.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::Malformed => 400,
            Self::Signature | Self::Expired => 401,
            Self::OtherSlot => 403,
            Self::BoundOtherwise { .. }
            | Self::OtherTerms
            | Self::Stale { .. }
            | Self::OtherVolume { .. } => 409,
            Self::NoCanary
            | Self::LocalCanary { .. }
            | Self::OtherCanary { .. }
            | Self::OtherPolicy { .. }
            | Self::OtherSkills { .. }
            | Self::Content { .. } => 422,
            Self::Ending => 503,
        }
    }
}

impl From<TokenError> for BindRefusal {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::Malformed => Self::Malformed,
            TokenError::Signature => Self::Signature,
            TokenError::Expired => Self::Expired,
            TokenError::Mismatch(_) => Self::OtherSlot,
        }
    }
}
