//! The next thing to do for a session.

use casemate_protocol::api::Phase;
use casemate_protocol::end::EndReason;
use casemate_protocol::ids::{Generation, SlotId};

use super::{
    Action, Anchor, Cause, Object, Obstacle, Pod, PodState, Session, Uid, Volume, VolumeNeed,
    WorkerSeen, World,
};
use crate::end::Ending;
use crate::record::Storage;

/// Decides; `None`: all is as it should be. `seen`: the objects of the session's slot. `spare`: the name of another slot, should it need
/// one. `now`: seconds since the Unix epoch.
#[must_use]
pub fn decide(session: &Session, seen: &World, spare: &SlotId, now: u64) -> Option<Action> {
    match session.phase {
        Phase::Starting => Some(starting(session, seen, spare, now)),
        Phase::Active => active(session, seen, now),
        Phase::Stopping => Some(stopping(session, seen, now)),
        Phase::Asleep | Phase::Ended => resting(session, seen),
    }
}

fn write(session: Session) -> Action {
    Action::Write(Box::new(session))
}

fn foreign(what: &str) -> Action {
    let words = format!(
        "a {what} of the slot's name is there that casemate did not make: remove it, or close the session"
    );
    Action::Blocked(Obstacle::ForeignObject, words)
}

// === starting ===

fn starting(session: &Session, seen: &World, spare: &SlotId, now: u64) -> Action {
    if let Some(action) = newer(session, seen).or_else(|| opened_otherwise(session, seen)) {
        return action;
    }
    let anchor = match &seen.anchor {
        None => return Action::CreateAnchor(session.claim()),
        Some(Anchor { object, .. }) if !object.ours => return foreign("ServiceAccount"),
        Some(Anchor { object, .. }) if object.terminating => {
            return Action::Wait("the former slot is being removed".to_owned());
        }
        Some(Anchor { claim: Some(claim), .. }) if claim.session != session.id => {
            return elsewhere(session, spare);
        }
        Some(Anchor { object, claim }) if claim.as_ref() != Some(&session.claim()) => {
            return Action::ClaimAnchor(
                object.uid.clone(),
                object.version.clone(),
                session.claim(),
            );
        }
        Some(Anchor { object, .. }) => object,
    };
    if let Some(action) = owned(seen.secret.as_ref(), anchor, "Secret", Action::CreateSecret) {
        return action;
    }
    if let Some(action) = owned(seen.policy.as_ref(), anchor, "NetworkPolicy", Action::CreatePolicy)
    {
        return action;
    }
    if let Some(action) = volume(session, seen.volume.as_ref(), spare) {
        return action;
    }
    match (&session.pod, &seen.pod) {
        (None, None) => Action::CreatePod(anchor.uid.clone(), session.claim()),
        (Some(written), Some(pod)) if *written == pod.object.uid => {
            start_in(session, pod, seen.volume.as_ref(), spare, now)
        }
        // It may have been bound: the next one is another worker, and has a generation of its own.
        (Some(_), _) => write(session.clone().start_failed(&Cause::Deleted, now)),
        (None, Some(pod)) => start_in(session, pod, seen.volume.as_ref(), spare, now),
    }
}

/// A ledger that was restored is behind what is there.
fn newer(session: &Session, seen: &World) -> Option<Action> {
    let own = seen.volume.as_ref().filter(|volume| volume.object.ours && is_own(session, volume));
    let on_volume = own.map(|volume| volume.floor);
    let claims = [
        seen.pod.as_ref().and_then(|pod| pod.claim.as_ref()),
        seen.anchor.as_ref().and_then(|anchor| anchor.claim.as_ref()),
    ];
    let own = claims.into_iter().flatten().filter(|claim| claim.session == session.id);
    let claimed = own.map(|claim| claim.generation).max();
    let floor = on_volume.max(claimed)?;
    (floor > session.generation).then(|| write(session.clone().raise(floor)))
}

