//! Sessions from allocate to close, over HTTP, against the stand-in worker: it can be idle, busy and dirty on cue, which
//! the real one can only be with an agent.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails there")]

mod house;

use std::path::{Path, PathBuf};

use casemate_protocol::api::{End, ErrorKind, Phase};
use casemate_protocol::end::EndReason;
use casemate_protocol::worker::StartError;
use house::{House, alive, eventually, request, scripted, workers_of};

/// Every file below a directory that holds these bytes.
fn holding(directory: &Path, bytes: &[u8]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            found.extend(holding(&path, bytes));
        } else if std::fs::read(&path)
            .is_ok_and(|text| text.windows(bytes.len()).any(|window| window == bytes))
        {
            found.push(path);
        }
    }
    found
}

#[test]
fn nothing_is_left_of_the_values_that_a_deleted_session_was_handed() {
    const CANARY: &str = "canary-7f3a91c2-secret";
    let mut house = House::started(scripted());
    let mut asked = request("r1", "t", "serve");
    asked.intent.env.insert("API_KEY".into(), CANARY.into());
    let session = house.allocate(&asked).unwrap().session;
    let values = house.home().join("values").join(session.id.as_str());
    assert_eq!(holding(&house.home(), CANARY.as_bytes()), [values]);
    assert_eq!(session.intent.env["API_KEY"], "");
    // They are there for the next worker, and for the next allocator.
    house.stop(&session.id, false).unwrap();
    house.term_up();
    house.up();
    house.resume(&session.id).unwrap();
    house.close(&session.id, true, false).unwrap();
    assert_eq!(holding(&house.home(), CANARY.as_bytes()), Vec::<PathBuf>::new());
    assert!(house.show(&session.id).unwrap().intent.env.contains_key("API_KEY"));
    house.term_up();
    assert_eq!(holding(&house.home(), CANARY.as_bytes()), Vec::<PathBuf>::new());
}

#[test]
fn a_policy_that_lets_an_agent_bind_a_port_of_casemates_is_refused() {
    let house = House::started(scripted());
    for (port, fits) in [(19_999, true), (20_000, false), (21_008, false), (31_999, false)] {
        let policy = house.dir.path().join("policy.toml");
        let rule = format!("\n[[tcp]]\nbind = [{port}]\nreason = \"r\"\n");
        std::fs::write(&policy, format!("{}{rule}", casemate_protocol::policy::DEVELOPER)).unwrap();
        house.profile("p", &format!("policy = '{}'\n", policy.display()));
        let mut asked = request(&format!("r{port}"), &format!("t{port}"), "serve");
        asked.intent.profile = "p".into();
        match house.allocate(&asked) {
            Ok(_) => assert!(fits, "{port}"),
            Err(error) => {
                assert!(!fits && error.message.contains(&port.to_string()), "{port}: {error}");
            }
        }
    }
}

/// A session that could write its profile's policy would choose the walls of the next.
#[test]
fn a_policy_that_a_session_could_write_is_refused() {
    let house = House::started(scripted());
    let (root, home) = (house.dir.path().to_owned(), house.home());
    let slot = home.join("slots/some/sessions/one/work");
    for directory in [&slot, &root.join("shared/deep"), &root.join("kept")] {
        std::fs::create_dir_all(directory).unwrap();
    }
    std::os::unix::fs::symlink(&slot, root.join("link")).unwrap();
    std::os::unix::fs::symlink(root.join("kept"), root.join("shared/out")).unwrap();
    let shared = root.join("shared");
    let rule = format!(
        "\n[[path]]\npath = \"{}\"\naccess = [\"read\", \"write\"]\nreason = \"r\"\n",
        shared.display()
    );
    for (index, (place, fits)) in [
        (slot, false),
        (root.join("link"), false),
        (shared.join("deep"), false),
        (shared.join("out"), false),
        (root.join("kept"), true),
    ]
    .into_iter()
    .enumerate()
    {
        let policy = place.join("policy.toml");
        std::fs::write(&policy, format!("{}{rule}", casemate_protocol::policy::DEVELOPER)).unwrap();
        house.profile("p", &format!("policy = '{}'\n", policy.display()));
        let mut asked = request(&format!("r{index}"), &format!("t{index}"), "serve");
        asked.intent.profile = "p".into();
        match house.allocate(&asked) {
            Ok(_) => assert!(fits, "{}", place.display()),
            Err(error) => {
                assert!(!fits && error.message.contains("a session may write"), "{error}");
                assert!(matches!(error.start, Some(StartError::Policy { .. })), "{error:?}");
            }
        }
    }
}

