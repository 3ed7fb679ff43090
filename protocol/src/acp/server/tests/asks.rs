//! Each request of the agent is answered once.

use super::*;

const YES: &str = r#"{"id":"p","result":{"outcome":{"outcome":"selected","optionId":"y"}}}"#;
const LOAD: &str = r#"{"id":1,"method":"session/load","params":{"sessionId":"s"}}"#;

fn gone(id: &str) -> String {
    format!(
        r#"agent< {{"jsonrpc":"2.0","id":{id},"result":{{"outcome":{{"outcome":"cancelled"}}}}}}"#
    )
}

#[test]
fn a_request_goes_to_the_client_as_it_is_and_its_answer_goes_back_once() {
    let mut room = Room::in_turn();
    let ask = permission("\"p\"", "s");
    assert_eq!(room.agent(&ask), [format!("1< {ask}")]);
    assert_eq!(room.client(1, YES), [format!("agent< {YES}")]);
    assert_eq!(room.client(1, YES), ["log"]);
    assert_eq!(room.client(1, r#"{"id":null,"result":1}"#), ["log"]);
}

#[test]
fn the_agent_gets_its_own_spelling_of_the_id() {
    let mut room = Room::in_turn();
    room.agent(r#"{"id":"\u0070","method":"fs/read_text_file","params":{}}"#);
    assert_eq!(
        room.client(1, r#"{"id":"p","error":{"code":-32601,"message":""}}"#),
        [r#"agent< {"id":"\u0070","error":{"code":-32601,"message":""}}"#]
    );
    room.agent(r#"{"id":7.0,"method":"terminal/create"}"#);
    assert_eq!(room.client(1, r#"{"id":7,"result":1}"#), [r#"agent< {"id":7.0,"result":1}"#]);
}

#[test]
fn a_permission_waits_for_the_next_client_until_it_has_the_conversation() {
    let mut room = Room::in_turn();
    room.leave(1);
    let ask = permission("\"p\"", "s");
    assert_eq!(room.agent(&ask), none());
    room.join(2);
    let told = room.client(2, LOAD);
    assert_eq!(told.len(), 3);
    assert_eq!(told[0], "replay 2 s");
    assert!(told[1].contains(r#""id":1,"result""#));
    assert_eq!(told[2], format!("2< {ask}"));
    assert_eq!(room.client(2, LOAD).len(), 2, "delivered once");
    assert_eq!(room.client(2, YES), [format!("agent< {YES}")]);
}

#[test]
fn a_permission_that_nobody_comes_for_is_cancelled_at_its_deadline() {
    let mut room = Room::in_turn();
    room.leave(1);
    room.now = 50;
    room.agent(&permission("1", "s"));
    assert_eq!(room.server.deadline(), Some(50 + TTL));
    room.now = 50 + TTL - 1;
    assert_eq!(room.event(Event::Tick), none());
    room.now = 50 + TTL;
    assert_eq!(room.event(Event::Tick), [gone("1")]);
    assert_eq!(room.server.deadline(), None);
}

#[test]
fn a_delivered_permission_waits_again_when_its_connection_is_lost() {
    let mut room = Room::in_turn();
    let ask = permission("\"p\"", "s");
    room.agent(&ask);
    assert_eq!(room.server.deadline(), None);
    room.now = 5;
    assert_eq!(room.leave(1), none());
    assert_eq!(room.server.deadline(), Some(5 + TTL));
    room.join(2);
    assert_eq!(room.client(2, YES), ["log"], "not delivered to this one yet");
    assert_eq!(*room.client(2, LOAD).last().unwrap(), format!("2< {ask}"));
    assert_eq!(room.client(1, YES), none());
    assert_eq!(room.client(2, YES), [format!("agent< {YES}")]);
}

#[test]
fn other_requests_are_answered_at_once_where_nobody_is_attached() {
    let mut room = Room::in_turn();
    room.agent(r#"{"id":1,"method":"elicitation/create"}"#);
    let lost = room.leave(1);
    assert!(lost[0].starts_with(r#"agent< {"jsonrpc":"2.0","id":1,"error":{"code":-32603"#));
    let answer = room.agent(r#"{"id":2,"method":"fs/read_text_file"}"#);
    assert!(answer[0].starts_with(r#"agent< {"jsonrpc":"2.0","id":2,"error":{"code":-32601"#));
    let answer = room.agent(r#"{"id":3,"method":"_v/x"}"#);
    assert!(answer[0].starts_with(r#"agent< {"jsonrpc":"2.0","id":3,"error":{"code":-32603"#));
    room.connect(2);
    let answer = room.agent(r#"{"id":4,"method":"_v/x"}"#);
    assert!(answer[0].starts_with("agent< "), "nothing before its initialize is answered");
}

#[test]
fn the_agent_can_take_a_request_back() {
    let mut room = Room::in_turn();
    room.agent(&permission("5", "s"));
    let back = r#"{"method":"$/cancel_request","params":{"requestId":5}}"#;
    assert_eq!(room.agent(back), [format!("1< {back}")]);
    room.leave(1);
    assert_eq!(room.agent(back), [gone("5")]);
    assert_eq!(room.agent(back), none());
}

#[test]
fn an_id_that_is_still_open_is_not_asked_twice() {
    let mut room = Room::in_turn();
    room.agent(&permission("5", "s"));
    assert_eq!(room.agent(r#"{"id":5.0,"method":"_v/x"}"#), ["log"]);
}

#[test]
fn an_agent_that_asks_without_end_is_refused() {
    let mut room = Room::in_turn();
    room.leave(1);
    for id in 0..256 {
        assert_eq!(room.agent(&permission(&id.to_string(), "s")), none());
    }
    let refused = room.agent(&permission("256", "s"));
    assert!(refused[0].contains(r#""id":256,"error":{"code":-32603"#), "{refused:?}");
}

#[test]
fn what_an_agent_asks_is_bounded_in_bytes_but_one_question_alone_is_not() {
    for attached in [true, false] {
        let mut room = Room::in_turn();
        if !attached {
            room.leave(1);
        }
        let long = "x".repeat(16 << 20);
        let ask = permission(&format!("\"{long}\""), "s");
        let told = room.agent(&ask);
        assert!(told == if attached { vec![format!("1< {ask}")] } else { none() });
        // Neither its content nor another's id.
        for id in ["2".to_owned(), format!("\"{}\"", &long[1..])] {
            let refused = room.agent(&permission(&id, "s")).concat();
            assert!(refused.starts_with(r#"agent< {"jsonrpc":"2.0","id":"#));
            assert!(refused.contains(r#","error":{"code":-32603"#) && refused.contains("too many"));
        }
        room.client(1, r#"{"method":"session/cancel","params":{"sessionId":"s"}}"#);
    }
}
