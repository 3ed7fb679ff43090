//! Which session a caller gets: the answer to allocate, out of the one object that its key has.

use casemate_protocol::ids::{Generation, Incarnation, SessionId, SlotId};

use crate::kept;
use crate::resource::session::{
    Attempts, Phase, ProfileRef, RequestEntry, SessionKey, SlotRef, StorageKind, StorageLedger,
    Terms,
};
use crate::resource::text::{Digest, Label};
use crate::resource::{WorkerProfile, WorkerProfileSpec, WorkerSessionSpec, profile};

/// Calls that are remembered.
const REQUESTS: usize = 64;
/// Volumes of former incarnations that a key may have.
const KEPT: usize = 32;

/// A call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Its request id.
    pub request: String,
    /// The digest of its body.
    pub digest: Digest,
}

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Allocation {
    /// Make the key's object, of the first incarnation.
    Create,
    /// Write this over it, then answer as said: it wakes, begins its next incarnation, or only remembers the call.
    Write(Box<WorkerSessionSpec>),
    /// Nothing is to be written: it serves, or somebody starts or stops it.
    Known {
        /// Whether this very call made it.
        created: bool,
    },
    /// No.
    Refuse(Refusal),
}

/// Why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The request id was used with another body.
    RequestReused,
    /// The session that a repeated call named has ended since.
    Ended(SessionId),
    /// So many volumes of former sessions of this key are kept.
    TooManyKept,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::RequestReused => f.write_str(
                "this request id was used with another body; use a new request id for a new intent",
            ),
            Self::Ended(id) => write!(
                f,
                "session {id} has ended; allocate its key with a new request id to open the next one"
            ),
            Self::TooManyKept => write!(
                f,
                "{KEPT} volumes of former sessions of this conversation are kept: discard some of them first"
            ),
        }
    }
}

impl std::error::Error for Refusal {}

/// What an incarnation is opened with.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The profile, as it was read from the cluster.
    pub profile: &'a WorkerProfile,
    /// The alias of the repository.
    pub workspace: Option<&'a Label>,
}

/// Decides an allocate; `existing`: the key's object, if it is there.
#[must_use]
pub fn allocate(
    existing: Option<&WorkerSessionSpec>,
    call: &Call,
    wanted: Wanted<'_>,
) -> Allocation {
    let Some(spec) = existing else { return Allocation::Create };
    if let Some(known) = spec.requests.iter().find(|known| known.id == call.request) {
        if known.digest != call.digest {
            return Allocation::Refuse(Refusal::RequestReused);
        }
        if known.session != spec.session || spec.phase == Phase::Ended {
            return Allocation::Refuse(Refusal::Ended(known.session.clone()));
        }
        let created = known.created;
        return match spec.phase {
            Phase::Asleep => Allocation::Write(Box::new(wake(spec))),
            _ => Allocation::Known { created },
        };
    }
    match spec.phase {
        Phase::Ended => next_incarnation(spec, call, wanted),
        Phase::Asleep => Allocation::Write(Box::new(remember(wake(spec), call, false))),
        _ => Allocation::Write(Box::new(remember(spec.clone(), call, false))),
    }
}

/// A sleeping session gets its next worker.
#[must_use]
pub fn wake(spec: &WorkerSessionSpec) -> WorkerSessionSpec {
    let mut spec = spec.clone();
    spec.phase = Phase::Starting;
    spec.generation = spec.generation.next();
    spec.attempts = Attempts::default();
    spec.ending = None;
    if let Some(slot) = &mut spec.slot {
        slot.pod_uid = None;
    }
    spec
}

/// The ledger of a key's first incarnation.
///
/// # Panics
/// Where the profile was not read from a cluster: it has no UID.
#[must_use]
pub fn first(key: SessionKey, call: &Call, wanted: Wanted<'_>) -> WorkerSessionSpec {
    let spec = opened(key, Incarnation(1), Generation(1), wanted);
    remember(spec, call, true)
}

fn next_incarnation(old: &WorkerSessionSpec, call: &Call, wanted: Wanted<'_>) -> Allocation {
    let mut kept = old.kept.clone();
    kept.extend(kept::keep(old));
    if kept.len() > KEPT {
        return Allocation::Refuse(Refusal::TooManyKept);
    }
    let mut spec = opened(old.key.clone(), old.incarnation.next(), old.generation.next(), wanted);
    spec.kept = kept;
    spec.requests.clone_from(&old.requests);
    Allocation::Write(Box::new(remember(spec, call, true)))
}

fn opened(
    key: SessionKey,
    incarnation: Incarnation,
    generation: Generation,
    wanted: Wanted<'_>,
) -> WorkerSessionSpec {
    let meta = &wanted.profile.metadata;
    let name = meta.name.as_deref().unwrap_or_default();
    WorkerSessionSpec {
        key,
        incarnation,
        session: SessionId::random(),
        generation,
        phase: Phase::Starting,
        profile: ProfileRef {
            name: name.parse().expect("a profile was read from the cluster"),
            uid: meta.uid.clone().expect("a profile was read from the cluster"),
            generation: meta.generation.unwrap_or(1),
        },
        workspace: wanted.workspace.cloned(),
        terms: terms(&wanted.profile.spec),
        slot: Some(SlotRef { name: SlotId::random(), pooled: false, pod_uid: None }),
        host: None,
        volume: None,
        storage: StorageLedger::default(),
        ending: None,
        last_end: None,
        attempts: Attempts::default(),
        served: false,
        used: false,
        holds: Vec::new(),
        requests: Vec::new(),
        kept: Vec::new(),
    }
}

fn terms(profile: &WorkerProfileSpec) -> Terms {
    let lifetime = &profile.lifetime;
    Terms {
        tier: profile.tier,
        sharing: profile.sharing,
        storage: match profile.storage {
            profile::Storage::Ephemeral { .. } => StorageKind::Ephemeral,
            profile::Storage::New(_) => StorageKind::New,
            profile::Storage::Borrowed { .. } => StorageKind::Borrowed,
        },
        idle: lifetime.idle.clone(),
        asleep: lifetime.asleep.clone(),
        closed: lifetime.closed.clone(),
        unpushed: lifetime.unpushed.clone(),
        attempts: lifetime.attempts,
        reset: profile.reset,
    }
}

fn remember(mut spec: WorkerSessionSpec, call: &Call, created: bool) -> WorkerSessionSpec {
    spec.requests.push(RequestEntry {
        id: call.request.clone(),
        digest: call.digest.clone(),
        session: spec.session.clone(),
        created,
    });
    let old = spec.requests.len().saturating_sub(REQUESTS);
    spec.requests.drain(..old);
    spec
}
