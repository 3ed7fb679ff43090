//! One number for all states that differ in names alone. UIDs count in the order in which they appear; a version is left out, for
//! whatever an allocator still wants to do and the server would refuse is dropped at once; so are words and times.

use std::hash::{DefaultHasher, Hash, Hasher as _};

use super::server::{Server, Stored};
use crate::slot::{Action, Anchor, Cause, Object, Pod, PodState, Session, Uid, VolumeNeed, World};

#[derive(Default)]
pub(super) struct Canon {
    hasher: DefaultHasher,
    uids: Vec<Uid>,
}

impl Canon {
    pub(super) fn finish(&self) -> u64 {
        self.hasher.finish()
    }

    pub(super) fn raw(&mut self, value: impl Hash) {
        value.hash(&mut self.hasher);
    }

    fn uid(&mut self, uid: Option<&Uid>) {
        let number = uid.map(|uid| {
            self.uids.iter().position(|known| known == uid).unwrap_or_else(|| {
                self.uids.push(uid.clone());
                self.uids.len() - 1
            })
        });
        self.raw(number);
    }

    pub(super) fn server(&mut self, server: &Server) {
        for stored in &server.sessions {
            let Stored { session, version: _, entered, bound } = stored;
            self.session(session);
            self.raw(entered);
            self.raw(bound.as_ref().map(|(generation, _)| generation));
        }
        self.raw(server.slots.len());
        for (name, world) in &server.slots {
            self.raw((name, server.disks.get(name)));
            self.raw(server.behind.get(name));
            self.world(world);
        }
        self.raw((server.forced, server.restored));
    }

    pub(super) fn session(&mut self, session: &Session) {
        let Session {
            id,
            key: _,
            incarnation,
            generation,
            phase,
            slot,
            pod,
            volume,
            storage,
            ending,
            quiesced,
            last_end,
            served,
            used,
            failed,
            attempts: _,
            terms: _,
        } = session;
        self.raw((id, incarnation, generation, phase, slot, storage));
        self.raw((ending, quiesced, served, used, failed));
        self.raw(last_end.as_ref().map(|end| (end.reason, &end.evidence)));
        self.uid(pod.as_ref());
        self.raw(std::mem::discriminant(volume));
        if let VolumeNeed::Have(uid) = volume {
            self.uid(Some(uid));
        }
    }

    fn object(&mut self, object: &Object) {
        let Object { uid, version: _, ours, owner, terminating } = object;
        self.raw((ours, terminating));
        self.uid(Some(uid));
        self.uid(owner.as_ref());
    }

    pub(super) fn world(&mut self, world: &World) {
        let World { anchor, secret, policy, volume, pod } = world;
        self.raw((anchor.is_some(), secret.is_some(), policy.is_some()));
        self.raw((volume.is_some(), pod.is_some()));
        if let Some(Anchor { object, claim }) = anchor {
            self.object(object);
            self.raw(claim);
        }
        for object in [secret, policy].into_iter().flatten() {
            self.object(object);
        }
        if let Some(volume) = volume {
            self.object(&volume.object);
            self.raw((&volume.key, volume.incarnation, volume.floor));
            self.uid(volume.opened_to.as_ref());
        }
        if let Some(Pod { object, claim, state }) = pod {
            self.object(object);
            self.raw((claim, std::mem::discriminant(state)));
            match state {
                PodState::Pending(_) | PodState::Unknown => {}
                PodState::Ended(cause) => self.raw(Cause::counts(cause)),
                PodState::Running(worker) => self.raw(worker),
            }
        }
    }

    pub(super) fn action(&mut self, action: &Action) {
        self.raw(std::mem::discriminant(action));
        match action {
            Action::Wait(_) | Action::Blocked(..) => {}
            Action::Write(session) => self.session(session),
            Action::CreateAnchor(claim) | Action::CreateVolume(claim) => self.raw(claim),
            Action::CreateSecret(uid)
            | Action::CreatePolicy(uid)
            | Action::Quiesce(uid)
            | Action::DeletePod(uid, _)
            | Action::DeleteAnchor(uid, _)
            | Action::DeleteVolume(uid, _) => self.uid(Some(uid)),
            Action::CreatePod(uid, claim)
            | Action::Bind(uid, claim)
            | Action::ClaimAnchor(uid, _, claim)
            | Action::ClaimVolume(uid, _, claim)
            | Action::ClaimPod(uid, _, claim) => {
                self.uid(Some(uid));
                self.raw(claim);
            }
            Action::OpenTo(uid, _, generation, pod) => {
                self.uid(Some(uid));
                self.raw(generation);
                self.uid(Some(pod));
            }
        }
    }
}
