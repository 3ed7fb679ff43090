//! What the supervisor has to say.

use super::*;

fn told(done: &[String]) -> Vec<&String> {
    done.iter().filter(|line| line.contains("casemate-notice")).collect()
}

#[test]
fn a_notice_is_said_at_once_inside_a_turn() {
    let mut room = Room::in_turn();
    let done = room.event(Event::Notice("the disk is \"full\""));
    assert_eq!(
        done,
        [
            r#"1< {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"casemate-notice-1","title":"casemate: the disk is \"full\"","kind":"other","status":"completed"}}}"#
        ]
    );
}

#[test]
fn outside_of_a_turn_it_waits_for_the_next_and_is_said_once() {
    let mut room = Room::talking();
    assert!(room.event(Event::Notice("one")).is_empty());
    let done = room.client(1, &prompt("2", "s", "hi"));
    assert_eq!(told(&done).len(), 1, "{done:?}");
    assert!(
        done.iter().position(|line| line.starts_with("agent<"))
            < done.iter().position(|line| line.contains("notice"))
    );
    room.agent(r#"{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}"#);
    let done = room.client(1, &prompt("3", "s", "again"));
    assert!(told(&done).is_empty(), "{done:?}");
}

#[test]
fn nobody_being_there_it_waits_and_the_oldest_go() {
    let mut room = Room::in_turn();
    room.leave(1);
    for number in 0..10 {
        assert!(told(&room.event(Event::Notice(&format!("n{number}")))).is_empty());
    }
    room.agent(r#"{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}"#);
    room.connect(2);
    room.client(2, r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#);
    room.client(
        2,
        r#"{"jsonrpc":"2.0","id":2,"method":"session/load","params":{"sessionId":"s","cwd":"/"}}"#,
    );
    let done = room.client(2, &prompt("3", "s", "hi"));
    let told = told(&done);
    assert_eq!(told.len(), 8, "{done:?}");
    assert!(told[0].contains("n2") && told[7].contains("n9"));
}
