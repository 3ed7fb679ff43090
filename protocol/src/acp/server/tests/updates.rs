//! Updates: journaled, and shown to who attached, in their own turn.

use super::*;

#[test]
fn what_comes_after_the_final_answer_is_kept_from_the_client() {
    let mut room = Room::in_turn();
    room.agent(&done(3));
    for kind in [
        "agent_message_chunk",
        "agent_thought_chunk",
        "user_message_chunk",
        "tool_call",
        "tool_call_update",
        "plan",
    ] {
        let late = update("s", kind, "late");
        assert_eq!(room.agent(&late), [format!("journal s {late}")]);
    }
    for kind in ["available_commands_update", "current_mode_update", "usage_update", "_new"] {
        let state = update("s", kind, "now");
        assert_eq!(room.agent(&state), [format!("journal s {state}"), format!("1< {state}")]);
    }
}

#[test]
fn a_conversation_whose_turn_does_not_run_stays_silent_in_anothers() {
    let mut room = Room::talking();
    room.client(1, r#"{"id":8,"method":"session/new","params":{}}"#);
    room.agent(r#"{"id":3,"result":{"sessionId":"t"}}"#);
    room.client(1, &prompt("2", "t", "x"));
    let other = update("s", "agent_message_chunk", "late");
    assert_eq!(room.agent(&other), [format!("journal s {other}")]);
    let own = update("t", "agent_message_chunk", "y");
    assert_eq!(room.agent(&own), [format!("journal t {own}"), format!("1< {own}")]);
}

#[test]
fn a_client_sees_nothing_live_of_what_its_load_will_replay() {
    let mut room = Room::in_turn();
    room.leave(1);
    room.join(2);
    let before = update("s", "agent_message_chunk", "before");
    assert_eq!(room.agent(&before), [format!("journal s {before}")], "else the replay doubles it");
    room.client(2, r#"{"id":1,"method":"session/load","params":{"sessionId":"s"}}"#);
    let after = update("s", "agent_message_chunk", "after");
    assert_eq!(room.agent(&after), [format!("journal s {after}"), format!("2< {after}")]);
}

#[test]
fn an_update_without_a_conversation_is_dropped() {
    let mut room = Room::talking();
    assert_eq!(room.agent(r#"{"method":"session/update","params":{}}"#), ["log"]);
    assert_eq!(room.agent(r#"{"method":"session/update","params":{"sessionId":3}}"#), ["log"]);
}
