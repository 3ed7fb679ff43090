//! Answers to loads that come before what they answer for.

use super::*;
use crate::acp::server::early::{LONGEST, QUIET};

/// Client 1 has asked for conversation `s` of a prompt that the record has; the agent's call is 2.
fn loading(agent: &str) -> Room {
    let mut room = Room::empty();
    room.record("s", &Entry::Begin);
    let hi = r#"{"type":"text","text":"hi"}"#;
    room.record("s", &Entry::Sent(crate::acp::continuity::prompt::Prompt::of(&[hi])));
    room.connect(1);
    room.client(1, r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#);
    room.agent(&format!(
        r#"{{"id":1,"result":{{"agentCapabilities":{{"loadSession":true}},"agentInfo":{{"name":"{agent}","version":"0.61.0"}}}}}}"#
    ));
    room.client(1, r#"{"id":"l","method":"session/load","params":{"sessionId":"s","cwd":"/"}}"#);
    room
}

fn answer(told: &[String]) -> Option<&str> {
    told.iter().find(|line| line.starts_with(r#"1< {"id":"l""#)).map(String::as_str)
}

#[test]
fn an_early_answer_waits_until_all_is_shown() {
    let mut room = loading("gemini-cli");
    assert_eq!(answer(&room.agent(r#"{"id":2,"result":{}}"#)), None);
    room.now = QUIET - 1;
    let shown = room.agent(&update("s", "user_message_chunk", "hi"));
    assert!(shown.iter().any(|line| line.starts_with("1< ")), "the client sees it: {shown:?}");
    assert_eq!(room.server.deadline(), Some(2 * QUIET - 1));
    room.now = 2 * QUIET - 2;
    assert_eq!(answer(&room.event(Event::Tick)), None);
    room.now += 1;
    let told = room.event(Event::Tick);
    assert!(answer(&told).is_some_and(|line| line.contains("reloaded")), "{told:?}");
}

#[test]
fn it_does_not_wait_for_ever_and_another_agents_does_not_wait() {
    let mut room = loading("gemini-cli");
    room.agent(r#"{"id":2,"result":{}}"#);
    for now in (0..LONGEST).step_by(100) {
        room.now = now;
        assert_eq!(answer(&room.agent(&update("s", "agent_message_chunk", "x"))), None);
    }
    room.now = LONGEST;
    assert!(answer(&room.event(Event::Tick)).is_some());
    let mut room = loading("other");
    assert!(answer(&room.agent(r#"{"id":2,"result":{}}"#)).is_some());
    let mut room = loading("gemini-cli");
    assert!(answer(&room.agent(r#"{"id":2,"error":{"code":-32603}}"#)).is_some());
}

#[test]
fn an_agent_that_ends_meanwhile_leaves_nobody_waiting() {
    let mut room = loading("gemini-cli");
    room.agent(r#"{"id":2,"result":{}}"#);
    let told = room.end("signal 9");
    assert!(told.iter().any(|line| line.contains(r#""id":"l","error""#)), "{told:?}");
    room.now = LONGEST;
    assert_eq!(answer(&room.event(Event::Tick)), None);
}
