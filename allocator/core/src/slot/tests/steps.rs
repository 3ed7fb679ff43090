//! What can happen: allocators look, see and act, each for itself; Pods start, end and vanish; people work, push and close.

use std::rc::Rc;

use casemate_protocol::api::Phase;
use casemate_protocol::end::EndReason;
use casemate_protocol::ids::SlotId;

use super::canon::Canon;
use super::server::{Server, slot, written};
use crate::end::Ending;
use crate::slot::pool::drain;
use crate::slot::sweep::sweep;
use crate::slot::{Action, Cause, Pod, PodState, Session, WorkerSeen, World, decide};

/// What may still happen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    /// Looks of the allocators that act late. Whatever they saw, they may be killed instead of acting.
    pub(super) looks: u8,
    pub(super) wakes: u8,
    pub(super) ends: u8,
    /// Pods that fail, and Pods that somebody deletes.
    pub(super) failures: u8,
    /// Nodes that do not answer for a while.
    pub(super) silences: u8,
    /// Closes that cut a turn.
    pub(super) forces: u8,
    /// Ledgers that are restored from a backup.
    pub(super) restores: u8,
    /// Looks for orphans.
    pub(super) sweeps: u8,
    /// Spare slots that are removed, each look for itself.
    pub(super) drains: u8,
}

/// An allocator that acts late.
#[derive(Debug, Clone)]
enum Late {
    Idle,
    /// It has read the session, in this version.
    Read(usize, u32, Rc<Session>),
    /// It has looked at the slot, and is about to do this.
    Decided(usize, u32, SlotId, Action),
    /// It looks for orphans: it has looked at this slot, and not read the ledgers yet.
    Swept(SlotId, Rc<World>),
    /// It is about to do this to a slot that it takes for an orphan or a spare one.
    Apart(SlotId, Action),
}

#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) server: Server,
    late: Vec<Late>,
    left: Budget,
    backup: Rc<Vec<Rc<Session>>>,
}

fn spare(session: &Session) -> SlotId {
    let number = u32::try_from(session.generation.0).expect("few");
    slot(100 + number + if session.key == "k0" { 0 } else { 50 })
}

impl State {
    pub(super) fn new(server: Server, late: usize, left: Budget) -> Self {
        let backup = server.sessions.iter().map(|stored| Rc::clone(&stored.session)).collect();
        Self { server, late: vec![Late::Idle; late], left, backup: Rc::new(backup) }
    }

    pub(super) fn digest(&self) -> u64 {
        let mut canon = Canon::default();
        canon.server(&self.server);
        canon.raw(self.left);
        for late in &self.late {
            match late {
                Late::Idle => canon.raw(0),
                Late::Read(of, version, session) => {
                    let current = self.server.sessions[*of].version == *version;
                    canon.raw((1, of, current));
                    canon.session(session);
                }
                Late::Decided(of, _, slot, action) => {
                    canon.raw((2, of, slot));
                    canon.action(action);
                }
                Late::Swept(slot, world) => {
                    canon.raw((3, slot));
                    canon.world(world);
                }
                Late::Apart(slot, action) => {
                    canon.raw((4, slot));
                    canon.action(action);
                }
            }
        }
        canon.finish()
    }

    /// All that can happen next.
    pub(super) fn next(&self) -> Vec<Self> {
        let mut all = Vec::new();
        for of in 0..self.server.sessions.len() {
            // An allocator that is quick. One that is killed is one that goes no further.
            self.step(&mut all, |state| state.quick(of));
            for person in Person::ALL {
                self.step(&mut all, |state| state.person(of, person));
            }
            self.step(&mut all, |state| state.restore(of));
            for late in 0..self.late.len() {
                self.step(&mut all, |state| state.look(late, of));
            }
        }
        for late in 0..self.late.len() {
            self.step(&mut all, |state| state.see(late));
            self.step(&mut all, |state| state.act(late));
        }
        for name in self.server.slots.keys() {
            self.step(&mut all, |state| state.server.collect(name));
            for event in Event::ALL {
                self.step(&mut all, |state| state.pod(name, event));
            }
            for late in 0..self.late.len() {
                self.step(&mut all, |state| state.sweeps(late, name));
                self.step(&mut all, |state| state.drains(late, name));
            }
        }
        all
    }

    fn step(&self, all: &mut Vec<Self>, step: impl FnOnce(&mut Self) -> Option<()>) {
        let mut next = self.clone();
        if step(&mut next).is_none() {
            return;
        }
        next.server.check();
        for late in &mut next.late {
            let lives = match late {
                Late::Decided(of, version, slot, action) => {
                    next.server.takes(*of, *version, slot, action)
                }
                Late::Apart(slot, action) => next.server.takes(0, 0, slot, action),
                Late::Idle | Late::Read(..) | Late::Swept(..) => true,
            };
            if !lives {
                *late = Late::Idle;
            }
        }
        all.push(next);
    }

