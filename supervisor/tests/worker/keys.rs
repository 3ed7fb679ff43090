//! Tokens end, keys are replaced: who is attached stays attached, and nobody else comes in by the old ones.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use casemate_protocol::tier::Tier;
use casemate_protocol::token::{Audience, Claims, PublicKey, SigningSecret};
use casemate_protocol::worker::Keys;

use crate::client::Client;
use crate::harness::{Slot, Who, call};
use crate::resumable::Door;

fn keys(accept: &[PublicKey]) -> String {
    serde_json::to_string(&Keys { accept: accept.to_vec() }).unwrap()
}

#[test]
fn a_token_that_expires_under_a_connection_ends_nothing_and_opens_nothing() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let (worker, address) = slot.serve();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let life = Duration::from_secs(5);
    let expires = (now + life).as_secs();
    let token = slot.secret.sign(&Claims { expires, ..slot.claims(Audience::Attach) });
    let mut door = Door::attach(address, &token);
    let session = door.session();
    std::thread::sleep(life + Duration::from_secs(1));
    // In the middle of the connection, and over the next one of the same attachment.
    for _ in 0..2 {
        let id = door.prompt(&session, "still here");
        assert_eq!(door.answer(id).0["result"]["stopReason"], "end_turn");
        door.cut();
        door.again().unwrap();
    }
    assert_eq!(Client::attach(address, &token).err(), Some(401));
    let id = door.prompt(&session, "and still");
    assert_eq!(door.answer(id).0["result"]["stopReason"], "end_turn");
    worker.stop();
}

#[test]
fn keys_are_replaced_under_a_connection_by_whoever_controls_the_worker_alone() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let (worker, address) = slot.serve();
    let mut door = Door::attach(address, &slot.token(Audience::Attach));
    let session = door.session();
    let next = SigningSecret::generate();
    let post = |token: &str, body: &str| call(address, "POST", "/v1/keys", Some(token), body).0;
    let control = slot.token(Audience::Control);
    let theirs = next.sign(&slot.claims(Audience::Control));
    let both = keys(&[slot.secret.public(), next.public()]);
    assert_eq!(post(&theirs, &both), 401, "a key does not let itself in");
    assert_eq!(post(&slot.token(Audience::Attach), &both), 401);
    assert_eq!(post(&control, &keys(&[])), 400);
    assert_eq!(post(&control, &keys(&[next.public(); Keys::MOST + 1])), 400);
    assert_eq!(post(&control, r#"{"accept":["AAAA"]}"#), 400);
    assert_eq!(post(&control, &both), 204);
    assert_eq!(post(&theirs, &keys(&[next.public()])), 204);
    assert_eq!(post(&control, &both), 401, "the old key has no way back");
    assert_eq!(Client::attach(address, &slot.token(Audience::Attach)).err(), Some(401));
    for _ in 0..2 {
        let id = door.prompt(&session, "still here");
        assert_eq!(door.answer(id).0["result"]["stopReason"], "end_turn");
        door.cut();
        door.again().unwrap();
    }
    drop(door);
    assert!(Client::attach(address, &next.sign(&slot.claims(Audience::Attach))).is_ok());
    drop(worker);
}