/// Nor may another profile's policy: its sessions would choose the walls of these.
#[test]
fn a_policy_that_a_session_of_another_profile_could_write_is_refused() {
    let house = House::started(scripted());
    let root = house.dir.path().to_owned();
    let shared = root.join("shared");
    std::fs::create_dir(&shared).unwrap();
    let developer = casemate_protocol::policy::DEVELOPER;
    let policy = shared.join("plain.toml");
    std::fs::write(&policy, developer).unwrap();
    house.profile("plain", &format!("policy = '{}'\n", policy.display()));
    let ask = |id: &str| {
        let mut asked = request(id, id, "serve");
        asked.intent.profile = "plain".into();
        house.allocate(&asked)
    };
    ask("before").unwrap();
    let rule = format!(
        "\n[[path]]\npath = \"{}\"\naccess = [\"read\", \"write\"]\nreason = \"r\"\n",
        shared.display()
    );
    std::fs::write(root.join("granting.toml"), format!("{developer}{rule}")).unwrap();
    house.profile("granting", &format!("policy = '{}'\n", root.join("granting.toml").display()));
    let error = ask("after").unwrap_err();
    assert!(error.message.contains("as profile `granting` has it"), "{error}");
    assert!(matches!(error.start, Some(StartError::Policy { .. })), "{error:?}");
}

#[test]
fn a_policy_that_names_hosts_is_refused_while_nothing_enforces_them() {
    let house = House::started(scripted());
    let policy = house.dir.path().join("policy.toml");
    let open = casemate_protocol::policy::DEVELOPER;
    for (mode, fits) in [("open", true), ("allow-list", false)] {
        let text = open.replace("mode = \"open\"", &format!("mode = \"{mode}\""));
        std::fs::write(&policy, text).unwrap();
        house.profile("p", &format!("policy = '{}'\n", policy.display()));
        let mut asked = request(&format!("r{mode}"), &format!("t{mode}"), "serve");
        asked.intent.profile = "p".into();
        match house.allocate(&asked) {
            Ok(_) => assert!(fits, "{mode}"),
            Err(error) => {
                assert!(!fits && error.message.contains("not enforced by this build"), "{error}");
            }
        }
    }
}

#[test]
fn the_same_request_gets_the_same_session_and_another_body_is_a_conflict() {
    let house = House::started(scripted());
    let body = request("r1", "t", "serve");
    let first = house.allocate(&body).unwrap();
    assert!(first.created);
    let again = house.allocate(&body).unwrap();
    assert_eq!(again.session.id, first.session.id);
    assert_eq!((again.created, again.address), (true, first.address));
    // Another request for the same key attaches.
    let other = house.allocate(&request("r2", "t", "serve")).unwrap();
    assert_eq!((other.session.id.clone(), other.created), (first.session.id.clone(), false));
    let error = house.allocate(&request("r1", "t", "fail")).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict);
    // Another key is another session, slot and port range.
    let second = house.allocate(&request("r3", "u", "serve")).unwrap();
    assert_ne!(second.session.slot, first.session.slot);
    assert_eq!(house.list().len(), 2);
}

