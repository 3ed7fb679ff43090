//! The allocator is killed, workers are killed, in every gap that can be made wide enough from outside. Against the
//! stand-in worker: the real one cannot be told to hang while it starts, or to ignore a stop. The gaps that no test can
//! hold open are in the core's model.

mod house;

use std::time::Duration;

use casemate_protocol::api::Phase;
use casemate_protocol::end::EndReason;
use house::{House, alive, eventually, request, scripted, workers_of};

#[test]
fn workers_outlive_a_killed_allocator_and_are_found_again() {
    let mut house = House::started(scripted());
    let bodies = [request("r1", "a", "serve"), request("r2", "b", "serve")];
    let before: Vec<_> = bodies.iter().map(|body| house.allocate(body).unwrap()).collect();
    let token = house.endpoint().token;
    house.kill_up();
    house.up();
    assert_ne!(house.endpoint().token, token);
    for (body, before) in bodies.iter().zip(&before) {
        let after = house.allocate(body).unwrap();
        assert_eq!(
            (after.address, &after.session.generation),
            (before.address, &before.session.generation)
        );
        let (old, new) = (before.session.worker.clone().unwrap(), after.session.worker.unwrap());
        assert_eq!((old.boot, old.pid), (new.boot, new.pid));
        assert!(after.created, "the answer to the same request changed");
    }
    // An adopted worker is no child: its death is noticed and its stop proven all the same.
    let (first, second) = (&before[0].session, &before[1].session);
    house::signal(first.worker.clone().unwrap().pid, "KILL");
    eventually("asleep", || (house.show(&first.id).unwrap().phase == Phase::Asleep).then_some(()));
    house.stop(&second.id, false).unwrap();
    assert!(!alive(second.worker.clone().unwrap().pid));
    assert_eq!(house.resume(&second.id).unwrap().session.generation.0, 2);
}

#[test]
fn a_terminated_allocator_leaves_in_order() {
    let mut house = House::started(scripted());
    let attached = house.allocate(&request("r1", "a", "serve")).unwrap();
    assert!(house.term_up().success());
    assert!(!house.home().join("run/allocator.json").exists());
    assert!(alive(attached.session.worker.unwrap().pid));
    house.up();
    assert_eq!(house.allocate(&request("r1", "a", "serve")).unwrap().address, attached.address);
}

#[test]
fn a_start_that_was_cut_off_leaves_nothing() {
    let mut house = House::started(scripted());
    let slot = std::thread::scope(|scope| {
        // Cut off with the allocator.
        let endpoint = house.endpoint();
        scope.spawn(move || {
            let body = serde_json::to_string(&request("r1", "a", "hang")).unwrap();
            let token = format!("Bearer {}", endpoint.token);
            let headers = [("host", "localhost"), ("authorization", token.as_str())];
            let _ = house::http(endpoint.address, "POST", "/v1/sessions", &headers, &body);
        });
        let slot = eventually("a worker hangs", || {
            house.slots().into_iter().find(|slot| !workers_of(slot).is_empty())
        });
        house.kill_up();
        slot
    });
    let worker = workers_of(&slot)[0];
    house.up();
    assert!(!alive(worker), "a worker that nobody knows");
    assert!(house.list().is_empty() && house.slots().is_empty());
    assert!(house.allocate(&request("r1", "a", "serve")).unwrap().created);
}

