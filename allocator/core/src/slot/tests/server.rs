//! An API server in miniature: objects by name, with UIDs and versions, and what it refuses. And what only a test knows: what a
//! volume holds, who was bound when, and whose clients were let in.

use std::collections::BTreeMap;
use std::rc::Rc;

use casemate_protocol::api::Phase;
use casemate_protocol::ids::{Generation, SlotId};
use casemate_protocol::worker::Evidence;

use crate::slot::{
    Action, Anchor, Claim, Object, Pod, PodState, Session, Uid, Version, Volume, VolumeNeed,
    WorkerSeen, World,
};

/// A slot's name of this number.
pub(super) fn slot(number: u32) -> SlotId {
    let letter = char::from(b'a' + u8::try_from(number / 8 % 26).expect("few"));
    let more = char::from(b'a' + u8::try_from(number % 8).expect("few"));
    format!("w-{}{letter}{more}", "a".repeat(24)).parse().expect("a slot's name")
}

/// What a slot's volume holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Disk {
    pub(super) unpushed: bool,
    /// The supervisor's own floor: it takes no generation that is not above.
    pub(super) floor: u64,
}

/// A session as the server has it.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) session: Rc<Session>,
    pub(super) version: u32,
    /// The newest generation that clients were let in of: those stay attached, whatever becomes of the session.
    pub(super) entered: Generation,
    /// The newest worker that was bound.
    pub(super) bound: Option<(Generation, Uid)>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Server {
    pub(super) sessions: Vec<Stored>,
    pub(super) slots: BTreeMap<SlotId, Rc<World>>,
    pub(super) disks: BTreeMap<SlotId, Disk>,
    /// What the workers on nodes that do not answer are at.
    pub(super) behind: BTreeMap<SlotId, WorkerSeen>,
    pub(super) uids: u32,
    pub(super) forced: bool,
    pub(super) restored: bool,
}

impl Server {
    pub(super) fn object(&mut self, owner: Option<&str>) -> Object {
        self.uids += 1;
        Object {
            uid: self.uids.to_string(),
            version: "1".into(),
            ours: true,
            owner: owner.map(str::to_owned),
            terminating: false,
        }
    }

    pub(super) fn world(&mut self, name: &SlotId) -> &mut World {
        Rc::make_mut(self.slots.entry(name.clone()).or_default())
    }

    /// Whether the server would still take it: a write of another version never succeeds again.
    pub(super) fn takes(&self, of: usize, version: u32, name: &SlotId, action: &Action) -> bool {
        let world = self.slots.get(name);
        let pod = world.and_then(|world| world.pod.as_ref()).map(|pod| &pod.object);
        let there = |object: Option<&Object>, uid: &Uid, version: &Version| {
            object.is_some_and(|object| is(object, uid, version))
        };
        let anchor = world.and_then(|world| world.anchor.as_ref()).map(|anchor| &anchor.object);
        let volume = world.and_then(|world| world.volume.as_ref()).map(|volume| &volume.object);
        match action {
            Action::Wait(_) | Action::Blocked(..) => false,
            Action::Write(_) => self.sessions[of].version == version,
            Action::CreateAnchor(_) | Action::CreateVolume(_) => true,
            // Admission refuses a Pod whose ServiceAccount is not there; the collector ends what has no owner.
            Action::CreateSecret(owner)
            | Action::CreatePolicy(owner)
            | Action::CreatePod(owner, _) => anchor.is_some_and(|anchor| anchor.uid == *owner),
            Action::ClaimAnchor(uid, version, _) | Action::DeleteAnchor(uid, version) => {
                there(anchor, uid, version)
            }
            Action::ClaimVolume(uid, version, _)
            | Action::OpenTo(uid, version, ..)
            | Action::DeleteVolume(uid, version) => there(volume, uid, version),
            Action::ClaimPod(uid, version, _) | Action::DeletePod(uid, version) => {
                there(pod, uid, version)
            }
            Action::Bind(uid, _) | Action::Quiesce(uid) => {
                pod.is_some_and(|pod| pod.uid == *uid && !pod.terminating)
            }
        }
    }