#[test]
fn fifty_callers_at_once_share_one_worker() {
    let house = House::started(scripted());
    let slots: Vec<_> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..50)
            .map(|n| {
                let house = &house;
                scope.spawn(move || {
                    house.allocate(&request(&format!("r{n}"), "t", "serve")).unwrap()
                })
            })
            .collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    assert!(slots.iter().all(|attached| attached.address == slots[0].address));
    assert_eq!(slots.iter().filter(|attached| attached.created).count(), 1);
    assert_eq!(house.slots().len(), 1);
    assert_eq!(workers_of(&house.slots()[0]).len(), 1);
}

#[test]
fn fifty_callers_at_once_share_one_failure() {
    let house = House::started(scripted());
    std::thread::scope(|scope| {
        for n in 0..50 {
            let house = &house;
            scope.spawn(move || {
                let error = house.allocate(&request(&format!("r{n}"), "t", "fail")).unwrap_err();
                assert_eq!(error.kind, ErrorKind::WorkerFailed);
            });
        }
    });
    assert!(house.list().is_empty() && house.slots().is_empty());
}

#[test]
fn a_failed_start_leaves_nothing_behind() {
    let house = House::started(scripted());
    let error = house.allocate(&request("r1", "t", "fail")).unwrap_err();
    assert_eq!(error.kind, ErrorKind::WorkerFailed);
    assert!(matches!(error.start, Some(StartError::Repository { .. })));
    for script in ["die", "garble"] {
        let error = house.allocate(&request(script, "t", script)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::WorkerFailed, "{error}");
    }
    assert!(house.list().is_empty(), "{:?}", house.list());
    assert!(house.slots().is_empty());
    // The request id is free again: its call has answered for nothing.
    assert!(house.allocate(&request("r1", "t", "serve")).unwrap().created);
}

#[test]
fn a_dead_worker_is_told_and_replaced_in_the_next_generation() {
    let house = House::started(scripted());
    let first = house.allocate(&request("r1", "t", "serve")).unwrap();
    let worker = first.session.worker.clone().unwrap();
    house::signal(worker.pid, "KILL");
    let view = eventually("asleep", || {
        let view = house.show(&first.session.id).unwrap();
        (view.phase == Phase::Asleep).then_some(view)
    });
    let end = view.last_end.unwrap();
    assert_eq!(end.reason, EndReason::Failed);
    assert!(end.detail.contains("signal: 9"), "{}", end.detail);
    assert!(end.detail.contains("scripted worker, generation 1"), "{}", end.detail);
    let second = house.resume(&first.session.id).unwrap();
    assert_eq!(second.session.generation.0, 2);
    assert!(!second.created);
    assert_ne!(second.session.worker.unwrap().boot, worker.boot);
}

#[test]
fn nobody_is_sent_to_a_worker_that_died_this_instant() {
    let house = House::started(scripted());
    let first = house.allocate(&request("r1", "t", "serve")).unwrap();
    for generation in 2..6 {
        let pid = house.show(&first.session.id).unwrap().worker.unwrap().pid;
        house::signal(pid, "KILL");
        let next = house.allocate(&request(&format!("r{generation}"), "t", "serve")).unwrap();
        assert_eq!(next.session.generation.0, generation);
    }
}

