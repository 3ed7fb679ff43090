//! Breadth first through all that can happen.

use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;

use casemate_protocol::api::Phase;
use casemate_protocol::ids::{Generation, Incarnation, SessionId};

use super::canon::Canon;
use super::server::{Disk, Server, Stored, slot};
use super::steps::{Budget, Event, State};
use crate::record::{CloseRule, Storage, Terms};
use crate::slot::{Action, Anchor, Claim, Pod, PodState, Session, Volume, VolumeNeed, WorkerSeen};

pub(super) fn session(number: usize) -> Session {
    let letter = char::from(b'a' + u8::try_from(number).expect("few"));
    let id: SessionId = format!("s-{}{letter}", "a".repeat(25)).parse().expect("an id");
    Session {
        id,
        key: format!("k{number}"),
        incarnation: Incarnation(1),
        generation: Generation(1),
        phase: Phase::Starting,
        slot: slot(0),
        pod: None,
        volume: VolumeNeed::New,
        storage: Storage::Live,
        ending: None,
        quiesced: false,
        last_end: None,
        served: false,
        used: false,
        failed: 0,
        attempts: 2,
        terms: Terms { idle_ttl_ms: 1000, close: CloseRule::Delete },
    }
}

/// Sessions that are being started in slot 0, and nothing else.
fn cold(sessions: usize) -> Server {
    let stored = |number| Stored {
        session: Rc::new(session(number)),
        version: 1,
        entered: Generation::ZERO,
        bound: None,
    };
    Server { sessions: (0..sessions).map(stored).collect(), ..Server::default() }
}

/// The same, and slot 0 is warm.
fn warm(sessions: usize) -> Server {
    let mut server = cold(sessions);
    let anchor = server.object(None);
    let owner = anchor.uid.clone();
    let world = crate::slot::World {
        secret: Some(server.object(Some(&owner))),
        policy: Some(server.object(Some(&owner))),
        volume: Some(Volume {
            object: server.object(None),
            key: None,
            incarnation: Incarnation::ZERO,
            floor: Generation::ZERO,
            opened_to: None,
        }),
        pod: Some(Pod {
            object: server.object(Some(&owner)),
            claim: None,
            state: PodState::Running(WorkerSeen::Unbound),
        }),
        anchor: Some(Anchor { object: anchor, claim: None }),
    };
    server.disks.insert(slot(0), Disk::default());
    *server.world(&slot(0)) = world;
    server
}

/// One step of everything that goes on by itself; whether anything changed.
fn round(state: &mut State) -> bool {
    let mut moved = false;
    for of in 0..state.server.sessions.len() {
        moved |= state.quick(of).is_some();
    }
    let names: Vec<_> = state.server.slots.keys().cloned().collect();
    for name in names {
        moved |= state.server.collect(&name).is_some();
        moved |= state.sweep(&name).is_some();
        for event in [Event::IsHeard, Event::Runs, Event::Vanishes] {
            moved |= state.pod(&name, event).is_some();
        }
    }
    moved
}

/// What it comes to where nothing happens.
pub(super) fn undisturbed(mut state: State) -> State {
    while round(&mut state) {}
    state
}

/// Goes on undisturbed until nothing changes, and looks at what is left. `known`: servers of which that is known, by what
/// [`Canon`] makes of them.
fn settle(mut state: State, known: &mut HashSet<u64>) {
    let mut way = HashSet::new();
    loop {
        let mut canon = Canon::default();
        canon.server(&state.server);
        let digest = canon.finish();
        assert!(way.insert(digest), "goes round in circles: {state:#?}");
        if !known.insert(digest) {
            return;
        }
        let moved = round(&mut state);
        state.server.check();
        if !moved {
            return settled(&state);
        }
    }
}

