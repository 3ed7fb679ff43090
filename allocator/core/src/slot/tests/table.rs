//! The table of ends against what the decisions do.

use std::rc::Rc;

use casemate_protocol::api::Phase;
use casemate_protocol::end::EndReason;
use casemate_protocol::ids::Generation;
use casemate_protocol::worker::{Activity, AgentState};

use super::explore::{session, undisturbed};
use super::server::{Server, Stored, slot};
use super::steps::{Budget, State};
use crate::end::{EndDecision, Ending, end};
use crate::ends::{Compute, TABLE, VolumeEnd, as_table};
use crate::slot::{Cause, PodState, Session, WorkerSeen};
use crate::tick::{Observation, Tick, tick};

#[test]
fn operators_read_this_table() {
    let documented = include_str!("../../../../../docs/operators.md");
    assert!(documented.contains(&as_table()), "docs/operators.md lacks:\n{}", as_table());
}

/// A session that serves, from a cold start.
fn serving() -> State {
    let stored =
        Stored { session: Rc::new(session(0)), version: 1, entered: Generation::ZERO, bound: None };
    let server = Server { sessions: vec![stored], ..Server::default() };
    let state = undisturbed(State::new(server, 0, Budget::default()));
    assert_eq!(now(&state).phase, Phase::Active);
    state
}

fn now(state: &State) -> &Session {
    &state.server.sessions[0].session
}

fn change(state: &mut State, change: impl FnOnce(Session) -> Session) {
    let stored = &mut state.server.sessions[0];
    stored.session = Rc::new(change((*stored.session).clone()));
    stored.version += 1;
}

fn busy(state: &mut State) {
    let pod = state.server.world(&slot(0)).pod.as_mut().expect("it serves");
    let PodState::Running(WorkerSeen::Serving { busy, .. }) = &mut pod.state else {
        panic!("{pod:?}")
    };
    *busy = true;
}

fn pod_there(state: &State) -> bool {
    state.server.slots[&slot(0)].pod.is_some()
}

fn volume_there(state: &State) -> bool {
    state.server.slots[&slot(0)].volume.is_some()
}

#[test]
fn what_the_table_says_happens() {
    for row in TABLE {
        let reason = row.reason;
        let force = row.compute == Compute::Stops;
        let close = row.ends_incarnation;
        let ending = Ending { reason, close, discard: false, force, evidence: None };
        let mut state = serving();
        match row.compute {
            Compute::Refused => {
                assert_eq!(end(now(&state), &ending), EndDecision::Invalid);
                continue;
            }
            Compute::Stays => {
                assert_eq!(end(now(&state), &ending), EndDecision::Nothing);
                continue;
            }
            Compute::None => {
                change(&mut state, |session| {
                    session.stopping(Ending {
                        reason: EndReason::Idle,
                        close: false,
                        ..ending.clone()
                    })
                });
                state = undisturbed(state);
                assert_eq!(end(now(&state), &ending), EndDecision::Conclude);
                change(&mut state, |session| session.close_asleep(ending, 0));
            }
            Compute::Gone => {
                let pod = state.server.world(&slot(0)).pod.as_mut().expect("it serves");
                pod.state = PodState::Ended(Cause::OutOfMemory);
            }
            Compute::StopsIdle | Compute::Stops => {
                assert_eq!(end(now(&state), &ending), EndDecision::Stop);
                let mut turn = serving();
                busy(&mut turn);
                turn.server.forced = force;
                change(&mut turn, |session| session.stopping(ending.clone()));
                let turn = undisturbed(turn);
                assert_eq!(pod_there(&turn), !force, "{reason:?} with a turn");
                change(&mut state, |session| session.stopping(ending));
            }
        }
        let state = undisturbed(state);
        assert!(!pod_there(&state), "{reason:?}");
        assert_eq!(volume_there(&state), row.volume == VolumeEnd::Kept, "{reason:?}");
        let phase = if row.ends_incarnation { Phase::Ended } else { Phase::Asleep };
        assert_eq!(now(&state).phase, phase, "{reason:?}");
    }
}

#[test]
fn a_lost_worker_is_looked_into_before_a_close_judges() {
    let close = |discard| Ending {
        reason: EndReason::Close,
        close: true,
        discard,
        force: false,
        evidence: None,
    };
    for (unpushed, kept) in [(true, true), (false, false)] {
        let mut state = serving();
        state.server.disks.get_mut(&slot(0)).expect("it serves").unpushed = unpushed;
        state.server.world(&slot(0)).pod.as_mut().expect("it serves").state =
            PodState::Ended(Cause::NodeLost);
        let mut state = undisturbed(state);
        let generation = now(&state).generation;
        change(&mut state, |session| session.close_asleep(close(false), 0));
        assert_eq!(now(&state).phase, Phase::Starting);
        let state = undisturbed(state);
        assert_eq!((now(&state).phase, volume_there(&state)), (Phase::Ended, kept));
        let evidence = now(&state).last_end.as_ref().and_then(|end| end.evidence.clone());
        assert_eq!(evidence.map(|found| found.is_clean()), Some(!unpushed));
        assert!(now(&state).generation > generation, "a look is a worker of its own");
        assert_eq!(state.server.sessions[0].entered, Generation(1), "a client was let in");
    }
}

#[test]
fn idleness_means_the_same_in_a_slot() {
    let mut state = serving();
    let seen = |for_ms, used| Observation {
        activity: Activity::Idle { for_ms },
        agent: AgentState::NotStarted,
        attachments: 0,
        used,
    };
    assert_eq!(tick(now(&state), &seen(999, true)), Tick::Nothing);
    assert!(matches!(tick(now(&state), &seen(1000, true)), Tick::Stop(EndReason::Idle, _)));
    assert!(matches!(tick(now(&state), &seen(1000, false)), Tick::Close(EndReason::Unused, _)));
    change(&mut state, |session| Session { used: true, ..session });
    assert!(matches!(tick(now(&state), &seen(1000, false)), Tick::Stop(EndReason::Idle, _)));
}
