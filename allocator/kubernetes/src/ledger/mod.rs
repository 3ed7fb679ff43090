//! A session's ledger in the core's words, and back.
//!
//! The core knows the part that decides. The rest (key, profile, calls that were answered, holds) stays as it was read.

mod patch;

pub use patch::{patch_of, session_patch};

use casemate_allocator_core::end::Ending as Wanted;
use casemate_allocator_core::record::{self, CloseRule};
use casemate_allocator_core::slot::{Session, VolumeNeed};
use casemate_protocol::api::LastEnd;
use casemate_protocol::key::Key;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use crate::resource::WorkerSessionSpec;
use crate::resource::profile::AccessMode;
use crate::resource::session::{
    Attempts, Ended, Ending, SlotRef, StorageKind, StorageLedger, StorageState, VolumeMode,
    VolumeRef,
};

/// Words in a ledger are cut here, as its schema says.
const WORDS: usize = 1024;

/// Why a session has no place in the core's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreadable {
    /// It lives in a user's Pod.
    Guest,
    /// It never had a slot.
    NoSlot,
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Guest => "sessions that share a user's Pod are not to be had yet: use a profile with `sharing: session`",
            Self::NoSlot => "the session has no slot: somebody changed it by hand",
        })
    }
}

impl std::error::Error for Unreadable {}

/// What a session's ledger says.
///
/// # Errors
/// [`Unreadable`].
pub fn read(spec: &WorkerSessionSpec) -> Result<Session, Unreadable> {
    if spec.host.is_some() {
        return Err(Unreadable::Guest);
    }
    let slot = spec.slot.as_ref().ok_or(Unreadable::NoSlot)?;
    let storage = match spec.storage {
        StorageLedger { state: StorageState::Live, .. } => record::Storage::Live,
        StorageLedger { state: StorageState::Retained, seconds_left } => {
            record::Storage::Retained { left: seconds_left }
        }
        StorageLedger { state: StorageState::Deleting, .. } => record::Storage::Deleting,
        StorageLedger { state: StorageState::Deleted, .. } => record::Storage::Deleted,
    };
    let volume = match (spec.terms.storage, &spec.volume) {
        (StorageKind::New, Some(volume)) => VolumeNeed::Have(volume.uid.clone()),
        (StorageKind::New, None) if storage != record::Storage::Deleted => VolumeNeed::New,
        _ => VolumeNeed::None,
    };
    let idle = spec.terms.idle.duration().as_millis();
    let close = spec.terms.closed.as_ref();
    Ok(Session {
        id: spec.session.clone(),
        key: Key::from(spec.key.clone()).digest(),
        incarnation: spec.incarnation,
        generation: spec.generation,
        phase: spec.phase.into(),
        slot: slot.name.clone(),
        pod: slot.pod_uid.clone(),
        volume,
        storage,
        ending: spec.ending.as_ref().map(|ending| Wanted {
            reason: ending.reason,
            close: ending.close,
            discard: ending.discard,
            force: ending.force,
            evidence: ending.evidence.clone(),
        }),
        quiesced: spec.ending.as_ref().is_some_and(|ending| ending.quiesced),
        last_end: spec.last_end.as_ref().map(|end| LastEnd {
            reason: end.reason,
            detail: end.detail.clone(),
            evidence: end.evidence.clone(),
            at: u64::try_from(end.at.0.as_second()).unwrap_or_default(),
        }),
        served: spec.served,
        used: spec.used,
        failed: spec.attempts.failed,
        attempts: spec.terms.attempts,
        terms: record::Terms {
            idle_ttl_ms: u64::try_from(idle).unwrap_or(u64::MAX),
            close: close
                .map_or(CloseRule::Delete, |kept| CloseRule::Retain(kept.duration().as_secs())),
        },
    })
}

