//! Where conversations come from, and what a later load is told.

use super::*;

#[test]
fn the_agent_works_in_the_worktree_with_nothing_of_the_clients_machine() {
    let mut room = Room::greeted();
    assert_eq!(
        room.client(
            1,
            r#"{"id":1,"method":"session/new","params":{"mcpServers":[{"name":"x"}],"_meta":{"cwd":1},"cwd":"/home/u","additionalDirectories":["/etc"]}}"#
        ),
        [r#"agent< {"id":2,"method":"session/new","params":{"mcpServers":[],"_meta":{"cwd":1},"cwd":"/work","additionalDirectories":[]}}"#]
    );
    assert_eq!(
        room.client(1, r#"{"id":2,"method":"session/new","params":{}}"#),
        [r#"agent< {"id":3,"method":"session/new","params":{"cwd":"/work"}}"#]
    );
    assert_eq!(
        room.client(1, r#"{"id":3,"method":"session/fork","params":{"sessionId":"s"}}"#),
        [r#"agent< {"id":4,"method":"session/fork","params":{"cwd":"/work","sessionId":"s"}}"#]
    );
}

#[test]
fn setup_without_an_object_is_refused() {
    let mut room = Room::greeted();
    for line in [
        r#"{"id":1,"method":"session/new"}"#,
        r#"{"id":1,"method":"session/new","params":[]}"#,
        r#"{"id":1,"method":"session/load","params":{"sessionId":7}}"#,
        r#"{"id":1,"method":"session/resume","params":{}}"#,
    ] {
        let answer = room.client(1, line);
        assert!(answer[0].contains(r#""id":1,"error":{"code":-32602"#), "{answer:?}");
        assert_eq!(answer.len(), 1);
    }
}

#[test]
fn a_new_conversation_is_saved_before_its_client_hears_of_it() {
    let mut room = Room::greeted();
    room.client(1, r#"{"id":1,"method":"session/new","params":{}}"#);
    assert_eq!(
        room.agent(r#"{"id":2,"result":{"sessionId":"s"}}"#),
        ["forget s", "save s false", r#"1< {"id":1,"result":{"sessionId":"s"}}"#]
    );
    assert_eq!(room.server.saved().acp_session.as_deref(), Some("s"));
}

#[test]
fn a_load_of_a_live_conversation_is_answered_here() {
    let mut room = Room::talking();
    room.leave(1);
    room.join(2);
    assert_eq!(
        room.client(
            2,
            r#"{"id":"l","method":"session/load","params":{"sessionId":"s","cwd":"/x"}}"#
        ),
        [
            "replay 2 s",
            r#"2< {"jsonrpc":"2.0","id":"l","result":{"_meta":{"casemate":{"continuity":"resumed"}},"modes":{"currentModeId":"a"}}}"#
        ]
    );
}

#[test]
fn a_resume_of_a_live_conversation_is_answered_without_its_past() {
    let mut room = Room::talking();
    room.leave(1);
    room.join(2);
    assert_eq!(
        room.client(2, r#"{"id":1,"method":"session/resume","params":{"sessionId":"s"}}"#),
        [
            r#"2< {"jsonrpc":"2.0","id":1,"result":{"_meta":{"casemate":{"continuity":"resumed"}},"modes":{"currentModeId":"a"}}}"#
        ]
    );
}

#[test]
fn a_load_of_an_earlier_one_is_the_agents_and_what_it_replays_is_journaled_anew() {
    let mut room = Room::greeted();
    assert_eq!(
        room.client(1, r#"{"id":1,"method":"session/load","params":{"sessionId":"o","cwd":"/"}}"#),
        [
            "forget o",
            r#"agent< {"id":2,"method":"session/load","params":{"sessionId":"o","cwd":"/work"}}"#
        ]
    );
    let past = update("o", "user_message_chunk", "before");
    assert_eq!(room.agent(&past), [format!("journal o {past}"), format!("1< {past}")]);
    assert_eq!(
        room.agent(r#"{"id":2,"result":null}"#),
        [
            "save o false",
            "save o false o",
            r#"1< {"id":1,"result":{"_meta":{"casemate":{"continuity":"unverified"}}}}"#
        ]
    );
    assert_eq!(
        room.client(1, r#"{"id":2,"method":"session/load","params":{"sessionId":"o"}}"#),
        [
            "replay 1 o",
            r#"1< {"jsonrpc":"2.0","id":2,"result":{"_meta":{"casemate":{"continuity":"resumed"}}}}"#
        ]
    );
}

#[test]
fn a_load_that_comes_while_the_agent_loads_the_same_waits_and_gets_a_whole_replay() {
    let mut room = Room::greeted();
    room.client(1, r#"{"id":1,"method":"session/load","params":{"sessionId":"o"}}"#);
    room.leave(1);
    room.join(2);
    assert_eq!(
        room.client(2, r#"{"id":5,"method":"session/load","params":{"sessionId":"o"}}"#),
        none()
    );
    let past = update("o", "agent_message_chunk", "before");
    assert_eq!(room.agent(&past), [format!("journal o {past}")]);
    assert_eq!(
        room.agent(r#"{"id":2,"result":{"modes":1}}"#),
        [
            "save o false",
            "save o false o",
            "replay 2 o",
            r#"2< {"jsonrpc":"2.0","id":5,"result":{"_meta":{"casemate":{"continuity":"resumed"}},"modes":1}}"#
        ]
    );
}

#[test]
fn a_failed_load_is_passed_on_and_a_new_conversation_works() {
    let mut room = Room::greeted();
    room.client(1, r#"{"id":1,"method":"session/load","params":{"sessionId":"o"}}"#);
    room.client(1, r#"{"id":2,"method":"session/load","params":{"sessionId":"o"}}"#);
    assert_eq!(
        room.agent(r#"{"id":2,"error":{"code":-32002,"message":"gone"}}"#),
        [
            "forget o",
            r#"1< {"id":1,"error":{"code":-32002,"message":"gone","data":{"casemate":{"continuity":"reset"}}}}"#,
            r#"1< {"id":2,"error":{"code":-32002,"message":"gone","data":{"casemate":{"continuity":"reset"}}}}"#
        ]
    );
    room.client(1, r#"{"id":3,"method":"session/new","params":{}}"#);
    assert_eq!(
        room.agent(r#"{"id":3,"result":{"sessionId":"n"}}"#).last().unwrap(),
        r#"1< {"id":3,"result":{"_meta":{"casemate":{"continuity":"reset"}},"sessionId":"n"}}"#
    );
}

#[test]
fn an_agent_that_cannot_load_is_named_in_the_refusal() {
    let mut room = Room::empty();
    room.connect(1);
    room.client(1, r#"{"id":0,"method":"initialize"}"#);
    room.agent(r#"{"id":1,"result":{"agentInfo":{"name":"gem"}}}"#);
    let answer = room.client(1, r#"{"id":1,"method":"session/load","params":{"sessionId":"o"}}"#);
    assert_eq!(answer.len(), 1);
    assert!(answer[0].contains(r#""id":1,"error":{"code":-32002,"message":"gem does not"#));
}

#[test]
fn an_agent_that_cannot_load_is_loaded_all_the_same_while_the_conversation_lives() {
    let mut room = Room::empty();
    room.connect(1);
    room.client(1, r#"{"id":0,"method":"initialize"}"#);
    room.agent(r#"{"id":1,"result":{}}"#);
    room.client(1, r#"{"id":1,"method":"session/new","params":{}}"#);
    room.agent(r#"{"id":2,"result":{"sessionId":"s"}}"#);
    assert_eq!(
        room.client(1, r#"{"id":2,"method":"session/load","params":{"sessionId":"s"}}"#),
        [
            "replay 1 s",
            r#"1< {"jsonrpc":"2.0","id":2,"result":{"_meta":{"casemate":{"continuity":"resumed"}}}}"#
        ]
    );
}

#[test]
fn a_resume_of_an_earlier_one_keeps_its_journal_where_the_agent_cannot_load() {
    let mut room = Room::empty();
    room.connect(1);
    room.client(1, r#"{"id":0,"method":"initialize"}"#);
    room.agent(r#"{"id":1,"result":{}}"#);
    assert_eq!(
        room.client(1, r#"{"id":1,"method":"session/resume","params":{"sessionId":"o"}}"#),
        [r#"agent< {"id":2,"method":"session/resume","params":{"cwd":"/work","sessionId":"o"}}"#]
    );
    room.agent(r#"{"id":2,"result":{}}"#);
    assert_eq!(
        room.client(1, r#"{"id":2,"method":"session/load","params":{"sessionId":"o"}}"#)[0],
        "replay 1 o"
    );
}

#[test]
fn what_the_agent_says_before_it_names_the_conversation_is_kept() {
    let mut room = Room::greeted();
    room.client(1, r#"{"id":1,"method":"session/new","params":{}}"#);
    let early = update("s", "available_commands_update", "x");
    assert_eq!(
        room.agent(&early),
        ["forget s".to_owned(), format!("journal s {early}"), format!("1< {early}")]
    );
    assert_eq!(
        room.agent(r#"{"id":2,"result":{"sessionId":"s"}}"#),
        ["save s false", r#"1< {"id":1,"result":{"sessionId":"s"}}"#]
    );
}

#[test]
fn an_agent_cannot_fill_the_disk_with_conversations_nobody_asked_for() {
    let mut room = Room::greeted();
    let stray = update("t", "available_commands_update", "x");
    assert_eq!(room.agent(&stray), none());
    room.client(1, r#"{"id":1,"method":"session/new","params":{}}"#);
    let journaled = (0..100)
        .filter(|n| {
            let line = update(&format!("t{n}"), "plan", "x");
            room.agent(&line).iter().any(|action| action.starts_with("journal"))
        })
        .count();
    assert_eq!(journaled, 16);
}

#[test]
fn a_later_load_is_told_the_choices_that_hold_now() {
    let mut room = Room::talking();
    let load = r#"{"id":9,"method":"session/load","params":{"sessionId":"s"}}"#;
    let mode = |room: &mut Room| room.client(1, load).pop().unwrap();
    room.client(
        1,
        r#"{"id":2,"method":"session/set_mode","params":{"sessionId":"s","modeId":"b"}}"#,
    );
    room.agent(r#"{"id":3,"result":{}}"#);
    assert!(mode(&mut room).contains(r#","modes":{"currentModeId":"b"}}"#));
    room.agent(
        r#"{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"current_mode_update","currentModeId":"c"}}}"#,
    );
    assert!(mode(&mut room).contains(r#","modes":{"currentModeId":"c"}}"#));
    room.client(
        1,
        r#"{"id":2,"method":"session/set_mode","params":{"sessionId":"s","modeId":"d"}}"#,
    );
    room.agent(r#"{"id":4,"error":{"code":1,"message":"no"}}"#);
    assert!(mode(&mut room).contains(r#","modes":{"currentModeId":"c"}}"#));
}

#[test]
fn a_closed_conversation_is_the_agents_again() {
    let mut room = Room::talking();
    room.client(1, r#"{"id":2,"method":"session/close","params":{"sessionId":"s"}}"#);
    assert_eq!(room.agent(r#"{"id":3,"result":{}}"#), [r#"1< {"id":2,"result":{}}"#]);
    assert_eq!(
        room.client(1, r#"{"id":3,"method":"session/load","params":{"sessionId":"s"}}"#)[0],
        "forget s"
    );
}