    /// Carries an action out for session number `of`, as it was read with this version and in this slot.
    pub(super) fn act(&mut self, of: usize, version: u32, name: &SlotId, action: Action) {
        if !self.takes(of, version, name, &action) {
            return;
        }
        let (id, key) = {
            let session = &self.sessions[of].session;
            (session.id.clone(), session.key.clone())
        };
        match action {
            Action::Wait(_) | Action::Blocked(..) => {}
            Action::Write(next) => self.write(of, *next),
            Action::CreateAnchor(claim) => {
                let object = self.object(None);
                self.world(name).anchor.get_or_insert(Anchor { object, claim: Some(claim) });
            }
            Action::ClaimAnchor(.., claim) => {
                let anchor = self.world(name).anchor.as_mut().expect("looked at");
                anchor.claim = Some(claim);
                written(&mut anchor.object);
            }
            Action::CreateSecret(owner) => {
                let object = self.object(Some(&owner));
                self.world(name).secret.get_or_insert(object);
            }
            Action::CreatePolicy(owner) => {
                let object = self.object(Some(&owner));
                self.world(name).policy.get_or_insert(object);
            }
            Action::CreateVolume(claim) => {
                let object = self.object(None);
                let (incarnation, floor) = (claim.incarnation, Generation::ZERO);
                let new = Volume { object, key: Some(key), incarnation, floor, opened_to: None };
                if self.world(name).volume.is_none() {
                    self.world(name).volume = Some(new);
                    self.disks.insert(name.clone(), Disk::default());
                }
            }
            Action::ClaimVolume(.., claim) => {
                let volume = self.world(name).volume.as_mut().expect("looked at");
                volume.key = Some(key);
                volume.incarnation = claim.incarnation;
                written(&mut volume.object);
            }
            Action::OpenTo(.., generation, pod) => {
                let volume = self.world(name).volume.as_mut().expect("looked at");
                volume.floor = generation;
                volume.opened_to = Some(pod);
                written(&mut volume.object);
            }
            Action::CreatePod(owner, claim) => {
                let object = self.object(Some(&owner));
                let state = PodState::Pending("its node".into());
                self.world(name).pod.get_or_insert(Pod { object, claim: Some(claim), state });
            }
            Action::ClaimPod(.., claim) => {
                let pod = self.world(name).pod.as_mut().expect("looked at");
                pod.claim = Some(claim);
                written(&mut pod.object);
            }
            Action::Bind(_, claim) => self.bind(of, name, claim),
            Action::Quiesce(_) => self.quiesce(name),
            Action::DeletePod(..) => {
                let pod = self.world(name).pod.as_ref().expect("looked at").clone();
                let whose = pod.claim.as_ref().map(|claim| &claim.session);
                assert!(
                    pod.object.ours && whose == Some(&id),
                    "a Pod of somebody else was deleted: {pod:?}"
                );
                self.may_end(&pod);
                let object = &mut self.world(name).pod.as_mut().expect("looked at").object;
                object.terminating = true;
                written(object);
            }
            Action::DeleteAnchor(uid, _) => {
                let anchor = self.world(name).anchor.take().expect("looked at");
                assert!(
                    anchor.object.ours && anchor.claim.is_some_and(|claim| claim.session == id),
                    "a ServiceAccount of somebody else was deleted"
                );
                let pod = self.world(name).pod.clone();
                if let Some(pod) = pod.filter(|pod| pod.object.owner == Some(uid)) {
                    self.may_end(&pod);
                }
                let _ = self.collect(name);
            }
            Action::DeleteVolume(..) => {
                let volume = self.world(name).volume.take().expect("looked at");
                assert!(
                    volume.object.ours && volume.key.as_ref() == Some(&key),
                    "a volume of somebody else was deleted: {volume:?}"
                );
                let disk = self.disks.remove(name).unwrap_or_default();
                assert!(!disk.unpushed, "unpushed work was deleted");
            }
        }
    }

    /// Carries out what the pool or a sweep decided about a slot.
    pub(super) fn act_apart(&mut self, name: &SlotId, action: &Action) {
        if !self.takes(0, 0, name, action) {
            return;
        }
        let world = self.world(name).clone();
        let named = |claim: Option<&Claim>| {
            self.sessions.iter().any(|stored| {
                stored.session.slot == *name && Some(&stored.session.claim()) == claim
            })
        };
        match action {
            Action::DeletePod(..) => {
                let pod = world.pod.expect("looked at");
                assert!(pod.object.ours && !named(pod.claim.as_ref()), "a session's Pod: {pod:?}");
                self.may_end(&pod);
                let object = &mut self.world(name).pod.as_mut().expect("looked at").object;
                object.terminating = true;
                written(object);
            }
            Action::DeleteAnchor(..) => {
                let anchor = world.anchor.expect("looked at");
                assert!(
                    anchor.object.ours && !named(anchor.claim.as_ref()),
                    "a session's ServiceAccount: {anchor:?}"
                );
                if let Some(pod) =
                    world.pod.filter(|pod| pod.object.owner == Some(anchor.object.uid))
                {
                    self.may_end(&pod);
                }
                self.world(name).anchor = None;
                let _ = self.collect(name);
            }
            Action::DeleteVolume(..) => {
                let volume = world.volume.expect("looked at");
                let had = self.sessions.iter().any(|stored| {
                    stored.session.served
                        && stored.session.volume == VolumeNeed::Have(volume.object.uid.clone())
                });
                assert!(volume.object.ours && !had, "a session's volume: {volume:?}");
                let disk = self.disks.remove(name).unwrap_or_default();
                assert!(!disk.unpushed, "unpushed work was deleted");
                self.world(name).volume = None;
            }
            other => assert!(matches!(other, Action::Wait(_)), "not theirs: {other:?}"),
        }
    }

