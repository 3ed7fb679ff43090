//! A cancel hits what it was meant for, or nothing.

use super::*;

const CANCEL: &str = r#"{"method":"session/cancel","params":{"sessionId":"s"}}"#;

fn cancelled(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"stopReason":"cancelled"}}}}"#)
}

#[test]
fn a_cancel_of_the_running_turn_goes_to_the_agent_and_ends_permissions_and_waiters() {
    let mut room = Room::in_turn();
    room.client(1, &prompt("3", "s", "later"));
    room.agent(&permission("\"p\"", "s"));
    let done = room.client(1, CANCEL);
    assert!(done[0].contains(r#""sessionUpdate":"tool_call_update""#), "the notice ends: {done:?}");
    assert!(done[0].contains(r#""status":"failed""#));
    assert_eq!(
        done[1..],
        [
            format!("1< {}", cancelled("3")),
            format!("agent< {CANCEL}"),
            r#"agent< {"jsonrpc":"2.0","id":"p","result":{"outcome":{"outcome":"cancelled"}}}"#
                .to_owned(),
        ]
    );
    assert_eq!(
        room.client(1, r#"{"id":"p","result":{"outcome":{"outcome":"selected"}}}"#),
        ["log"],
        "answered already"
    );
    assert_eq!(room.agent(&cancelled("3")), [format!("1< {}", cancelled("2"))]);
}

#[test]
fn a_late_cancel_does_not_reach_the_agent() {
    let mut room = Room::in_turn();
    room.agent(&done(3));
    assert_eq!(room.client(1, CANCEL), ["log"]);
}

#[test]
fn a_cancel_of_another_conversation_leaves_the_running_turn_alone() {
    let mut room = Room::in_turn();
    room.client(1, &prompt("3", "t", "later"));
    let done = room.client(1, r#"{"method":"session/cancel","params":{"sessionId":"t"}}"#);
    assert_eq!(done.len(), 2);
    assert_eq!(done[1], format!("1< {}", cancelled("3")));
    assert_eq!(
        room.client(1, r#"{"method":"session/cancel","params":{"sessionId":"u"}}"#),
        ["log"]
    );
    assert_eq!(room.client(1, r#"{"method":"session/cancel"}"#), ["log"]);
}

#[test]
fn the_next_client_can_cancel_a_detached_turn() {
    let mut room = Room::in_turn();
    room.leave(1);
    room.join(2);
    assert_eq!(room.client(2, CANCEL), [format!("agent< {CANCEL}")]);
}

#[test]
fn cancel_request_names_the_request_as_the_agent_knows_it() {
    let mut room = Room::in_turn();
    assert_eq!(
        room.client(1, r#"{"method":"$/cancel_request","params":{"requestId":2,"_meta":1}}"#),
        [r#"agent< {"method":"$/cancel_request","params":{"requestId":3,"_meta":1}}"#]
    );
    room.agent(&done(3));
    assert_eq!(
        room.client(1, r#"{"method":"$/cancel_request","params":{"requestId":2}}"#),
        ["log"]
    );
}

#[test]
fn cancel_request_of_a_waiting_prompt_takes_it_out() {
    let mut room = Room::in_turn();
    room.client(1, &prompt("3", "s", "later"));
    let done = room.client(1, r#"{"method":"$/cancel_request","params":{"requestId":3}}"#);
    assert_eq!(done[1..], [format!("1< {}", cancelled("3"))]);
    assert_eq!(room.agent(&super::done(3)).len(), 1, "nothing waits any more");
}

#[test]
fn cancel_request_cannot_name_a_request_of_another_connection() {
    let mut room = Room::in_turn();
    room.leave(1);
    room.join(2);
    for id in ["2", "3"] {
        let line = format!(r#"{{"method":"$/cancel_request","params":{{"requestId":{id}}}}}"#);
        assert_eq!(room.client(2, &line), ["log"]);
    }
}

#[test]
fn closing_a_conversation_ends_what_waits_in_it() {
    let mut room = Room::in_turn();
    room.client(1, &prompt("3", "s", "later"));
    let done = room.client(1, r#"{"id":4,"method":"session/close","params":{"sessionId":"s"}}"#);
    assert_eq!(done[1], format!("1< {}", cancelled("3")));
    assert_eq!(done[2], r#"agent< {"id":4,"method":"session/close","params":{"sessionId":"s"}}"#);
}

#[test]
fn a_cancel_that_comes_ahead_ends_the_turn_and_in_its_place_nothing_happens() {
    let mut room = Room::in_turn();
    assert_eq!(room.ahead(1, CANCEL), [format!("agent< {CANCEL}")]);
    room.agent(&cancelled("3"));
    // What it passed: a prompt, which it was not for.
    room.now += 10_000;
    room.client(1, &prompt("3", "s", "next"));
    assert!(room.client(1, "").is_empty());
    assert_eq!(room.agent(&super::done(4)).len(), 1, "the next turn ends as it ends");
}

#[test]
fn nothing_but_a_cancel_of_a_greeted_client_comes_ahead() {
    let wrong = [
        prompt("3", "s", "x"),
        r#"{"id":3,"method":"session/cancel","params":{"sessionId":"s"}}"#.into(),
        r#"{"id":"p","result":{}}"#.into(),
        "?".into(),
    ];
    for line in wrong {
        let mut room = Room::in_turn();
        let done = room.ahead(1, &line);
        assert!(done.iter().any(|one| one.contains("1002")), "{line}: {done:?}");
    }
    let mut room = Room::in_turn();
    room.connect(2);
    assert!(room.ahead(1, CANCEL).is_empty(), "the older client is heard no more");
    assert!(room.ahead(2, CANCEL).iter().any(|one| one.contains("1002")));
}

#[test]
fn a_turn_of_which_nobody_takes_anything_is_cancelled_with_a_reason() {
    let mut room = Room::in_turn();
    room.agent(&permission("\"p\"", "s"));
    let done = room.event(Event::Blocked("nobody read"));
    assert!(done[0].starts_with("1< ") && done[0].contains("casemate: nobody read"), "{done:?}");
    assert_eq!(
        done[1..],
        [
            r#"agent< {"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}"#,
            r#"agent< {"jsonrpc":"2.0","id":"p","result":{"outcome":{"outcome":"cancelled"}}}"#,
        ]
    );
    room.agent(&cancelled("3"));
    assert!(room.event(Event::Blocked("nobody read")).is_empty(), "no turn runs");
}