    pub(super) fn decision(&self, of: usize) -> Option<Action> {
        let session = &self.server.sessions[of].session;
        let nothing = Rc::new(World::default());
        let world = self.server.slots.get(&session.slot).unwrap_or(&nothing);
        decide(session, world, &spare(session), 0)
    }

    pub(super) fn quick(&mut self, of: usize) -> Option<()> {
        let action = self.decision(of)?;
        let stored = &self.server.sessions[of];
        let (version, slot) = (stored.version, stored.session.slot.clone());
        if !self.server.takes(of, version, &slot, &action) {
            return None;
        }
        self.server.act(of, version, &slot, action);
        Some(())
    }

    fn look(&mut self, late: usize, of: usize) -> Option<()> {
        if !matches!(self.late[late], Late::Idle) {
            return None;
        }
        self.left.looks = self.left.looks.checked_sub(1)?;
        let stored = &self.server.sessions[of];
        self.late[late] = Late::Read(of, stored.version, Rc::clone(&stored.session));
        Some(())
    }

    fn sweeps(&mut self, late: usize, name: &SlotId) -> Option<()> {
        if !matches!(self.late[late], Late::Idle) {
            return None;
        }
        self.left.sweeps = self.left.sweeps.checked_sub(1)?;
        self.late[late] = Late::Swept(name.clone(), Rc::clone(self.server.slots.get(name)?));
        Some(())
    }

    fn drains(&mut self, late: usize, name: &SlotId) -> Option<()> {
        if !matches!(self.late[late], Late::Idle) {
            return None;
        }
        self.left.drains = self.left.drains.checked_sub(1)?;
        self.late[late] = Late::Apart(name.clone(), drain(self.server.slots.get(name)?)?);
        Some(())
    }

    /// Removes orphans, at once.
    pub(super) fn sweep(&mut self, name: &SlotId) -> Option<()> {
        let action = self.orphan(name, self.server.slots.get(name)?)?;
        if !self.server.takes(0, 0, name, &action) {
            return None;
        }
        self.server.act_apart(name, &action);
        Some(())
    }

    fn orphan(&self, name: &SlotId, seen: &World) -> Option<Action> {
        let named = self.server.sessions.iter().any(|stored| stored.session.slot == *name);
        if named { None } else { sweep(seen) }
    }

    fn see(&mut self, late: usize) -> Option<()> {
        if let Late::Swept(name, seen) = &self.late[late] {
            let next = self.orphan(name, seen).map(|action| Late::Apart(name.clone(), action));
            self.late[late] = next.unwrap_or(Late::Idle);
            return Some(());
        }
        let Late::Read(of, version, session) = &self.late[late] else { return None };
        let nothing = Rc::new(World::default());
        let world = self.server.slots.get(&session.slot).unwrap_or(&nothing);
        let next = match decide(session, world, &spare(session), 0) {
            Some(action) => Late::Decided(*of, *version, session.slot.clone(), action),
            None => Late::Idle,
        };
        self.late[late] = next;
        Some(())
    }

    fn act(&mut self, late: usize) -> Option<()> {
        if !matches!(self.late[late], Late::Decided(..) | Late::Apart(..)) {
            return None;
        }
        match std::mem::replace(&mut self.late[late], Late::Idle) {
            Late::Decided(of, version, slot, action) => self.server.act(of, version, &slot, action),
            Late::Apart(slot, action) => self.server.act_apart(&slot, &action),
            Late::Idle | Late::Read(..) | Late::Swept(..) => {}
        }
        Some(())
    }

    fn person(&mut self, of: usize, person: Person) -> Option<()> {
        let session = &self.server.sessions[of].session;
        let next = match (person, session.phase) {
            (Person::Wake, Phase::Asleep) => {
                self.left.wakes = self.left.wakes.checked_sub(1)?;
                (**session).clone().wake()
            }
            (Person::Force, Phase::Active) => {
                self.left.forces = self.left.forces.checked_sub(1)?;
                self.server.forced = true;
                (**session).clone().stopping(person.ending())
            }
            (Person::Idle | Person::Close, Phase::Active) => {
                self.left.ends = self.left.ends.checked_sub(1)?;
                (**session).clone().stopping(person.ending())
            }
            (Person::Close, Phase::Asleep) => {
                self.left.ends = self.left.ends.checked_sub(1)?;
                (**session).clone().close_asleep(person.ending(), 0)
            }
            (Person::Work | Person::Rest | Person::Push, _) => return self.work(of, person),
            _ => return None,
        };
        let stored = &mut self.server.sessions[of];
        stored.session = Rc::new(next);
        stored.version += 1;
        Some(())
    }