fn settled(state: &State) {
    for (of, Stored { session, .. }) in state.server.sessions.iter().enumerate() {
        let action = state.decision(of);
        let rests = matches!(session.phase, Phase::Active | Phase::Asleep | Phase::Ended);
        let stuck = matches!(action, Some(Action::Blocked(..)));
        // A session that is stopped while its turn runs is open again; nothing else waits for a person.
        assert!((rests && action.is_none()) || stuck, "never settles: {action:?}\n{state:#?}");
        assert!(
            !stuck || state.server.restored || foreign(state),
            "blocked by nothing: {action:?}\n{state:#?}"
        );
        if let Some(world) = state.server.slots.get(&session.slot) {
            let claimed = |claim: &Claim| claim.session == session.id;
            let pod = world.pod.as_ref().and_then(|pod| pod.claim.as_ref()).is_some_and(claimed);
            assert!(!pod || session.phase == Phase::Active || stuck, "a Pod of nobody\n{state:#?}");
            let takes_prompts = world.pod.as_ref().is_some_and(|pod| {
                matches!(pod.state, PodState::Running(WorkerSeen::Serving { .. }))
            });
            assert!(
                session.phase != Phase::Active || takes_prompts || stuck,
                "an active session that answers nobody\n{state:#?}"
            );
        }
        if session.phase == Phase::Ended && session.storage == Storage::Deleted {
            let world = state.server.slots.get(&session.slot);
            let volume = world.and_then(|world| world.volume.as_ref());
            assert!(
                volume.is_none_or(|volume| volume.key.as_ref() != Some(&session.key)),
                "an orphan\n{state:#?}"
            );
        }
    }
    for (name, world) in &state.server.slots {
        let named = state.server.sessions.iter().any(|stored| stored.session.slot == *name);
        let claimed = |claim: &Option<Claim>| claim.is_some();
        let orphans = world.pod.as_ref().is_some_and(|pod| claimed(&pod.claim))
            || world.anchor.as_ref().is_some_and(|anchor| claimed(&anchor.claim))
            || world
                .volume
                .as_ref()
                .is_some_and(|volume| volume.key.is_some() && volume.floor == Generation::ZERO);
        assert!(named || !orphans, "orphans in {name}\n{state:#?}");
    }
}

fn foreign(state: &State) -> bool {
    state.server.slots.values().any(|world| {
        world.volume.as_ref().is_some_and(|volume| !volume.object.ours)
            || world.pod.as_ref().is_some_and(|pod| !pod.object.ours)
    })
}

/// Visits every state, lets an allocator that is left alone bring each to rest, and counts them.
fn explore(name: &str, first: State, at_least: usize) -> usize {
    let begun = std::time::Instant::now();
    let mut seen = HashMap::from([(first.digest(), ())]);
    let mut known = HashSet::new();
    let mut open = VecDeque::from([first]);
    while let Some(state) = open.pop_front() {
        for next in state.next() {
            if seen.insert(next.digest(), ()).is_none() {
                open.push_back(next);
            }
        }
        settle(state, &mut known);
    }
    println!("{name}: {} states in {:?}", seen.len(), begun.elapsed());
    assert!(seen.len() >= at_least, "{name}: {} states", seen.len());
    seen.len()
}

#[test]
fn one_session_and_a_late_allocator() {
    let left = Budget { looks: 1, wakes: 1, ends: 1, failures: 1, ..Budget::default() };
    explore("cold, one late allocator", State::new(cold(1), 1, left), 1_000);
    explore("warm, one late allocator", State::new(warm(1), 1, left), 1_000);
}

#[test]
fn one_session_and_two_late_allocators() {
    let left = Budget { looks: 2, ends: 1, ..Budget::default() };
    explore("cold, two late allocators", State::new(cold(1), 2, left), 1_000);
}

#[test]
fn two_sessions_and_one_warm_slot() {
    let left = Budget { looks: 1, ..Budget::default() };
    explore("two sessions, one warm slot", State::new(warm(2), 1, left), 1_000);
}

#[test]
fn a_node_that_does_not_answer() {
    let left =
        Budget { looks: 1, wakes: 1, ends: 1, failures: 1, silences: 1, ..Budget::default() };
    explore("a node that does not answer", State::new(cold(1), 1, left), 1_000);
}

#[test]
fn orphans_are_swept_while_a_session_starts() {
    let left = Budget { failures: 1, ends: 1, sweeps: 1, ..Budget::default() };
    explore("a late sweep", State::new(warm(1), 1, left), 1_000);
}

#[test]
fn the_pool_drains_while_a_session_claims() {
    let left = Budget { ends: 1, wakes: 1, drains: 3, failures: 1, ..Budget::default() };
    explore("a draining pool", State::new(warm(1), 1, left), 1_000);
}

#[test]
fn a_turn_that_is_cut_by_force() {
    let left = Budget { looks: 1, wakes: 1, ends: 1, forces: 1, ..Budget::default() };
    explore("a turn that is cut", State::new(cold(1), 1, left), 1_000);
}

#[test]
fn a_ledger_that_was_restored() {
    let left = Budget { looks: 1, wakes: 1, ends: 1, restores: 1, ..Budget::default() };
    explore("a restored ledger", State::new(cold(1), 1, left), 1_000);
}

#[test]
fn what_is_not_ours_stays() {
    let mut server = cold(1);
    let mut object = server.object(None);
    object.ours = false;
    let volume = Volume {
        object,
        key: None,
        incarnation: Incarnation::ZERO,
        floor: Generation::ZERO,
        opened_to: None,
    };
    server.world(&slot(0)).volume = Some(volume);
    let left = Budget { looks: 1, wakes: 1, ends: 1, failures: 1, ..Budget::default() };
    explore("a foreign volume of the slot's name", State::new(server, 1, left), 10);
}
