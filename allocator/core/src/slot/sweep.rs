//! Orphans: what is left in a slot that no session's ledger names. A request that took effect after its allocator had gone on leaves
//! some.
//!
//! No age makes an orphan. A ledger names its slot before anything is made in it, and never comes back to a name that it has left; so
//! what was looked at *before* every ledger was read live, and is named by none, will not be named again.

use casemate_protocol::ids::Generation;

use super::{Action, PodState, World};

/// What to do about a slot that was looked at before the ledgers were read, of which none names it (as its slot, or in the volumes that
/// it keeps of former incarnations). `None`: nothing of it may be deleted: it is not ours, nobody has claimed it (then it is the
/// pool's), or a worker was let into its volume, which is reported to people and never deleted by a sweep.
#[must_use]
pub fn sweep(seen: &World) -> Option<Action> {
    if !seen.is_claimed() {
        return None;
    }
    if let Some(pod) = &seen.pod {
        let object = &pod.object;
        return match pod.state {
            _ if !object.ours => None,
            _ if object.terminating => Some(Action::Wait("its Pod is being ended".to_owned())),
            PodState::Unknown => Some(Action::Wait("its node does not answer".to_owned())),
            _ => Some(Action::DeletePod(object.uid.clone(), object.version.clone())),
        };
    }
    if let Some(anchor) = &seen.anchor {
        let object = &anchor.object;
        let own = object.ours && !object.terminating;
        return own.then(|| Action::DeleteAnchor(object.uid.clone(), object.version.clone()));
    }
    let volume = seen.volume.as_ref()?;
    let object = &volume.object;
    let own = object.ours
        && !object.terminating
        && volume.floor == Generation::ZERO
        && volume.opened_to.is_none();
    own.then(|| Action::DeleteVolume(object.uid.clone(), object.version.clone()))
}
