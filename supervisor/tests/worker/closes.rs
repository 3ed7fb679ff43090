//! The ends of connections. Of the resumable door's one is said by the WebSocket's own rules (RFC 6455 sections 5.5.1 and 7.1.7), and no
//! end of the attachment.

use std::fs;

use casemate_protocol::tier::Tier;
use casemate_protocol::token::Audience;
use serde_json::json;

use crate::client::{Client, Closed};
use crate::harness::{Slot, Who};
use crate::resumable::Door;

#[test]
fn a_close_is_answered_and_a_breach_is_told_by_its_code_and_the_attachment_goes_on() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let (worker, address) = slot.serve();
    let mut door = Door::attach(address, &slot.token(Audience::Attach));
    let session = door.session();
    // Masked frames with an empty or one-byte body: what is sent, what comes back.
    for (what, sent, code) in [
        ("a close with code 1000", &[0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe8][..], Some(1000)),
        ("a close without a code", &[0x88, 0x80, 0, 0, 0, 0], None),
        ("an opcode that is none", &[0x83, 0x80, 0, 0, 0, 0], Some(1002)),
        ("a bit of an extension that was not agreed on", &[0xc2, 0x80, 0, 0, 0, 0], Some(1002)),
        ("a frame without a mask", &[0x82, 0], Some(1002)),
        ("a text that is none", &[0x81, 0x81, 0, 0, 0, 0, 0xff], Some(1007)),
    ] {
        let id = door.prompt(&session, "!updates 40 100");
        door.send_raw(sent);
        assert_eq!(door.closed(), code, "{what}");
        door.cut();
        door.again().unwrap();
        let (answer, updates) = door.answer(id);
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{what}");
        assert_eq!(updates.len(), 40, "{what}");
    }
    assert_eq!(slot.status(address).epoch.0, 1, "one attachment all the time");
    worker.stop();
}

#[test]
fn a_breach_of_the_relays_protocol_is_told_by_a_bye_and_then_the_connection_is_closed() {
    for (what, sent) in [
        ("a text message", &[0x81, 0x81, 0, 0, 0, 0, b'x'][..]),
        ("a frame of no type", &[0x82, 0x81, 0, 0, 0, 0, 99]),
        ("a frame that is too long", &[0x82, 0xff, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0]),
    ] {
        let slot = Slot::new(Tier::Domain, Who::User);
        let (worker, address) = slot.serve();
        let mut door = Door::attach(address, &slot.token(Audience::Attach));
        door.send_raw(sent);
        assert_eq!(door.closed(), None, "{what}: a close without a code");
        assert_eq!(door.bye().map(|(code, _)| code), Some(1002), "{what}");
        door.cut();
        assert_eq!(door.again(), Err((410, Some("over".into()))), "{what}");
        worker.stop();
    }
}

#[test]
fn a_past_that_cannot_be_read_is_said_by_its_code_at_both_doors() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let (worker, address) = slot.serve();
    let token = slot.token(Audience::Attach);
    let mut client = Client::attach(address, &token).unwrap();
    client.initialize();
    let session = client.new_session();
    assert_eq!(client.turn(&session, "past").1, "echo: past");
    drop(client);
    // A directory opens as a file does, and then is none (read(2): EISDIR).
    let journals = slot.config.volume.join("state/journal");
    let journal = fs::read_dir(journals).unwrap().next().unwrap().unwrap().path();
    fs::remove_file(&journal).unwrap();
    fs::create_dir(&journal).unwrap();

    let said = (1011, "the conversation's past cannot be read: attach anew".to_owned());
    let mut plain = Client::attach(address, &token).unwrap();
    plain.initialize();
    plain.request("session/load", json!({"sessionId": session, "cwd": "/", "mcpServers": []}));
    assert_eq!(plain.receive(), Err(Closed::With(said.0, said.1.clone())));
    let mut door = Door::attach(address, &token);
    door.load(&session);
    assert_eq!(door.until_bye(), said);
    worker.stop();
}
