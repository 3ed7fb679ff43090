//! Volumes of sessions that have ended: how they age, and which of them is provably ours to delete.

use casemate_protocol::key::Key;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::resource::WorkerSessionSpec;
use crate::resource::session::{KeptVolume, SessionKey, StorageLedger, StorageState, VolumeMode};
use crate::slot::annotation;

/// What a live look at a kept volume says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judged {
    /// There is none of its UID.
    Gone,
    /// It is ours, and may be deleted in this version.
    Ours {
        /// Its UID.
        uid: String,
        /// Its version.
        version: String,
    },
    /// It is being deleted.
    Going,
    /// Somebody changed its marks.
    Foreign,
}

/// Judges a kept volume by what is on it now: made here, this key's, this incarnation's.
#[must_use]
pub fn judge(
    installation: &str,
    key: &SessionKey,
    kept: &KeptVolume,
    found: Option<&PersistentVolumeClaim>,
) -> Judged {
    let uid = kept.volume.uid.as_str();
    let Some(found) = found.filter(|found| found.metadata.uid.as_deref() == Some(uid)) else {
        return Judged::Gone;
    };
    let meta = &found.metadata;
    if meta.deletion_timestamp.is_some() {
        return Judged::Going;
    }
    let mark =
        |name: &str| meta.annotations.as_ref().and_then(|all| all.get(name)).map(String::as_str);
    let made_by = format!("{installation}/{}", kept.volume.claim);
    let ours = kept.volume.mode == VolumeMode::New
        && mark(annotation::MADE_BY) == Some(made_by.as_str())
        && mark(annotation::KEY) == Some(Key::from(key.clone()).digest().as_str())
        && mark(annotation::INCARNATION) == Some(kept.incarnation.to_string().as_str());
    match &meta.resource_version {
        Some(version) if ours => Judged::Ours { uid: uid.to_owned(), version: version.clone() },
        _ => Judged::Foreign,
    }
}

/// A ledger after so many more seconds of the allocator's running time.
#[must_use]
pub fn aged(spec: &WorkerSessionSpec, seconds: u64) -> WorkerSessionSpec {
    let mut spec = spec.clone();
    for kept in &mut spec.kept {
        kept.seconds_left = kept.seconds_left.map(|left| left.saturating_sub(seconds));
    }
    let StorageLedger { state, seconds_left } = &mut spec.storage;
    if *state == StorageState::Retained
        && let Some(left) = seconds_left
    {
        *left = left.saturating_sub(seconds);
        if *left == 0 {
            *state = StorageState::Deleting;
            *seconds_left = None;
        }
    }
    for hold in &mut spec.holds {
        hold.seconds_left = hold.seconds_left.saturating_sub(seconds);
    }
    spec.holds.retain(|hold| hold.seconds_left > 0);
    spec
}

/// The volume of an incarnation that has ended, as the next one keeps it; `None`: there is none of its own any more.
#[must_use]
pub fn keep(spec: &WorkerSessionSpec) -> Option<KeptVolume> {
    let volume = spec.volume.clone().filter(|volume| volume.mode == VolumeMode::New)?;
    let seconds_left = match spec.storage {
        StorageLedger { state: StorageState::Deleted, .. } => return None,
        StorageLedger { state: StorageState::Deleting, .. } => Some(0),
        // What has not ended is kept until somebody says otherwise.
        StorageLedger { state: StorageState::Live, .. } => None,
        StorageLedger { state: StorageState::Retained, seconds_left } => seconds_left,
    };
    Some(KeptVolume {
        incarnation: spec.incarnation,
        session: spec.session.clone(),
        volume,
        evidence: spec.last_end.as_ref().and_then(|end| end.evidence.clone()),
        seconds_left,
    })
}
