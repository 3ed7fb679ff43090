//! The porter of a worker of many sessions: it runs the errands that the supervisor's filter refuses, and nothing hangs on it but
//! the beginning of sessions.

use std::fs;
use std::net::TcpListener;

use casemate_protocol::sharing::SharedStatus;
use casemate_protocol::worker::{Repository, StartError, StartEvent};
use casemate_supervisor::probe::range::PREFIX;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::{Who, Worker, call, eventually, lives};
use crate::many::Many;
use crate::walls::filters;

/// Its process, which has no other child of the worker's name.
fn porter(worker: &Worker) -> i32 {
    let is_porter = |pid: &i32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.trim() == "casemate-porter"
    };
    worker.descendants().into_iter().find(is_porter).unwrap()
}

#[test]
fn the_supervisor_and_its_porter_wear_a_filter_each_and_the_status_says_so() {
    let many = Many::new(Who::Own);
    let (worker, address) = many.serve();
    let around = filters("self").0;
    for pid in std::iter::once(worker.pid().as_raw()).chain(worker.descendants()) {
        let (filters, name) = filters(&pid.to_string());
        let own = u32::from(name != "casemate-spawn");
        assert_eq!(filters, around + own, "{name}");
    }
    assert!(lives(porter(&worker)));
    let (_, status) = call(address, "GET", "/v1/status", Some(&many.own_token()), "");
    let status: SharedStatus = serde_json::from_str(&status).unwrap();
    for name in ["supervisor filter: ", "porter filter: "] {
        let says = |line: &String| line.starts_with(name);
        assert!(status.enforcement.iter().any(says), "{name}{:?}", status.enforcement);
    }
    worker.stop();
}

#[test]
fn names_are_looked_up_and_remotes_tried_by_the_porter() {
    let many = Many::new(Who::Own);
    let (worker, address) = many.serve();
    let tried = |host: &str, port: u16| {
        let mut asked = many.session();
        asked.repository = Some(Repository::Remote(format!("http://{host}:{port}/r.git")));
        match many.begin(address, &asked) {
            StartEvent::Failed { error: StartError::Repository { message } } => message,
            other => panic!("{other:?}\n{}", worker.log()),
        }
    };
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    // Whoever answers is no Git server: the name was found, the connection made, and git is who complains.
    let listening = std::thread::spawn(move || {
        // The porter's, then git's.
        drop(silent.accept().unwrap());
        drop(silent.accept().unwrap());
    });
    let message = tried("localhost", port);
    assert!(message.contains("git"), "{message}");
    listening.join().unwrap();
    let message = tried("localhost", port);
    assert!(message.contains("is not to be reached (Connection refused"), "{message}");
    // No name server is asked for what is no name.
    let message = tried("no..name", port);
    assert!(message.contains("the name no..name is not to be resolved"), "{message}");
    worker.stop();
}

/// A server that takes the connection and says nothing holds up the session that clones from it: not one whose walls are known, nor
/// one of the same walls, nor one whose walls are still to be measured.
#[test]
fn a_slow_clone_holds_up_no_other_start() {
    let many = Many::new(Who::User);
    let (worker, address) = many.serve();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut slow = many.session();
    let url = format!("http://localhost:{}/r.git", server.local_addr().unwrap().port());
    slow.repository = Some(Repository::Remote(url));
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| many.begin(address, &slow));
        // The porter's, then git's, which waits from now on.
        drop(server.accept().unwrap());
        let stalled = server.accept().unwrap();
        for processes in ["2048", "1024"] {
            let mut config = many.session();
            let bound = format!("processes = {processes}");
            config.policy = config.policy.replace("processes = 2048", &bound);
            let mut hosted = many.hosted_as(address, config);
            assert!(hosted.shell("echo here").contains("here"));
            assert!(!asked.is_finished(), "{}", worker.log());
        }
        drop((stalled, server));
        let event = asked.join().unwrap();
        let is_its_own =
            matches!(event, StartEvent::Failed { error: StartError::Repository { .. } });
        assert!(is_its_own, "{event:?}");
    });
    worker.stop();
}

#[test]
fn a_porter_ends_with_its_worker_however_that_ends() {
    let many = Many::new(Who::Own);
    let (worker, _) = many.serve();
    let stopped = porter(&worker);
    worker.stop();
    assert!(!lives(stopped));
    let (worker, _) = many.serve();
    let orphan = porter(&worker);
    worker.signal(Signal::SIGKILL);
    eventually("the porter ends", || !lives(orphan));
}

/// What an earlier worker kept or left behind is removed by whoever makes it anew, within its list.
#[test]
fn a_worker_of_a_slot_that_another_was_killed_in_makes_new_sessions() {
    let many = Many::new(Who::Own);
    let (worker, address) = many.serve();
    drop(many.hosted(address));
    let left = worker.descendants();
    drop(worker);
    eventually("the slot is free", || !left.iter().any(|pid| lives(*pid)));
    let range = many.config.volume.join(format!("run/{PREFIX}left"));
    fs::create_dir_all(range.join("git/hooks")).unwrap();
    fs::write(range.join("git/hooks/x"), "").unwrap();
    let (worker, address) = many.serve();
    assert!(many.hosted(address).shell("git log --oneline").contains("Start"));
    worker.stop();
    assert!(!range.exists());
}

/// What a name server says goes to the porter: whoever brings it down stops no session.
#[test]
fn without_its_porter_a_worker_serves_on_and_says_that_it_takes_nobody_in() {
    let many = Many::new(Who::Own);
    let (worker, address) = many.serve();
    let mut hosted = many.hosted(address);
    kill(Pid::from_raw(porter(&worker)), Signal::SIGKILL).unwrap();
    eventually("it is said", || worker.log().contains("the porter process ended"));
    assert!(hosted.shell("echo here").contains("here"));
    let event = many.begin(address, &many.session());
    let StartEvent::Failed { error: StartError::Other { message } } = event else {
        panic!("{event:?}");
    };
    assert!(message.contains("start the worker again"), "{message}");
    assert_eq!(many.list(address).len(), 1);
    worker.stop();
}
