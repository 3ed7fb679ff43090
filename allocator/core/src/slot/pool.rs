//! Slots that are made before anybody asks for one. Each is made by one revision of its profile; when that changes, the pool drains and
//! is filled anew. What a session has claimed meanwhile is not the pool's any more, and every deletion says so by the version that it
//! names.

use std::cmp::Reverse;

use casemate_protocol::ids::{Generation, SlotId};

use super::{Action, PodState, World};

/// What a profile wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// How many slots.
    pub size: usize,
    /// The profile's generation.
    pub revision: i64,
}

/// A slot that nobody has claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spare {
    /// Its name.
    pub name: SlotId,
    /// The profile's generation that it was made by.
    pub revision: i64,
    /// What is there of it.
    pub world: World,
    /// For how long this allocator has watched it, in seconds of its monotonic clock.
    pub watched: u64,
}

/// The next thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pool {
    /// Make so many.
    Fill(usize),
    /// Remove this one ([`drain`]).
    Drain(SlotId),
}

/// Decides; `None`: the pool is as it should be. One that was made by another revision, or has no Pod that may yet serve, goes first;
/// what is left is filled up or cut down: first those whose worker does not wait yet, of these the youngest. `patience`: seconds that a slot may take until its worker waits.
#[must_use]
pub fn decide(wanted: Wanted, spares: &[Spare], patience: u64) -> Option<Pool> {
    let spent = |spare: &&Spare| {
        spare.revision != wanted.revision || !promises(&spare.world, spare.watched < patience)
    };
    if let Some(spare) = spares.iter().filter(spent).min_by_key(|spare| &spare.name) {
        return Some(Pool::Drain(spare.name.clone()));
    }
    if spares.len() < wanted.size {
        return Some(Pool::Fill(wanted.size - spares.len()));
    }
    let least = spares
        .iter()
        .min_by_key(|spare| (promises(&spare.world, false), spare.watched, Reverse(&spare.name)));
    least.filter(|_| spares.len() > wanted.size).map(|spare| Pool::Drain(spare.name.clone()))
}

/// Whether a worker waits in it, or may yet.
fn promises(world: &World, young: bool) -> bool {
    use super::WorkerSeen::Unbound;
    let Some(pod) = &world.pod else { return young };
    match &pod.state {
        _ if pod.object.terminating => false,
        PodState::Running(Unbound) => true,
        PodState::Pending(_) | PodState::Running(_) => young,
        PodState::Ended(_) | PodState::Unknown => false,
    }
}

/// Removes a slot that is the pool's, one object at a time; `None`: nothing of it is left that is the pool's to delete.
#[must_use]
pub fn drain(seen: &World) -> Option<Action> {
    if seen.is_claimed() {
        return None;
    }
    if let Some(pod) = &seen.pod {
        return match pod.state {
            _ if !pod.object.ours => None,
            _ if pod.object.terminating => Some(Action::Wait("its Pod is being ended".to_owned())),
            // It may be running; the volume is not taken from under it.
            PodState::Unknown => Some(Action::Wait("its node does not answer".to_owned())),
            _ => {
                let object = &pod.object;
                Some(Action::DeletePod(object.uid.clone(), object.version.clone()))
            }
        };
    }
    if let Some(anchor) = &seen.anchor {
        let object = &anchor.object;
        let own = object.ours && !object.terminating;
        return own.then(|| Action::DeleteAnchor(object.uid.clone(), object.version.clone()));
    }
    let volume = seen.volume.as_ref()?;
    let object = &volume.object;
    let own = object.ours && !object.terminating && volume.floor == Generation::ZERO;
    own.then(|| Action::DeleteVolume(object.uid.clone(), object.version.clone()))
}
