//! `initialize` is said to the agent once.

use super::*;

const HELLO: &str = r#"{"method":"initialize","id":"a","params":{"protocolVersion":1}}"#;

#[test]
fn the_first_initialize_starts_the_agent_and_goes_there_under_a_new_id() {
    let mut room = Room::empty();
    assert_eq!(room.connect(1), none());
    assert_eq!(
        room.client(1, HELLO),
        ["start", r#"agent< {"method":"initialize","id":1,"params":{"protocolVersion":1}}"#]
    );
    assert_eq!(
        room.agent(r#"{"id":1,"result":{"protocolVersion":1.0}}"#),
        [r#"1< {"id":"a","result":{"protocolVersion":1.0}}"#]
    );
}

#[test]
fn later_ones_get_the_stored_answer_whatever_they_offer() {
    let mut room = Room::greeted();
    room.connect(2);
    assert_eq!(
        room.client(
            2,
            r#"{"id":9.0,"method":"initialize","params":{"protocolVersion":7,"clientCapabilities":{"fs":{}}}}"#
        ),
        [r#"2< {"jsonrpc":"2.0","id":9.0,"result":{"agentCapabilities":{"loadSession":true},"x":1}}"#]
    );
    assert_eq!(
        room.client(2, HELLO),
        [
            r#"2< {"jsonrpc":"2.0","id":"a","result":{"agentCapabilities":{"loadSession":true},"x":1}}"#
        ]
    );
}

#[test]
fn one_that_comes_while_the_first_is_in_flight_waits_for_its_answer() {
    let mut room = Room::empty();
    room.connect(1);
    room.client(1, HELLO);
    room.leave(1);
    room.connect(2);
    assert_eq!(room.client(2, r#"{"id":4,"method":"initialize"}"#), none());
    assert_eq!(room.agent(r#"{"id":1,"result":{}}"#), [r#"2< {"id":4,"result":{}}"#]);
}

#[test]
fn after_a_refused_one_the_next_is_asked_anew_of_the_same_process() {
    let mut room = Room::empty();
    room.connect(1);
    room.client(1, HELLO);
    assert_eq!(
        room.agent(r#"{"id":1,"error":{"code":-1,"message":"no"}}"#),
        [r#"1< {"id":"a","error":{"code":-1,"message":"no"}}"#]
    );
    assert_eq!(
        room.client(1, HELLO),
        [r#"agent< {"method":"initialize","id":2,"params":{"protocolVersion":1}}"#]
    );
}

#[test]
fn a_program_that_writes_something_else_than_acp_is_found_out_and_shown_harmlessly() {
    let mut room = Room::empty();
    room.connect(1);
    room.client(1, HELLO);
    assert_eq!(room.server.deadline(), Some(60_000));
    room.agent("not json \u{1b}[2J");
    assert_eq!(room.server.deadline(), Some(15_000));
    room.now = 14_999;
    assert_eq!(room.event(Event::Tick), none());
    room.now = 15_000;
    let told = room.event(Event::Tick);
    assert_eq!(told.len(), 1, "{told:?}");
    let expected =
        r"it wrote `not json \\u{1b}[2J` to its stdout, which is not ACP: check the command after";
    assert!(told[0].contains(expected), "{told:?}");
    assert!(told[0].starts_with(r#"1< {"jsonrpc":"2.0","id":"a","error":{"code":-32050"#));
    assert_eq!(room.server.deadline(), None);
}

#[test]
fn noise_beside_acp_is_no_fault_and_a_slow_agents_answer_is_there_for_the_next_one() {
    let mut room = Room::empty();
    room.connect(1);
    room.client(1, HELLO);
    room.agent("a banner");
    room.agent(r#"{"method":"_x/hello"}"#);
    assert_eq!(room.server.deadline(), Some(60_000));
    room.now = 60_000;
    let told = room.event(Event::Tick);
    assert!(told[0].contains("within 60 s; it said nothing of use"), "{told:?}");
    assert_eq!(room.server.noise(), None);
    room.client(1, r#"{"id":"b","method":"initialize"}"#);
    assert_eq!(room.agent(r#"{"id":1,"result":{}}"#), [r#"1< {"id":"b","result":{}}"#]);
    assert_eq!(room.server.deadline(), None);
}

#[test]
fn a_long_line_of_noise_is_cut() {
    let mut room = Room::empty();
    room.connect(1);
    room.client(1, HELLO);
    room.agent(&"x".repeat(100_000));
    assert!(room.server.noise().unwrap().len() < 400);
}