/// The ledger after a change that the core decided. `detail`: why an end that begins was asked for, in words.
#[must_use]
pub fn written(old: &WorkerSessionSpec, new: &Session, detail: &str) -> WorkerSessionSpec {
    let mut spec = old.clone();
    spec.incarnation = new.incarnation;
    spec.session = new.id.clone();
    spec.generation = new.generation;
    spec.phase = new.phase.into();
    let pooled = old.slot.as_ref().is_some_and(|slot| slot.pooled && slot.name == new.slot);
    spec.slot = Some(SlotRef { name: new.slot.clone(), pooled, pod_uid: new.pod.clone() });
    spec.volume = match (&new.volume, &old.volume) {
        (VolumeNeed::Have(uid), Some(volume)) if volume.uid == *uid => old.volume.clone(),
        (VolumeNeed::Have(uid), _) => Some(VolumeRef {
            mode: VolumeMode::New,
            claim: new.slot.as_str().parse().expect("a slot's name is an object's"),
            uid: uid.clone(),
            class: None,
            size: None,
            access_mode: AccessMode::default(),
        }),
        (VolumeNeed::New, _) => None,
        (VolumeNeed::None, volume) => {
            volume.clone().filter(|volume| volume.mode == VolumeMode::Borrowed)
        }
    };
    let (state, seconds_left) = match new.storage {
        record::Storage::Live => (StorageState::Live, None),
        record::Storage::Retained { left } => (StorageState::Retained, left),
        record::Storage::Deleting => (StorageState::Deleting, None),
        record::Storage::Deleted => (StorageState::Deleted, None),
    };
    spec.storage = StorageLedger { state, seconds_left };
    spec.ending = new.ending.as_ref().map(|ending| Ending {
        reason: ending.reason,
        close: ending.close,
        discard: ending.discard,
        force: ending.force,
        detail: old.ending.as_ref().map_or_else(|| cut(detail), |old| old.detail.clone()),
        quiesced: new.quiesced,
        evidence: ending.evidence.clone(),
    });
    spec.last_end = new.last_end.as_ref().map(|end| ended(old, end));
    spec.attempts = Attempts {
        failed: new.failed,
        because: (new.failed > 0)
            .then(|| new.last_end.as_ref().map(|end| cut(&end.detail)))
            .flatten(),
    };
    spec.served = new.served;
    spec.used = new.used;
    spec
}

fn ended(old: &WorkerSessionSpec, end: &LastEnd) -> Ended {
    // The core says why in words only where the reason does not: else it is what was said when the end was asked for.
    let said = old.ending.as_ref().filter(|_| end.detail.is_empty());
    let detail = said.map_or(&end.detail, |ending| &ending.detail);
    Ended {
        reason: end.reason,
        detail: cut(detail),
        evidence: end.evidence.clone(),
        at: time(end.at),
    }
}

/// What a volume is, as the API server filled it in.
pub fn describe(volume: &mut VolumeRef, found: &PersistentVolumeClaim) {
    let Some(spec) =
        found.spec.as_ref().filter(|_| found.metadata.uid.as_ref() == Some(&volume.uid))
    else {
        return;
    };
    if volume.size.is_some() {
        // It was described when it came, and a ledger does not change its volume.
        return;
    }
    volume.class = spec.storage_class_name.as_deref().and_then(|class| class.parse().ok());
    let size = spec.resources.as_ref().and_then(|all| all.requests.as_ref()?.get("storage"));
    volume.size = size.and_then(|size| size.0.parse().ok());
    let modes = spec.access_modes.iter().flatten();
    if modes.clone().any(|mode| mode == "ReadWriteOnce") {
        volume.access_mode = AccessMode::ReadWriteOnce;
    }
}

/// Seconds since the Unix epoch as Kubernetes writes them.
#[must_use]
pub fn time(seconds: u64) -> Time {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    Time(Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX))
}

/// Words that fit.
#[must_use]
pub fn cut(words: &str) -> String {
    words.chars().take(WORDS).collect()
}
