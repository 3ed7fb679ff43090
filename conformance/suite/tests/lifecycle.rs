//! `casemate up` started once, killed, and started again; the doors of a worker; detach is not close.

use std::path::Path;
use std::time::Duration;

use casemate_protocol::api::Attached;
use casemate_protocol::token::{Claims, SigningSecret};
use casemate_suite::attach::{http, resume};
use casemate_suite::place::Place;
use casemate_suite::processes;
use casemate_suite::raw_host::RawHost;
use nix::sys::signal::Signal;

/// A bridge that has said `initialize`.
fn bridge(place: &Place) -> RawHost {
    let repository = place.repository().display().to_string();
    let mut host =
        RawHost::start(&mut place.bridge(&["--repo", &repository])).expect("the bridge starts");
    host.initialize().expect("initialize is answered");
    host
}

fn upgrade(token: Option<&str>, origin: Option<&str>) -> String {
    let mut request =
        "GET /acp HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            .to_owned();
    if let Some(token) = token {
        request.push_str(&format!("Authorization: Bearer {token}\r\n"));
    }
    if let Some(origin) = origin {
        request.push_str(&format!("Origin: {origin}\r\n"));
    }
    request + "\r\n"
}

fn claims_of(place: &Place, attached: &Attached) -> (SigningSecret, Claims) {
    let seed = std::fs::read(place.casemate_home().join("keys/signing.seed"))
        .expect("the allocator keeps its seed there");
    let secret = SigningSecret::from_seed(&seed.try_into().expect("a seed has 32 bytes"));
    let claims = secret.public().verify(&attached.token, 0).expect("its own token holds");
    (secret, claims)
}

#[test]
fn two_bridges_in_the_same_instant_start_one_allocator() {
    let place = Place::new();
    let repository = place.repository().display().to_string();
    let mut bridges: Vec<RawHost> = (0..4)
        .map(|_| RawHost::start(&mut place.bridge(&["--repo", &repository])).unwrap())
        .collect();
    let mut sessions = Vec::new();
    for bridge in &mut bridges {
        bridge.initialize().unwrap();
        sessions.push(bridge.new_session(&place).unwrap());
    }
    sessions.sort();
    sessions.dedup();
    assert_eq!(sessions.len(), 4, "each bridge has a session of its own");
    let ups: Vec<_> =
        processes::ours().into_iter().filter(|process| process.is_casemate("up")).collect();
    assert_eq!(ups.len(), 1, "{ups:#?}");
    assert_eq!(place.living().unwrap().len(), 4);
}

#[test]
fn a_killed_allocator_loses_no_session_and_cuts_no_turn() {
    let place = Place::new();
    let mut host = bridge(&place);
    let session = host.new_session(&place).unwrap();
    host.say(&session, "!sh echo kept > kept").unwrap();
    let turn = host.send("session/prompt", &RawHost::prompt(&session, "!sh sleep 2; echo done"));
    let up = i32::try_from(place.endpoint().unwrap().pid).unwrap();
    assert!(processes::signal(up, Signal::SIGKILL));
    host.answer(turn, Duration::from_secs(20)).expect("the allocator is not on the data's way");
    assert_eq!(host.quit(&place).code(), Some(0));

    let before = processes::ours();
    let mut host = bridge(&place);
    host.load(&place, &session).expect("the session is found again");
    assert!(host.say(&session, "!sh cat kept").unwrap().contains("kept"));
    let now = processes::ours();
    let worker = |all: &[processes::Process]| -> Vec<i32> {
        let workers = all.iter().filter(|process| process.command.contains("casemate-supervisor"));
        workers.map(|process| process.pid).collect()
    };
    assert_eq!(
        worker(&before),
        worker(&now),
        "the worker that outlived it is the one that is used"
    );
    assert_ne!(i32::try_from(place.endpoint().unwrap().pid).unwrap(), up);
    assert_eq!(place.living().unwrap().len(), 1);
}

#[test]
fn the_workers_door_opens_to_its_own_token_alone() {
    let place = Place::new();
    let mut host = bridge(&place);
    let session = host.new_session(&place).unwrap();
    let other = host.new_session(&place).unwrap();
    let attached = resume(&place, &session);
    let foreign = resume(&place, &other);
    let (secret, claims) = claims_of(&place, &attached);
    let expired = secret.sign(&Claims { expires: 1, ..claims.clone() });
    let stale = secret.sign(&Claims { generation: claims.generation.next(), ..claims.clone() });
    let forged = SigningSecret::generate().sign(&claims);
    for (what, token) in [
        ("no token", None),
        ("nonsense", Some("nonsense")),
        ("another session's", Some(foreign.token.as_str())),
        ("expired", Some(expired.as_str())),
        ("another generation's", Some(stale.as_str())),
        ("another key's", Some(forged.as_str())),
    ] {
        let (status, answer) = http(attached.address, &upgrade(token, None));
        assert_eq!(status, 401, "{what}: {answer}");
        assert!(!answer.contains(token.unwrap_or("cm1.")), "{what}: the answer repeats the token");
    }
    let token = Some(attached.token.as_str());
    let (status, answer) = http(attached.address, &upgrade(token, Some("http://localhost")));
    assert_eq!(status, 403, "{answer}");
    let (status, answer) = http(attached.address, &upgrade(token, None));
    assert_eq!(status, 101, "{answer}");
    let endpoint = place.endpoint().unwrap();
    let request = "GET /v1/sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer wrong\r\n\
                   Connection: close\r\n\r\n";
    assert_eq!(http(endpoint.address, request).0, 401);
}

#[test]
fn detach_is_not_close() {
    let place = Place::new();
    let mut host = bridge(&place);
    let session = host.new_session(&place).unwrap();
    let turn = RawHost::prompt(&session, "!sh sleep 1; echo late > late");
    host.send("session/prompt", &turn);
    std::thread::sleep(Duration::from_millis(500));
    // As a broker ends its agents: TERM to the group, in the middle of the turn.
    let group = nix::unistd::Pid::from_raw(host.pid());
    nix::sys::signal::killpg(group, Signal::SIGTERM).unwrap();
    host.quit(&place);
    let views = place.living().unwrap();
    let worktree = views[0].worker.clone().expect("its worker lives on").worktree;
    let late = processes::until(Duration::from_secs(10), || {
        Path::new(&worktree).join("late").exists().then_some(())
    });
    assert!(late.is_some(), "the turn runs to its end without a client");
    let mut host = bridge(&place);
    host.load(&place, &session).unwrap();
    assert!(host.say(&session, "!sh cat late").unwrap().contains("late"));
}