/// Its volume was opened to another Pod in this generation already: the ledger was restored to just before that. A worker takes no
/// generation twice.
fn opened_otherwise(session: &Session, seen: &World) -> Option<Action> {
    let volume = seen.volume.as_ref()?;
    let again = volume.object.ours
        && is_own(session, volume)
        && volume.floor == session.generation
        && volume.opened_to != session.pod;
    again.then(|| write(session.clone().raise(volume.floor)))
}

fn is_own(session: &Session, volume: &Volume) -> bool {
    volume.key.as_ref() == Some(&session.key) && volume.incarnation == session.incarnation
}

fn owned(
    object: Option<&Object>,
    anchor: &Object,
    what: &str,
    make: fn(Uid) -> Action,
) -> Option<Action> {
    match object {
        None => Some(make(anchor.uid.clone())),
        Some(object) if !object.ours => Some(foreign(what)),
        // Its owner is gone: the cluster collects it.
        Some(object) if object.terminating || object.owner.as_ref() != Some(&anchor.uid) => {
            Some(Action::Wait(format!("the former slot's {what} is being removed")))
        }
        Some(_) => None,
    }
}

/// What is to be done about the volume before there may be a Pod; `None`: it is there.
fn volume(session: &Session, seen: Option<&Volume>, spare: &SlotId) -> Option<Action> {
    let gone = |words: &str| Some(Action::Blocked(Obstacle::VolumeLost, words.to_owned()));
    match (&session.volume, seen) {
        (VolumeNeed::None, _) => None,
        (VolumeNeed::New, None) => Some(Action::CreateVolume(session.claim())),
        (VolumeNeed::New, Some(volume)) if !volume.object.ours => Some(foreign("volume claim")),
        (VolumeNeed::New, Some(volume)) if volume.object.terminating => {
            Some(write(session.clone().elsewhere(spare.clone())))
        }
        (VolumeNeed::New, Some(volume)) if volume.key.is_none() => {
            Some(claim_volume(session, volume))
        }
        (VolumeNeed::New, Some(volume)) if is_own(session, volume) => {
            Some(write(session.clone().with_volume(volume.object.uid.clone())))
        }
        (VolumeNeed::New, Some(_)) => Some(write(session.clone().elsewhere(spare.clone()))),
        (VolumeNeed::Have(_), None) => gone(
            "its volume is gone: restore it, or close the session with `discard` to begin anew",
        ),
        (VolumeNeed::Have(uid), Some(volume)) if *uid != volume.object.uid => gone(
            "another volume has its volume's name: restore the one of the recorded UID, or close the session",
        ),
        (VolumeNeed::Have(_), Some(volume)) if volume.object.terminating => {
            gone("its volume is being deleted, by somebody else than casemate")
        }
        (VolumeNeed::Have(_), Some(volume)) if !volume.object.ours || !is_own(session, volume) => {
            gone("its volume carries another session's marks: somebody changed them")
        }
        (VolumeNeed::Have(_), Some(_)) => None,
    }
}

fn claim_volume(session: &Session, volume: &Volume) -> Action {
    Action::ClaimVolume(volume.object.uid.clone(), volume.object.version.clone(), session.claim())
}

