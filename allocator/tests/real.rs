//! The same against the real supervisor: workers in their own namespaces, a real clone, evidence from a real Git.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails there")]

mod house;

use std::path::{Path, PathBuf};
use std::process::Command;

use casemate_protocol::api::{Allocate, ErrorKind, Phase, SessionView};
use casemate_protocol::end::EndReason;
use casemate_protocol::worker::{StartError, WorkerStatus};
use house::{House, alive, eventually, request, supervisor, workers_of};

fn git(dir: &Path, arguments: &[&str]) {
    let identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"];
    let done = Command::new("git").arg("-C").arg(dir).args(identity).args(arguments).output();
    let done = done.expect("git");
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A repository of one commit that every user of this machine can read.
fn repository(house: &House) -> String {
    let dir = house.dir.path().join("repository");
    std::fs::create_dir(&dir).unwrap();
    git(&dir, &["init", "-q", "-b", "main"]);
    std::fs::write(dir.join("README"), "hello\n").unwrap();
    git(&dir, &["add", "."]);
    git(&dir, &["commit", "-q", "-m", "first"]);
    house::chmod(house.dir.path(), 0o755);
    dir.to_str().unwrap().to_owned()
}

fn with_repository(house: &House, id: &str, thread: &str) -> Allocate {
    let mut body = request(id, thread, "");
    body.intent.env.clear();
    let dir = house.dir.path().join("repository");
    body.intent.repository =
        Some(if dir.exists() { dir.to_str().unwrap().into() } else { repository(house) });
    body
}

fn work(view: &SessionView) -> PathBuf {
    view.worker.clone().unwrap().worktree
}

/// Leaves a file in the worktree as its owner would.
fn scribble(work: &Path) {
    use std::os::unix::fs::MetadataExt as _;
    let file = work.join("note");
    std::fs::write(&file, "unsaved\n").unwrap();
    let owner = work.metadata().unwrap();
    std::os::unix::fs::chown(&file, Some(owner.uid()), Some(owner.gid())).unwrap();
}

#[test]
fn in_tier_namespace_a_session_lives_through_restarts_and_ends_by_its_evidence() {
    a_session_lives(House::in_tier(supervisor(), "namespace"));
}

#[test]
fn in_tier_domain_a_session_lives_through_restarts_and_ends_by_its_evidence() {
    a_session_lives(House::in_tier(supervisor(), "domain"));
}

fn a_session_lives(mut house: House) {
    let body = with_repository(&house, "r1", "a");
    let first = house.allocate(&body).unwrap();
    assert_eq!(std::fs::read_to_string(work(&first.session).join("README")).unwrap(), "hello\n");
    // The token opens this worker; its own report is the record's.
    let token = format!("Bearer {}", first.token);
    let host = first.address.to_string();
    let headers = [("host", host.as_str()), ("authorization", token.as_str())];
    let (code, text) = house::http(first.address, "GET", "/v1/status", &headers, "").unwrap();
    assert_eq!(code, 200, "{text}");
    let status: WorkerStatus = serde_json::from_str(&text).unwrap();
    assert_eq!(status.boot, first.session.worker.clone().unwrap().boot);
    assert_eq!(house::http(first.address, "GET", "/v1/status", &[headers[0]], "").unwrap().0, 401);

    house.kill_up();
    assert!(alive(first.session.worker.clone().unwrap().pid));
    house.up();
    let again = house.allocate(&body).unwrap();
    assert_eq!((again.address, again.session.generation.0), (first.address, 1));

    house.stop(&first.session.id, false).unwrap();
    assert!(workers_of(&house.slot(&first.session)).is_empty());
    // The token of generation 1 opens nothing any more.
    let second = house.resume(&first.session.id).unwrap();
    assert_eq!(second.session.generation.0, 2);
    let stale = [("host", "localhost"), headers[1]];
    assert_eq!(house::http(second.address, "GET", "/v1/status", &stale, "").unwrap().0, 401);

    scribble(&work(&second.session));
    let view = house.close(&first.session.id, false, false).unwrap();
    let evidence = view.last_end.unwrap().evidence.expect("a real Git looked");
    assert_eq!((evidence.dirty, evidence.unpushed), (1, 0));
    assert!(house.slot(&first.session).exists());
    house.close(&first.session.id, true, false).unwrap();
    assert!(house.slots().is_empty());

    let clean = house.allocate(&with_repository(&house, "r2", "a")).unwrap();
    assert_eq!(clean.session.incarnation.0, 2);
    house.close(&clean.session.id, false, false).unwrap();
    assert!(house.slots().is_empty(), "a clean worktree was kept");
}

#[test]
fn two_sessions_share_neither_slot_nor_ports_nor_user() {
    use std::os::unix::fs::MetadataExt as _;
    let house = House::started(supervisor());
    let a = house.allocate(&with_repository(&house, "r1", "a")).unwrap().session;
    let b = house.allocate(&with_repository(&house, "r2", "b")).unwrap().session;
    assert_ne!(a.slot, b.slot);
    let owner = |view: &SessionView| work(view).metadata().unwrap().uid();
    let root = nix::unistd::geteuid().is_root();
    assert_eq!(owner(&a) != owner(&b), root);
    assert_eq!(owner(&a) == 1_900_000_000, root);
}

#[test]
fn a_killed_launcher_takes_its_namespace_along() {
    let house = House::started(supervisor());
    let first = house.allocate(&with_repository(&house, "r1", "a")).unwrap();
    let slot = house.slot(&first.session);
    assert!(!workers_of(&slot).is_empty());
    house::signal(first.session.worker.clone().unwrap().pid, "KILL");
    let view = eventually("asleep", || {
        let view = house.show(&first.session.id).unwrap();
        (view.phase == Phase::Asleep).then_some(view)
    });
    assert!(workers_of(&slot).is_empty(), "something of the worker lives on");
    let end = view.last_end.unwrap();
    assert_eq!(end.reason, EndReason::Failed);
    assert!(end.detail.contains("signal: 9"), "{}", end.detail);
    assert_eq!(house.resume(&view.id).unwrap().session.generation.0, 2);
}

#[test]
fn an_unreachable_remote_leaves_nothing() {
    let house = House::started(supervisor());
    let mut body = request("r1", "a", "");
    body.intent.repository = Some("http://127.0.0.1:1/nothing.git".into());
    let error = house.allocate(&body).unwrap_err();
    assert_eq!(error.kind, ErrorKind::WorkerFailed, "{error}");
    assert!(matches!(error.start, Some(StartError::Repository { .. })), "{error:?}");
    assert!(house.list().is_empty() && house.slots().is_empty());
}

#[test]
fn an_idle_session_stops_by_the_real_clock() {
    let house = House::started(supervisor());
    house.profile("short", "idle_ttl = '1s'\n");
    let mut body = with_repository(&house, "r1", "a");
    body.intent.profile = "short".into();
    let first = house.allocate(&body).unwrap();
    let view = eventually("ended", || {
        let view = house.show(&first.session.id).unwrap();
        (view.phase == Phase::Ended).then_some(view)
    });
    // Never prompted, nobody connected, and the evidence says clean.
    assert_eq!(view.last_end.unwrap().reason, EndReason::Unused);
    eventually("deleted", || house.slots().is_empty().then_some(()));
}
