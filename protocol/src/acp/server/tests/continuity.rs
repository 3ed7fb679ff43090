//! What becomes of a conversation whose agent was replaced: each outcome, told once, over generations.

use super::*;

/// The outcome that an answer tells.
fn outcome(done: &[String]) -> Option<&str> {
    let (_, rest) = done.last()?.split_once(r#""continuity":""#)?;
    rest.split('"').next()
}

/// What a turn's beginning tells.
fn told(done: &[String]) -> Vec<&str> {
    let notices = done.iter().filter(|line| line.contains("casemate-notice"));
    notices
        .filter_map(|line| line.split(r#""title":"casemate: "#).nth(1)?.split('"').next())
        .collect()
}

/// Conversation `s` with these prompts, whose worker is gone then; client 1 is back and has loaded what `shown` tells.
fn reloaded(prompts: &[&str], shown: &[&str]) -> (Room, Vec<String>) {
    let mut room = Room::talking();
    for (index, text) in prompts.iter().enumerate() {
        room.client(1, &prompt("9", "s", text));
        room.agent(&done(3 + index as u64));
    }
    let mut room = greets(room.replaced(), r#"{"agentCapabilities":{"loadSession":true}}"#);
    room.client(1, r#"{"id":1,"method":"session/load","params":{"sessionId":"s"}}"#);
    for text in shown {
        room.agent(&update("s", "user_message_chunk", text));
        room.agent(&update("s", "agent_message_chunk", "answer"));
    }
    let answer = room.agent(r#"{"id":2,"result":{}}"#);
    (room, answer)
}

fn greets(mut room: Room, result: &str) -> Room {
    room.connect(1);
    room.client(1, r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#);
    room.agent(&format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#));
    room
}

#[test]
fn a_prompt_is_recorded_after_its_line_for_the_agent() {
    let mut room = Room::talking();
    let mut out = Vec::new();
    let line = prompt("2", "s", "hi");
    room.server.handle(Event::FromClient(Conn(1), &line.as_bytes().to_vec().into()), 0, &mut out);
    let place = |wanted: fn(&Action) -> bool| out.iter().position(wanted).unwrap();
    let recorded = place(|action| matches!(action, Action::Record { entry: Entry::Sent(_), .. }));
    assert!(place(|action| matches!(action, Action::ToAgent(_))) < recorded);
}

#[test]
fn what_is_shown_whole_is_reloaded_and_nothing_is_said() {
    let (mut room, answer) = reloaded(&["one", "two"], &["one", "two"]);
    assert_eq!(outcome(&answer), Some("reloaded"));
    assert_eq!(told(&room.client(1, &prompt("2", "s", "three"))), [""; 0]);
}

#[test]
fn an_agent_that_accepts_and_shows_nothing_is_not_believed() {
    let (mut room, answer) = reloaded(&["one", "two"], &[]);
    assert_eq!(outcome(&answer), Some("reset"));
    let turn = room.client(1, &prompt("2", "s", "three"));
    assert!(told(&turn)[0].starts_with("context reset:"), "{turn:?}");
    room.agent(&done(3));
    assert_eq!(told(&room.client(1, &prompt("3", "s", "four"))), [""; 0], "it is told once");
}

#[test]
fn what_is_shown_in_part_is_told_once_and_not_again_by_later_generations() {
    let (mut room, answer) = reloaded(&["one", "two", "three"], &["one", "three"]);
    assert_eq!(outcome(&answer), Some("unverified"));
    let turn = room.client(1, &prompt("2", "s", "four"));
    assert!(told(&turn)[0].contains("of 3 prompts that the agent was sent it shows 2"), "{turn:?}");
    let mut room = greets(room.replaced(), r#"{"agentCapabilities":{"loadSession":true}}"#);
    room.client(1, r#"{"id":1,"method":"session/load","params":{"sessionId":"s"}}"#);
    for text in ["one", "three", "four"] {
        room.agent(&update("s", "user_message_chunk", text));
    }
    assert_eq!(outcome(&room.agent(r#"{"id":2,"result":{}}"#)), Some("reloaded"));
    assert_eq!(told(&room.client(1, &prompt("2", "s", "five"))), [""; 0]);
}

#[test]
fn a_loss_that_nobody_was_told_is_told_by_the_next_generation() {
    let (room, _) = reloaded(&["one"], &[]);
    let mut room = greets(room.replaced(), r#"{"agentCapabilities":{"loadSession":true}}"#);
    room.client(1, r#"{"id":1,"method":"session/load","params":{"sessionId":"s"}}"#);
    room.agent(r#"{"id":2,"result":{}}"#);
    assert!(told(&room.client(1, &prompt("2", "s", "two")))[0].starts_with("context reset:"));
}

#[test]
fn a_prompt_that_the_agent_refused_need_not_be_shown() {
    let mut room = Room::talking();
    room.client(1, &prompt("2", "s", "one"));
    room.agent(&done(3));
    room.client(1, &prompt("2", "s", "no"));
    room.agent(r#"{"id":4,"error":{"code":-32603,"message":"no"}}"#);
    let mut room = greets(room.replaced(), r#"{"agentCapabilities":{"loadSession":true}}"#);
    room.client(1, r#"{"id":1,"method":"session/load","params":{"sessionId":"s"}}"#);
    room.agent(&update("s", "user_message_chunk", "one"));
    assert_eq!(outcome(&room.agent(r#"{"id":2,"result":{}}"#)), Some("reloaded"));
}

#[test]
fn a_resume_is_a_load_to_an_agent_that_can_and_its_past_is_not_shown() {
    let (room, _) = reloaded(&["one"], &["one"]);
    let mut room = greets(room.replaced(), r#"{"agentCapabilities":{"loadSession":true}}"#);
    assert_eq!(
        room.client(1, r#"{"id":1,"method":"session/resume","params":{"sessionId":"s"}}"#),
        [
            "forget s",
            r#"agent< {"id":2,"method":"session/load","params":{"cwd":"/work","sessionId":"s","mcpServers":[]}}"#
        ]
    );
    let past = update("s", "user_message_chunk", "one");
    assert_eq!(room.agent(&past), [format!("journal s {past}")]);
    assert_eq!(outcome(&room.agent(r#"{"id":2,"result":{}}"#)), Some("reloaded"));
    let load = room.client(1, r#"{"id":2,"method":"session/load","params":{"sessionId":"s"}}"#);
    assert_eq!((load[0].as_str(), outcome(&load)), ("replay 1 s", Some("resumed")));
}

#[test]
fn an_agent_that_can_only_resume_is_not_verified() {
    let (room, _) = reloaded(&["one"], &["one"]);
    let mut room = greets(room.replaced(), r#"{"agentCapabilities":{}}"#);
    room.client(1, r#"{"id":1,"method":"session/load","params":{"sessionId":"s"}}"#);
    room.client(1, r#"{"id":1,"method":"session/resume","params":{"sessionId":"s"}}"#);
    assert_eq!(outcome(&room.agent(r#"{"id":2,"result":{}}"#)), Some("unverified"));
    let turn = room.client(1, &prompt("2", "s", "two"));
    assert_eq!(told(&turn).len(), 1, "{turn:?}");
    assert!(told(&turn)[0].contains("not verified"), "{turn:?}");
}

#[test]
fn a_conversation_that_takes_a_lost_ones_place_says_so() {
    let (room, _) = reloaded(&["one"], &["one"]);
    let mut room = greets(
        room.replaced(),
        r#"{"agentCapabilities":{"loadSession":true},"agentInfo":{"name":"OpenCode","version":"1.18.33"}}"#,
    );
    room.client(1, r#"{"id":1,"method":"session/load","params":{"sessionId":"s"}}"#);
    let refused = room.agent(
        r#"{"id":2,"error":{"code":-32603,"message":"Internal \"error\"","data":{"service":"session"}}}"#,
    );
    assert!(refused.last().unwrap().contains(r#""error":{"code":-32002,"#), "{refused:?}");
    assert_eq!(outcome(&refused), Some("reset"));
    room.client(1, r#"{"id":3,"method":"session/new","params":{}}"#);
    let begun = room.agent(r#"{"id":3,"result":{"sessionId":"n"}}"#);
    // Durable before it is the newest one.
    assert_eq!(begun[1..3], ["save s true n", "save n true n"]);
    assert_eq!(outcome(&begun), Some("reset"));
    let turn = room.client(1, &prompt("2", "n", "two"));
    assert!(told(&turn)[0].contains("could not be loaded (Internal"), "{turn:?}");
}

#[test]
fn a_loss_is_handed_on_where_the_conversation_that_should_tell_it_is_lost_as_well() {
    let (room, _) = reloaded(&["one"], &["one"]);
    let fail = |room: Room, session: &str, next: &str| {
        let mut room = greets(room.replaced(), r#"{"agentCapabilities":{"loadSession":true}}"#);
        let load =
            format!(r#"{{"id":1,"method":"session/load","params":{{"sessionId":"{session}"}}}}"#);
        room.client(1, &load);
        room.agent(r#"{"id":2,"error":{"code":-32002,"message":"first"}}"#);
        room.client(1, r#"{"id":3,"method":"session/new","params":{}}"#);
        room.agent(&format!(r#"{{"id":3,"result":{{"sessionId":"{next}"}}}}"#));
        room
    };
    let room = fail(room, "s", "n");
    let mut room = fail(room, "n", "m");
    assert_eq!(told(&room.client(1, &prompt("2", "m", "two"))).len(), 1);
}

#[test]
fn nothing_is_lost_with_a_conversation_that_was_sent_nothing() {
    let mut room =
        greets(Room::talking().replaced(), r#"{"agentCapabilities":{"loadSession":true}}"#);
    room.client(1, r#"{"id":1,"method":"session/load","params":{"sessionId":"s"}}"#);
    room.agent(r#"{"id":2,"error":{"code":-32002,"message":"gone"}}"#);
    room.client(1, r#"{"id":3,"method":"session/new","params":{}}"#);
    let begun = room.agent(r#"{"id":3,"result":{"sessionId":"n"}}"#);
    assert_eq!(begun.last().unwrap(), r#"1< {"id":3,"result":{"sessionId":"n"}}"#);
    assert_eq!(told(&room.client(1, &prompt("2", "n", "two"))), [""; 0]);
}

#[test]
fn an_error_that_does_not_say_unknown_is_the_agents_as_it_is() {
    let (room, _) = reloaded(&["one"], &["one"]);
    let mut room = greets(room.replaced(), r#"{"agentCapabilities":{"loadSession":true}}"#);
    room.client(1, r#"{"id":1,"method":"session/load","params":{"sessionId":"s"}}"#);
    assert_eq!(
        room.agent(r#"{"id":2,"error":{"code":-32000, "message":"log in first"}}"#).last().unwrap(),
        r#"1< {"id":1,"error":{"code":-32000, "message":"log in first"}}"#
    );
    room.client(1, r#"{"id":3,"method":"session/load","params":{"sessionId":"s"}}"#);
    room.agent(&update("s", "user_message_chunk", "one"));
    assert_eq!(outcome(&room.agent(r#"{"id":3,"result":{}}"#)), Some("reloaded"));
}