fn start_in(
    session: &Session,
    pod: &Pod,
    volume: Option<&Volume>,
    spare: &SlotId,
    now: u64,
) -> Action {
    let object = &pod.object;
    if !object.ours {
        return foreign("Pod");
    }
    if object.terminating {
        return previous(pod);
    }
    let Some(claim) = &pod.claim else {
        return match pod.state {
            PodState::Pending(_) | PodState::Running(_) => {
                Action::ClaimPod(object.uid.clone(), object.version.clone(), session.claim())
            }
            // The pool's own business.
            PodState::Ended(_) | PodState::Unknown => elsewhere(session, spare),
        };
    };
    if claim.session != session.id {
        return elsewhere(session, spare);
    }
    if *claim != session.claim() {
        return match pod.state {
            PodState::Unknown => previous(pod),
            _ => delete(object),
        };
    }
    if session.pod.is_none() {
        // Before it is bound, so that no two Pods of one generation ever are.
        return write(session.clone().in_pod(object.uid.clone()));
    }
    match &pod.state {
        PodState::Pending(what) => Action::Wait(what.clone()),
        PodState::Unknown => previous(pod),
        PodState::Ended(cause) => write(session.clone().start_failed(cause, now)),
        PodState::Running(WorkerSeen::Silent) => Action::Wait("its worker is starting".to_owned()),
        PodState::Running(WorkerSeen::Unbound) => {
            match volume.filter(|_| session.volume != VolumeNeed::None) {
                Some(Volume { object: volume, opened_to, .. })
                    if opened_to.as_ref() != Some(&object.uid) =>
                {
                    Action::OpenTo(
                        volume.uid.clone(),
                        volume.version.clone(),
                        session.generation,
                        object.uid.clone(),
                    )
                }
                _ => Action::Bind(object.uid.clone(), claim.clone()),
            }
        }
        PodState::Running(WorkerSeen::Preparing(bound, what)) if bound == claim => {
            Action::Wait(what.clone())
        }
        PodState::Running(worker) if worker.bound() == Some(claim) => {
            write(session.clone().serving())
        }
        PodState::Running(_) => write(session.clone().start_failed(&Cause::ForeignBinding, now)),
    }
}

/// Another slot, but never away from a volume that the session has.
fn elsewhere(session: &Session, spare: &SlotId) -> Action {
    match session.volume {
        VolumeNeed::Have(_) if session.served => foreign("Pod"),
        VolumeNeed::Have(_) => {
            // Nothing ran yet: the claimed volume stays behind in that slot, where the pool's sweep finds it.
            let session = Session { volume: VolumeNeed::New, ..session.clone() };
            write(session.elsewhere(spare.clone()))
        }
        VolumeNeed::None | VolumeNeed::New => write(session.clone().elsewhere(spare.clone())),
    }
}

// === active ===

fn active(session: &Session, seen: &World, now: u64) -> Option<Action> {
    let own = seen.pod.as_ref().filter(|pod| session.pod.as_ref() == Some(&pod.object.uid));
    let Some(pod) = own else {
        return Some(write(session.clone().lost(&Cause::Deleted, now)));
    };
    match &pod.state {
        _ if pod.object.terminating => Some(previous(pod)),
        PodState::Ended(cause) => Some(write(session.clone().lost(cause, now))),
        PodState::Unknown => Some(previous(pod)),
        // Asked to by an allocator whose end was called off meanwhile. It would refuse prompts for ever; letting it take them again
        // could let in work behind a stop that has its evidence already.
        PodState::Running(WorkerSeen::Quiesced(claim, _)) if *claim == session.claim() => {
            let reason = EndReason::Idle;
            let ending =
                Ending { reason, close: false, discard: false, force: false, evidence: None };
            Some(write(session.clone().stopping(ending)))
        }
        PodState::Pending(_) | PodState::Running(_) => None,
    }
}

// === stopping ===

fn stopping(session: &Session, seen: &World, now: u64) -> Action {
    let own = seen.pod.as_ref().filter(|pod| session.pod.as_ref() == Some(&pod.object.uid));
    let Some(pod) = own else {
        // Gone. What it held, if it was not asked before, nobody knows.
        let session =
            if session.quiesced { session.clone() } else { session.clone().was_quiesced(None) };
        return write(session.stopped(now));
    };
    if session.quiesced {
        return if pod.object.terminating { previous(pod) } else { delete(&pod.object) };
    }
    let force = session.ending.as_ref().is_some_and(|ending| ending.force);
    match &pod.state {
        PodState::Running(WorkerSeen::Quiesced(claim, evidence)) if *claim == session.claim() => {
            write(session.clone().was_quiesced(evidence.clone()))
        }
        PodState::Ended(_) => write(session.clone().was_quiesced(None)),
        _ if pod.object.terminating => previous(pod),
        // What it does meanwhile is not known: nothing that it holds is deleted.
        PodState::Running(WorkerSeen::Serving { busy: true, .. } | WorkerSeen::Silent) if force => {
            write(session.clone().was_quiesced(None))
        }
        PodState::Running(WorkerSeen::Serving { busy: true, .. }) => {
            write(session.clone().reopened())
        }
        PodState::Running(WorkerSeen::Serving { .. }) => Action::Quiesce(pod.object.uid.clone()),
        PodState::Pending(_) | PodState::Running(_) => {
            Action::Wait("its worker does not answer".to_owned())
        }
        PodState::Unknown => previous(pod),
    }
}