#[test]
fn a_resume_that_was_cut_off_leaves_the_session_asleep() {
    let mut house = House::started(scripted());
    let attached = house.allocate(&request("r1", "a", "serve")).unwrap();
    let id = attached.session.id.clone();
    let work = house.slot(&attached.session).join("sessions").join(id.as_str()).join("work/file");
    std::fs::write(&work, "work").unwrap();
    house.stop(&id, false).unwrap();
    // The allocator dies with the process of the new worker made and nothing told: the smallest gap from outside is
    // the whole start, so the start is tried until the kill falls into it.
    for _ in 0..10 {
        std::thread::scope(|scope| {
            let endpoint = house.endpoint();
            let path = format!("/v1/sessions/{id}/resume");
            scope.spawn(move || {
                let token = format!("Bearer {}", endpoint.token);
                let headers = [("host", "localhost"), ("authorization", token.as_str())];
                let _ = house::http(endpoint.address, "POST", &path, &headers, "");
            });
            std::thread::sleep(Duration::from_millis(12));
            house.kill_up();
        });
        house.up();
        let view = house.show(&id).unwrap();
        let workers = workers_of(&house.slot(&view));
        match view.phase {
            Phase::Active => {
                assert_eq!(workers, [view.worker.unwrap().pid]);
                house.stop(&id, false).unwrap();
            }
            Phase::Asleep => assert!(workers.is_empty(), "{workers:?}"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(std::fs::read_to_string(&work).unwrap(), "work");
    assert!(house.resume(&id).is_ok());
}

#[test]
fn a_worker_that_died_meanwhile_is_missed() {
    let mut house = House::started(scripted());
    let attached = house.allocate(&request("r1", "a", "serve")).unwrap();
    house.kill_up();
    house::signal(attached.session.worker.clone().unwrap().pid, "KILL");
    house.up();
    let view = house.show(&attached.session.id).unwrap();
    assert_eq!((view.phase, view.last_end.unwrap().reason), (Phase::Asleep, EndReason::Failed));
    let again = house.allocate(&request("r2", "a", "serve")).unwrap();
    assert_eq!((again.session.generation.0, again.created), (2, false));
}

#[test]
fn an_end_that_was_cut_off_is_carried_through_with_its_evidence() {
    let mut house = House::started(scripted());
    let attached = house.allocate(&request("r1", "a", "serve")).unwrap();
    let id = attached.session.id.clone();
    let dirty = r#""prompted": true, "evidence": {"dirty":1,"unpushed":0,"stashes":0}"#;
    house.cue(&attached.session, &format!(r#"{{"deaf": true, {dirty}}}"#));
    std::thread::scope(|scope| {
        let endpoint = house.endpoint();
        let path = format!("/v1/sessions/{id}/close");
        scope.spawn(move || {
            let token = format!("Bearer {}", endpoint.token);
            let headers = [("host", "localhost"), ("authorization", token.as_str())];
            let body = r#"{"reason": "close"}"#;
            let _ = house::http(endpoint.address, "POST", &path, &headers, body);
        });
        eventually("stopping", || {
            (house.show(&id).unwrap().phase == Phase::Stopping).then_some(())
        });
        std::thread::sleep(Duration::from_millis(300));
        house.kill_up();
    });
    // Clean now: what counts is what the worker says when the end is carried through.
    house.cue(&attached.session, &format!("{{{dirty}}}"));
    house.up();
    let view = house.show(&id).unwrap();
    assert_eq!(view.phase, Phase::Ended);
    assert_eq!(view.last_end.unwrap().evidence.unwrap().dirty, 1);
    assert!(house.slot(&attached.session).exists(), "unpushed work was deleted");
    assert!(!alive(attached.session.worker.unwrap().pid));
}

#[test]
fn a_worker_deaf_to_stop_is_ended_by_signal() {
    let house = House::started(scripted());
    house.profile("hasty", "grace = '1s'\n");
    let mut body = request("r1", "a", "serve");
    body.intent.profile = "hasty".into();
    let attached = house.allocate(&body).unwrap();
    house.cue(&attached.session, r#"{"deaf": true, "prompted": true}"#);
    let view = house.stop(&attached.session.id, false).unwrap();
    assert_eq!(view.phase, Phase::Asleep);
    assert!(!alive(attached.session.worker.unwrap().pid));
}

#[test]
fn a_recorded_worker_that_answers_as_another_one_is_not_adopted() {
    let mut house = House::started(scripted());
    let attached = house.allocate(&request("r1", "a", "serve")).unwrap();
    let pid = attached.session.worker.clone().unwrap().pid;
    house.kill_up();
    // Frozen: it lives, holds its lock, and does not answer. It must not be left to wake up beside a second one.
    house::signal(pid, "STOP");
    house.up();
    let view = house.show(&attached.session.id).unwrap();
    assert_eq!(view.phase, Phase::Asleep);
    assert!(!alive(pid));
    assert_eq!(house.resume(&view.id).unwrap().session.generation.0, 2);
}
