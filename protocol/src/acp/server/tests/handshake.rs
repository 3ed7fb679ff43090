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
