//! The key that tokens are signed with is replaced while workers serve, with the real supervisor.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails there")]

mod house;

use casemate_protocol::api::{ApiError, Attached, ErrorKind, Rotated};
use casemate_protocol::token::{Audience, Claims, SigningSecret};
use casemate_protocol::worker::Keys;
use house::{House, eventually, request, signal, supervisor};

/// The status of a worker's answer to `GET /v1/status` with this token.
fn status(attached: &Attached, token: &str) -> u16 {
    let (token, host) = (format!("Bearer {token}"), attached.address.to_string());
    let headers = [("host", host.as_str()), ("authorization", token.as_str())];
    house::http(attached.address, "GET", "/v1/status", &headers, "").unwrap().0
}

fn rotate(house: &House) -> Result<Rotated, ApiError> {
    house.call("POST", "/v1/keys/rotate", "")
}

fn seed(house: &House) -> Vec<u8> {
    std::fs::read(house.home().join("keys/signing.seed")).unwrap()
}

fn house() -> House {
    let house = House::in_tier(supervisor(), "domain");
    house.profile("shared", "sharing = 'user'\n");
    house
}

/// One with a worker of its own, two in one that they share.
fn sessions(house: &House) -> Vec<Attached> {
    let asked = |thread: &str, profile: &str| {
        let mut body = request(thread, thread, "");
        body.intent.profile = profile.into();
        house.allocate(&body).unwrap()
    };
    vec![asked("own", "default"), asked("one", "shared"), asked("two", "shared")]
}

#[test]
fn after_a_rotation_old_tokens_open_nothing_and_every_worker_goes_on() {
    let mut house = house();
    let all = sessions(&house);
    assert!(all.iter().all(|attached| status(attached, &attached.token) == 200));
    let before = seed(&house);
    let rotated = rotate(&house).unwrap();
    assert_eq!((rotated.workers, rotated.behind.len()), (2, 0), "{rotated:?}");
    assert_ne!(seed(&house), before);
    assert!(!house.home().join("keys/signing.next").exists());
    // The same workers, new tokens.
    let again = |house: &House| {
        for attached in &all {
            assert_eq!(status(attached, &attached.token), 401, "an old token");
            let new = house.resume(&attached.session.id).unwrap();
            assert_eq!(new.address, attached.address);
            assert_eq!(new.session.generation, attached.session.generation);
            assert_eq!(status(&new, &new.token), 200);
        }
    };
    again(&house);
    // A session that is new to the shared worker, and a worker that is new.
    let mut body = request("three", "three", "");
    body.intent.profile = "shared".into();
    let third = house.allocate(&body).unwrap();
    assert_eq!((third.address, status(&third, &third.token)), (all[1].address, 200));
    let fourth = house.allocate(&request("four", "four", "")).unwrap();
    assert_eq!(status(&fourth, &fourth.token), 200);
    // The next allocator has the new key; what a crash left of another is gone.
    std::fs::write(house.home().join("keys/signing.next"), [7; 32]).unwrap();
    house.kill_up();
    house.up();
    assert!(!house.home().join("keys/signing.next").exists());
    again(&house);
    assert_eq!(rotate(&house).unwrap().workers, 3);
    house.stop(&all[0].session.id, false).unwrap();
}

#[test]
fn a_worker_that_cannot_be_told_keeps_the_old_key_in_use() {
    let house = house();
    let all = sessions(&house);
    let before = seed(&house);
    let pid = all[0].session.worker.as_ref().unwrap().pid;
    signal(pid, "STOP");
    let refused = rotate(&house).unwrap_err();
    signal(pid, "CONT");
    assert_eq!(refused.kind, ErrorKind::Unavailable, "{refused:?}");
    assert!(refused.message.contains(all[0].session.id.as_str()), "{refused:?}");
    assert_eq!(seed(&house), before);
    assert!(all.iter().all(|attached| status(attached, &attached.token) == 200));
    assert_eq!(rotate(&house).unwrap().workers, 2);
}

#[test]
fn after_a_start_workers_take_no_key_that_a_crash_left_with_them() {
    let mut house = house();
    let attached = &sessions(&house)[0];
    let current = SigningSecret::from_seed(&seed(&house).try_into().unwrap());
    let next = SigningSecret::generate();
    let session = &attached.session;
    let signed = |by: &SigningSecret| {
        by.sign(&Claims {
            session: session.id.clone(),
            incarnation: session.incarnation,
            generation: session.generation,
            slot: session.slot.clone(),
            audience: Audience::Control,
            expires: u64::MAX,
        })
    };
    // As far as a rotation comes before it is killed.
    let both = serde_json::to_string(&Keys { accept: vec![current.public(), next.public()] });
    let (token, host) = (format!("Bearer {}", signed(&current)), attached.address.to_string());
    let headers = [("host", host.as_str()), ("authorization", token.as_str())];
    let told = house::http(attached.address, "POST", "/v1/keys", &headers, &both.unwrap());
    assert_eq!(told.unwrap().0, 204);
    assert_eq!(status(attached, &signed(&next)), 200);
    house.kill_up();
    house.up();
    eventually("the key is forgotten", || (status(attached, &signed(&next)) == 401).then_some(()));
    assert_eq!(status(attached, &signed(&current)), 200);
}