// === asleep and ended ===

fn resting(session: &Session, seen: &World) -> Option<Action> {
    // What is there may be newer than the session that was read: then the write is refused, and nothing was deleted.
    if let Some(action) = newer(session, seen) {
        return Some(action);
    }
    if let Some(pod) = &seen.pod
        && pod.object.ours
        && pod.claim.as_ref().is_some_and(|claim| claim.session == session.id)
    {
        return Some(match pod.state {
            _ if pod.object.terminating => previous(pod),
            PodState::Unknown => previous(pod),
            _ => delete(&pod.object),
        });
    }
    if let Some(Anchor { object, claim: Some(claim) }) = &seen.anchor
        && object.ours
        && !object.terminating
        && claim.session == session.id
        && seen.pod.is_none()
    {
        return Some(Action::DeleteAnchor(object.uid.clone(), object.version.clone()));
    }
    match (session.phase, session.storage, &seen.volume) {
        (Phase::Ended, Storage::Deleting, volume) => Some(delete_volume(session, volume.as_ref())),
        // Made by an allocator that was late: no worker was ever bound in it.
        (Phase::Ended, Storage::Deleted, Some(volume))
            if volume.object.ours
                && !volume.object.terminating
                && is_own(session, volume)
                && volume.floor == Generation::ZERO =>
        {
            Some(Action::DeleteVolume(volume.object.uid.clone(), volume.object.version.clone()))
        }
        _ => None,
    }
}

fn delete_volume(session: &Session, seen: Option<&Volume>) -> Action {
    // Made, but never written into the ledger: it has the session's marks, and no worker was bound in it.
    let known = |volume: &&Volume| match &session.volume {
        VolumeNeed::Have(uid) => *uid == volume.object.uid,
        VolumeNeed::New => !session.served,
        VolumeNeed::None => false,
    };
    match seen.filter(known) {
        Some(volume) if !volume.object.ours || !is_own(session, volume) => match volume.key {
            // The pool's, which the session never came to claim.
            None if volume.object.ours => write(session.clone().deleted()),
            _ => foreign("volume claim"),
        },
        // The ledger says that nobody ever worked in it, and the volume that somebody may have (it was restored).
        Some(volume) if !session.served && volume.floor > Generation::ZERO => {
            let kept = session.clone().with_volume(volume.object.uid.clone());
            write(Session { storage: Storage::Retained { left: None }, ..kept })
        }
        Some(volume) if volume.object.terminating => {
            Action::Wait("its volume is being deleted".to_owned())
        }
        Some(volume) => {
            Action::DeleteVolume(volume.object.uid.clone(), volume.object.version.clone())
        }
        None => write(session.clone().deleted()),
    }
}

fn delete(object: &Object) -> Action {
    Action::DeletePod(object.uid.clone(), object.version.clone())
}

/// A Pod that may be running is not replaced: two would work in one session.
fn previous(pod: &Pod) -> Action {
    let words = match pod.state {
        PodState::Unknown => {
            "the node of its Pod does not answer, so the Pod may be running: when the node is back or deleted, it goes on"
        }
        _ => "its former Pod is being ended and not gone yet",
    };
    Action::Blocked(Obstacle::PreviousWorker, words.to_owned())
}
