//! What the walls refused.

use super::*;

fn refused(room: &mut Room, what: &str) -> Vec<String> {
    room.event(Event::Refused { what, why: "see \"here\"", times: 3 })
}

#[test]
fn a_refusal_is_told_once_a_turn_with_what_would_allow_it() {
    let mut room = Room::in_turn();
    assert_eq!(
        refused(&mut room, "refused: bind 9"),
        [
            r#"1< {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"casemate-refused-1","title":"refused: bind 9","kind":"other","status":"failed","content":[{"type":"content","content":{"type":"text","text":"see \"here\""}}]}}}"#
        ]
    );
    assert_eq!(refused(&mut room, "refused: bind 9"), none());
    room.agent(r#"{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}"#);
    assert_eq!(refused(&mut room, "refused: bind 9"), none(), "not outside of a turn");
    let done = room.client(1, &prompt("3", "s", "again"));
    assert!(!done.iter().any(|line| line.contains("refused")), "nor later: {done:?}");
    assert!(refused(&mut room, "refused: bind 9")[0].contains("casemate-refused-2"));
}

#[test]
fn of_many_the_first_are_told_and_the_rest_are_counted_before_the_answer() {
    let mut room = Room::in_turn();
    let told: usize = (0..1000).map(|n| refused(&mut room, &format!("refused: {n}")).len()).sum();
    assert_eq!(told, 5);
    let done = room.agent(r#"{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}"#);
    assert!(done[0].contains("refused: 2985 attempts more"), "{done:?}");
    assert!(done[1].contains("end_turn"), "{done:?}");
    assert_eq!(done.len(), 2);
}

#[test]
fn where_nobody_is_there_nothing_is_kept() {
    let mut room = Room::in_turn();
    room.leave(1);
    assert_eq!(refused(&mut room, "refused: a"), none());
    let done = room.agent(r#"{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}"#);
    assert!(!done.iter().any(|line| line.contains("refused")), "{done:?}");
}
