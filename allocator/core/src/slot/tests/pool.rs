//! The pool: filled to its size by one revision, whatever was there.

use casemate_protocol::ids::Generation;
use casemate_protocol::ids::Incarnation;
use proptest::prelude::*;

use super::explore::session;
use super::server::{Server, slot};
use crate::slot::pool::{Pool, Spare, Wanted, decide, drain};
use crate::slot::sweep::sweep;
use crate::slot::{Action, Anchor, Cause, Pod, PodState, Volume, WorkerSeen, World};

const PATIENCE: u64 = 60;

fn object() -> crate::slot::Object {
    Server::default().object(None)
}

fn world(state: Option<PodState>, terminating: bool) -> World {
    let pod = state.map(|state| Pod {
        object: crate::slot::Object { terminating, ..object() },
        claim: None,
        state,
    });
    World { pod, ..World::default() }
}

fn states() -> impl Strategy<Value = Option<PodState>> {
    prop::sample::select(vec![
        None,
        Some(PodState::Pending(String::new())),
        Some(PodState::Running(WorkerSeen::Silent)),
        Some(PodState::Running(WorkerSeen::Unbound)),
        Some(PodState::Ended(Cause::OutOfMemory)),
        Some(PodState::Unknown),
    ])
}

fn spares() -> impl Strategy<Value = Vec<Spare>> {
    let spare = (states(), prop::bool::weighted(0.1), 1..3_i64, 0..100_u64);
    prop::collection::vec(spare, 0..8).prop_map(|all| {
        let spare = |(number, (state, ends, revision, watched))| Spare {
            name: slot(u32::try_from(number).expect("few")),
            revision,
            world: world(state, ends),
            watched,
        };
        all.into_iter().enumerate().map(spare).collect()
    })
}

proptest! {
    #[test]
    fn it_comes_to_its_size_of_one_revision(mut there in spares(), size in 0..5_usize) {
        let wanted = Wanted { size, revision: 2 };
        let good = |spare: &Spare| {
            let waits = |pod: &Pod| pod.state == PodState::Running(WorkerSeen::Unbound);
            spare.revision == 2
                && spare.world.pod.as_ref().is_some_and(|pod| waits(pod) && !pod.object.terminating)
        };
        let kept = there.iter().filter(|spare| good(spare)).count().min(size);
        let mut steps = 0;
        while let Some(step) = decide(wanted, &there, PATIENCE) {
            steps += 1;
            prop_assert!(steps < 40, "it goes round in circles");
            match step {
                Pool::Drain(name) => {
                    let at = there.iter().position(|spare| spare.name == name).expect("one of them");
                    let spent = !good(&there[at]);
                    prop_assert!(spent || there.len() > size, "a good one goes for nothing");
                    there.remove(at);
                }
                Pool::Fill(more) => {
                    prop_assert_eq!(there.len() + more, size);
                    for number in 0..more {
                        let state = Some(PodState::Running(WorkerSeen::Unbound));
                        let name = slot(40 + u32::try_from(number).expect("few"));
                        there.push(Spare { name, revision: 2, world: world(state, false), watched: 0 });
                    }
                }
            }
        }
        prop_assert_eq!(there.len(), size);
        prop_assert!(there.iter().filter(|spare| good(spare)).count() >= kept);
    }

    #[test]
    fn neither_drain_nor_sweep_deletes_what_is_another_s(
        pod in prop::option::of((states(), any::<bool>(), any::<bool>())),
        anchor in prop::option::of((any::<bool>(), any::<bool>())),
        volume in prop::option::of((any::<bool>(), any::<bool>(), 0..2_u64)),
    ) {
        let claim = |claimed: bool| claimed.then(|| session(0).claim());
        let marked = |ours: bool| crate::slot::Object { ours, ..object() };
        let seen = World {
            pod: pod.and_then(|(state, ours, claimed)| {
                Some(Pod { object: marked(ours), claim: claim(claimed), state: state? })
            }),
            anchor: anchor.map(|(ours, claimed)| Anchor { object: marked(ours), claim: claim(claimed) }),
            volume: volume.map(|(ours, claimed, floor)| Volume {
                object: marked(ours),
                key: claimed.then(|| "k0".to_owned()),
                incarnation: Incarnation(u64::from(claimed)),
                floor: Generation(floor),
                opened_to: None,
            }),
            ..World::default()
        };
        for (claimed, action) in [(false, drain(&seen)), (true, sweep(&seen))] {
            let Some(action) = action else { continue };
            prop_assert_eq!(seen.is_claimed(), claimed);
            match action {
                Action::Wait(_) => {}
                Action::DeletePod(..) => {
                    let pod = seen.pod.as_ref().expect("there");
                    prop_assert!(pod.object.ours && pod.state != PodState::Unknown);
                }
                Action::DeleteAnchor(..) => {
                    let anchor = seen.anchor.as_ref().expect("there");
                    prop_assert!(seen.pod.is_none() && anchor.object.ours);
                }
                Action::DeleteVolume(..) => {
                    let volume = seen.volume.as_ref().expect("there");
                    prop_assert!(seen.pod.is_none() && seen.anchor.is_none() && volume.object.ours);
                    prop_assert_eq!(volume.floor, Generation::ZERO);
                }
                other => prop_assert!(false, "not theirs: {other:?}"),
            }
        }
    }
}