#[test]
fn idleness_by_the_workers_own_clock_stops_it_and_the_next_message_wakes_it() {
    let house = House::started(scripted());
    house.profile("short", "idle_ttl = '10m'\n");
    let mut body = request("r1", "t", "serve");
    body.intent.profile = "short".into();
    let first = house.allocate(&body).unwrap();
    house.cue(&first.session, r#"{"prompted": true, "idle_ms": 120000, "attachments": 1}"#);
    let view = eventually("looked at", || {
        let view = house.show(&first.session.id).unwrap();
        view.next.clone().filter(|next| next.after_idle_seconds == 480).map(|_| view)
    });
    assert_eq!((view.phase, view.next.unwrap().action.as_str()), (Phase::Active, "stop"));
    house.cue(&first.session, r#"{"prompted": true, "idle_ms": 600000, "attachments": 1}"#);
    let view = eventually("asleep", || {
        let view = house.show(&first.session.id).unwrap();
        (view.phase == Phase::Asleep).then_some(view)
    });
    assert_eq!(view.last_end.unwrap().reason, EndReason::Idle);
    assert!(!alive(first.session.worker.clone().unwrap().pid));
    house.cue(&first.session, r#"{"prompted": true}"#);
    let again = house.allocate(&request("r2", "t", "serve")).unwrap();
    assert_eq!((again.session.id, again.session.generation.0), (first.session.id, 2));
}

#[test]
fn a_busy_worker_is_not_idle_and_not_stopped_without_force() {
    let house = House::started(scripted());
    let first = house.allocate(&request("r1", "t", "serve")).unwrap();
    house.cue(&first.session, r#"{"busy": true, "idle_ms": 99999999}"#);
    std::thread::sleep(std::time::Duration::from_millis(5500));
    let error = house.stop(&first.session.id, false).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Busy);
    assert_eq!(house.show(&first.session.id).unwrap().phase, Phase::Active);
    let view = house.stop(&first.session.id, true).unwrap();
    assert_eq!(view.phase, Phase::Asleep);
    // Not known what the worktree holds: kept even where the profile deletes.
    let view = house.close(&first.session.id, false, false).unwrap();
    assert_eq!(view.phase, Phase::Ended);
    assert!(house.slot(&view).exists());
}

#[test]
fn an_unused_session_goes_with_its_directory() {
    let house = House::started(scripted());
    let first = house.allocate(&request("r1", "t", "serve")).unwrap();
    house.cue(&first.session, r#"{"idle_ms": 99999999}"#);
    let view = eventually("ended", || {
        let view = house.show(&first.session.id).unwrap();
        (view.phase == Phase::Ended).then_some(view)
    });
    assert_eq!(view.last_end.unwrap().reason, EndReason::Unused);
    eventually("deleted", || house.slots().is_empty().then_some(()));
    let next = house.allocate(&request("r2", "t", "serve")).unwrap();
    assert_eq!(next.session.incarnation.0, 2);
}

#[test]
fn a_session_that_only_ran_commands_was_used_and_sleeps() {
    let house = House::started(scripted());
    let first = house.allocate(&request("r1", "t", "serve")).unwrap();
    house.cue(&first.session, r#"{"commanded": true, "idle_ms": 99999999}"#);
    let asleep = |generation: u64| {
        eventually("over", || {
            let view = house.show(&first.session.id).unwrap();
            let over = view.worker.is_none() && view.generation.0 == generation;
            over.then_some((view.phase, view.last_end?.reason))
        })
    };
    assert_eq!(asleep(1), (Phase::Asleep, EndReason::Idle));
    // A later generation in which none ran takes nothing back.
    house.cue(&first.session, r#"{"idle_ms": 99999999}"#);
    assert_eq!(house.resume(&first.session.id).unwrap().session.id, first.session.id);
    assert_eq!(asleep(2), (Phase::Asleep, EndReason::Idle));
}

#[test]
fn an_agent_that_ended_is_replaced() {
    let house = House::started(scripted());
    let first = house.allocate(&request("r1", "t", "serve")).unwrap();
    house.cue(&first.session, r#"{"exited": true}"#);
    let error = house.allocate(&request("r2", "t", "serve"));
    // The cue stays, so that each new worker's agent ends too: bounded, and said.
    let error = error.unwrap_err();
    assert_eq!(error.kind, ErrorKind::WorkerFailed, "{error}");
    house.cue(&first.session, "{}");
    assert!(house.allocate(&request("r3", "t", "serve")).is_ok());
}

#[test]
fn close_keeps_unpushed_work_until_it_is_discarded() {
    let house = House::started(scripted());
    let dirty = house.allocate(&request("r1", "t", "serve")).unwrap();
    house.cue(
        &dirty.session,
        r#"{"prompted": true, "evidence": {"dirty":0,"unpushed":2,"stashes":0}}"#,
    );
    let view = house.close(&dirty.session.id, false, false).unwrap();
    assert_eq!(view.phase, Phase::Ended);
    assert_eq!(view.last_end.unwrap().evidence.unwrap().unpushed, 2);
    assert!(house.slot(&dirty.session).exists());
    assert!(!alive(dirty.session.worker.clone().unwrap().pid));
    assert_eq!(house.resume(&dirty.session.id).unwrap_err().kind, ErrorKind::Conflict);
    // A retry of the old request opens nothing; a new one opens the next incarnation beside the kept storage.
    let retry = house.allocate(&request("r1", "t", "serve")).unwrap_err();
    assert_eq!(retry.kind, ErrorKind::Conflict);
    let next = house.allocate(&request("r2", "t", "serve")).unwrap();
    assert_eq!((next.created, next.session.incarnation.0), (true, 2));
    assert_ne!(next.session.id, dirty.session.id);
    house.close(&dirty.session.id, true, false).unwrap();
    assert!(!house.slot(&dirty.session).exists());

    // Nothing unpushed: the default profile deletes, another keeps.
    house.cue(&next.session, r#"{"prompted": true}"#);
    house.close(&next.session.id, false, false).unwrap();
    assert!(!house.slot(&next.session).exists());
    house.profile("keeper", "close = { retain = '7d' }\n");
    let mut body = request("r3", "t", "serve");
    body.intent.profile = "keeper".into();
    let kept = house.allocate(&body).unwrap();
    let view = house.close(&kept.session.id, false, false).unwrap();
    assert!(house.slot(&kept.session).exists());
    assert_eq!(view.next.unwrap().after_idle_seconds, 7 * 86_400);
}

/// Between a look and a close somebody may come back.
#[test]
fn a_close_of_one_generation_ends_no_later_one() {
    let house = House::started(scripted());
    let first = house.allocate(&request("r1", "t", "serve")).unwrap().session;
    house.stop(&first.id, false).unwrap();
    let woken = house.resume(&first.id).unwrap().session;
    let close = |generation| {
        let end = End { discard: true, generation: Some(generation), ..End::by(EndReason::Close) };
        house.end(&first.id, "close", &end)
    };
    let refused = close(first.generation).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Conflict, "{refused}");
    assert!(alive(woken.worker.unwrap().pid));
    assert_eq!(close(woken.generation).unwrap().phase, Phase::Ended);
}

#[test]
fn a_start_can_be_cut_short() {
    let house = House::started(scripted());
    std::thread::scope(|scope| {
        let start = scope.spawn(|| house.allocate(&request("r1", "t", "hang")));
        let id = eventually("starting", || house.list().first().map(|view| view.id.clone()));
        let slot = eventually("hanging", || {
            house.slots().into_iter().find(|slot| !workers_of(slot).is_empty())
        });
        let end = house.close(&id, true, true);
        assert!(end.is_err_and(|error| error.kind == ErrorKind::NotFound));
        assert_eq!(start.join().unwrap().unwrap_err().kind, ErrorKind::Conflict);
        assert!(workers_of(&slot).is_empty());
        assert!(house.list().is_empty() && house.slots().is_empty());
    });
}

#[test]
fn values_of_handed_variables_are_not_shown() {
    let house = House::started(scripted());
    let mut body = request("r1", "t", "serve");
    body.intent.env.insert("API_KEY".into(), "hunter2".into());
    let attached = house.allocate(&body).unwrap();
    assert!(attached.session.intent.env.contains_key("API_KEY"));
    let shown = serde_json::to_string(&(&attached, house.list())).unwrap();
    assert!(!shown.contains("hunter2") && !house.log().contains("hunter2"));
}

#[test]
fn reasons_must_fit_the_call() {
    let house = House::started(scripted());
    let first = house.allocate(&request("r1", "t", "serve")).unwrap();
    let end = |what, reason| house.end(&first.session.id, what, &End::by(reason));
    assert_eq!(end("stop", EndReason::Close).unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(end("stop", EndReason::Reset).unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(end("close", EndReason::Idle).unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(end("stop", EndReason::Detach).unwrap().phase, Phase::Active);
}