    fn write(&mut self, of: usize, next: Session) {
        let stored = &mut self.sessions[of];
        let now = &stored.session;
        assert!(next.generation >= now.generation, "a generation fell");
        if next.pod.is_some() && next.pod != now.pod && now.pod.is_some() {
            assert!(next.generation > now.generation, "another Pod, the same generation");
        }
        if now.served && matches!(now.volume, VolumeNeed::Have(_)) {
            let kept = next.volume == now.volume || next.storage == crate::record::Storage::Deleted;
            assert!(kept, "another volume in the same incarnation");
        }
        if next.phase == Phase::Active {
            stored.entered = next.generation;
        }
        stored.session = Rc::new(next);
        stored.version += 1;
    }

    /// The worker takes a session once, and none whose generation is not above what its volume has seen.
    fn bind(&mut self, of: usize, name: &SlotId, claim: Claim) {
        let pod = self.world(name).pod.as_mut().expect("looked at");
        if pod.state != PodState::Running(WorkerSeen::Unbound) {
            return;
        }
        let (uid, generation) = (pod.object.uid.clone(), claim.generation);
        let floor = self.disks.get(name).map_or(0, |disk| disk.floor);
        if generation.0 <= floor {
            return;
        }
        if let Some(disk) = self.disks.get_mut(name) {
            disk.floor = generation.0;
        }
        let state = PodState::Running(WorkerSeen::Preparing(claim, "clones".into()));
        self.world(name).pod.as_mut().expect("looked at").state = state;
        let former = &mut self.sessions[of].bound;
        let stale = former.as_ref().is_some_and(|(newest, _)| *newest >= generation);
        assert!(!stale || self.restored, "bound after a worker of its or a later generation");
        *former = Some((generation, uid));
    }

    /// The worker does it only while it is idle.
    fn quiesce(&mut self, name: &SlotId) {
        let unpushed = self.disks.get(name).is_some_and(|disk| disk.unpushed);
        let state = &mut self.world(name).pod.as_mut().expect("looked at").state;
        if let PodState::Running(WorkerSeen::Serving { claim, busy: false }) = state {
            let evidence = Evidence { unpushed: u64::from(unpushed), ..Evidence::default() };
            *state = PodState::Running(WorkerSeen::Quiesced(claim.clone(), Some(evidence)));
        }
    }

    /// Deleting it ends no active session's worker, and no turn unless somebody forces it.
    fn may_end(&self, pod: &Pod) {
        let active = self.sessions.iter().any(|stored| {
            stored.session.phase == Phase::Active
                && stored.session.pod.as_ref() == Some(&pod.object.uid)
        });
        assert!(!active || self.restored, "the worker of an active session was deleted");
        let turn = matches!(pod.state, PodState::Running(WorkerSeen::Serving { busy: true, .. }));
        assert!(!turn || self.forced || self.restored, "a turn was cut");
    }

    /// The cluster collects what belongs to a ServiceAccount that is gone.
    pub(super) fn collect(&mut self, name: &SlotId) -> Option<()> {
        let world = self.slots.get(name)?;
        let anchor = world.anchor.as_ref().map(|anchor| anchor.object.uid.clone());
        let orphan = |object: &Object| object.owner.is_some() && object.owner != anchor;
        let pod = |pod: &Pod| orphan(&pod.object) && !pod.object.terminating;
        if !world.secret.as_ref().is_some_and(orphan)
            && !world.policy.as_ref().is_some_and(orphan)
            && !world.pod.as_ref().is_some_and(pod)
        {
            return None;
        }
        let world = self.world(name);
        world.secret.take_if(|secret| orphan(secret));
        world.policy.take_if(|policy| orphan(policy));
        if let Some(pod) = world.pod.as_mut().filter(|pod| orphan(&pod.object)) {
            pod.object.terminating = true;
        }
        Some(())
    }

    /// One worker a session at most is bound, or may be where its node does not answer.
    pub(super) fn check(&self) {
        for Stored { session, .. } in &self.sessions {
            let pods = self.slots.values().filter_map(|world| world.pod.as_ref());
            let active = pods.filter(|pod| {
                let claim = match &pod.state {
                    PodState::Running(worker) => worker.bound(),
                    PodState::Unknown => pod.claim.as_ref(),
                    PodState::Pending(_) | PodState::Ended(_) => None,
                };
                claim.is_some_and(|claim| claim.session == session.id)
            });
            assert!(active.count() <= 1, "two workers of one session");
        }
    }
}

fn is(object: &Object, uid: &str, version: &str) -> bool {
    object.uid == uid && object.version == version && !object.terminating
}

pub(super) fn written(object: &mut Object) {
    let number: u32 = object.version.parse().expect("a number");
    object.version = (number + 1).to_string();
}