    /// Clients that were let in stay attached to their worker. It refuses prompts where it is quiesced.
    fn work(&mut self, of: usize, person: Person) -> Option<()> {
        let (id, entered) = {
            let stored = &self.server.sessions[of];
            (stored.session.id.clone(), stored.entered)
        };
        let names: Vec<_> = self.server.slots.keys().cloned().collect();
        for name in names {
            let Some(pod) = &self.server.slots[&name].pod else { continue };
            let PodState::Running(WorkerSeen::Serving { claim, busy }) = &pod.state else {
                continue;
            };
            if claim.session != id || claim.generation != entered {
                continue;
            }
            let unpushed = self.server.disks.get(&name)?.unpushed;
            let (turns, holds) = match person {
                Person::Work => (true, true),
                Person::Rest => (false, unpushed),
                _ => (*busy, false),
            };
            if (turns, holds) == (*busy, unpushed) {
                return None;
            }
            let state = WorkerSeen::Serving { claim: claim.clone(), busy: turns };
            self.server.world(&name).pod.as_mut()?.state = PodState::Running(state);
            self.server.disks.get_mut(&name)?.unpushed = holds;
            return Some(());
        }
        None
    }

    fn restore(&mut self, of: usize) -> Option<()> {
        self.left.restores = self.left.restores.checked_sub(1)?;
        self.server.restored = true;
        self.server.sessions[of].session = Rc::clone(&self.backup[of]);
        self.server.sessions[of].version += 1;
        Some(())
    }

    pub(super) fn pod(&mut self, name: &SlotId, event: Event) -> Option<()> {
        let Pod { object, state, .. } = self.server.slots.get(name)?.pod.as_ref()?;
        let next = match (event, state) {
            (Event::Runs, PodState::Pending(_)) if !object.terminating => {
                PodState::Running(WorkerSeen::Unbound)
            }
            (Event::Runs, PodState::Running(WorkerSeen::Preparing(claim, _))) => {
                PodState::Running(WorkerSeen::Serving { claim: claim.clone(), busy: false })
            }
            (Event::Fails, PodState::Running(_) | PodState::Pending(_)) => {
                self.left.failures = self.left.failures.checked_sub(1)?;
                PodState::Ended(Cause::Exit(1))
            }
            (Event::IsDeleted, _) if !object.terminating => {
                self.left.failures = self.left.failures.checked_sub(1)?;
                let object = &mut self.server.world(name).pod.as_mut()?.object;
                object.terminating = true;
                written(object);
                return Some(());
            }
            // A terminating Pod of a node that does not answer stays.
            (Event::Vanishes, PodState::Pending(_) | PodState::Running(_) | PodState::Ended(_))
                if object.terminating =>
            {
                self.server.world(name).pod = None;
                return Some(());
            }
            (Event::FallsSilent, PodState::Running(worker)) => {
                self.left.silences = self.left.silences.checked_sub(1)?;
                let worker = worker.clone();
                self.server.behind.insert(name.clone(), worker);
                PodState::Unknown
            }
            (Event::IsHeard, PodState::Unknown) => {
                PodState::Running(self.server.behind.remove(name)?)
            }
            _ => return None,
        };
        let pod = self.server.world(name).pod.as_mut()?;
        pod.state = next;
        // What the kubelet reports is written; what the worker says of itself is not.
        if !matches!(pod.state, PodState::Running(WorkerSeen::Serving { .. })) {
            written(&mut pod.object);
        }
        Some(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Person {
    Wake,
    Idle,
    Close,
    Force,
    Work,
    Rest,
    Push,
}

impl Person {
    const ALL: [Self; 7] =
        [Self::Wake, Self::Idle, Self::Close, Self::Force, Self::Work, Self::Rest, Self::Push];

    fn ending(self) -> Ending {
        let close = self != Self::Idle;
        let reason = if close { EndReason::Close } else { EndReason::Idle };
        Ending { reason, close, discard: false, force: self == Self::Force, evidence: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    Runs,
    Fails,
    Vanishes,
    IsDeleted,
    FallsSilent,
    IsHeard,
}

impl Event {
    const ALL: [Self; 6] = [
        Self::Runs,
        Self::Fails,
        Self::Vanishes,
        Self::IsDeleted,
        Self::FallsSilent,
        Self::IsHeard,
    ];
}
