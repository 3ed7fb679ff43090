//! Lines that go no further: who waits for their answer hears of it, and the stream goes on.

use super::*;
use crate::acp::frame::{Frame, MAX_LINE, Outline};

/// A line of so many bytes: `before`, then fill, then `after`.
fn long(before: &str, after: &str, length: usize) -> String {
    format!("{before}{}{after}", "x".repeat(length - before.len() - after.len()))
}

fn overlong(room: &mut Room, line: &str) -> Vec<String> {
    room.event(Event::AgentOverlong(&Outline::of(line.as_bytes())))
}

#[test]
fn an_overlong_answer_is_an_error_for_its_asker_and_the_next_turn_goes_on() {
    let mut room = Room::in_turn();
    let line = long(r#"{"result":{"x":""#, r#""},"id":3}"#, MAX_LINE + 1);
    let told = overlong(&mut room, &line);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told[1].starts_with(r#"1< {"jsonrpc":"2.0","id":2,"error":{"code":-32603,"#),
        "{told:?}"
    );
    room.now = PAUSE;
    assert!(
        room.client(1, &prompt("3", "s", "again")).iter().any(|line| line.contains(r#""id":4"#))
    );
}

#[test]
fn an_overlong_request_of_the_agent_is_refused_and_anything_else_is_dropped() {
    let mut room = Room::in_turn();
    let line =
        long(r#"{"id":"p","method":"session/request_permission","params":""#, "\"}", MAX_LINE + 1);
    let told = overlong(&mut room, &line);
    assert!(told[1].starts_with(r#"agent< {"jsonrpc":"2.0","id":"p","error":{"code":-32600,"#));
    let line = long(r#"{"method":"session/update","params":""#, "\"}", MAX_LINE + 1);
    assert_eq!(overlong(&mut room, &line), ["log"]);
    assert_eq!(overlong(&mut room, &long("DEBUG {\"id\":3,", "}", MAX_LINE + 1)), ["log"]);
}

#[test]
fn an_answer_that_outgrows_the_limit_by_its_askers_id_is_an_error_under_it() {
    let mut room = Room::greeted();
    let id = format!("\"{}\"", "i".repeat(200));
    room.client(1, &format!(r#"{{"id":{id},"method":"_a"}}"#));
    let told = room.agent(&long(r#"{"id":2,"result":""#, "\"}", MAX_LINE - 201));
    assert!(told[0].len() == MAX_LINE + 3, "it fits: {}", told[0].len());
    room.client(1, &format!(r#"{{"id":{id},"method":"_a"}}"#));
    let told = room.agent(&long(r#"{"id":3,"result":""#, "\"}", MAX_LINE - 200));
    let error = Frame::parse(&told[0].as_bytes()[3..]).unwrap();
    assert_eq!((error.id(), told.len()), (Some(id.as_str()), 1));
    assert_eq!(error.get(&["error", "code"]), Some("-32603"));
}

#[test]
fn a_prompt_whose_replay_would_be_longer_than_a_line_is_replayed_as_its_length() {
    let mut room = Room::talking();
    let line = long(
        r#"{"id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"text":""#,
        "\"}]}}",
        MAX_LINE,
    );
    let done = room.client(1, &line);
    let journal = done.iter().find_map(|line| line.strip_prefix("journal s ")).unwrap();
    assert!(journal.len() < 1000 && journal.contains("too many to be shown again"), "{journal}");
    assert!(done.iter().any(|line| line.len() > MAX_LINE / 2 && line.starts_with("agent< ")));
}

#[test]
fn a_refused_line_of_the_agent_leaves_nobody_waiting() {
    let twice = r#""sessionId":"s","sessionId":"t""#;
    let mut room = Room::in_turn();
    let asks = format!(r#"{{"id":7,"method":"session/request_permission","params":{{{twice}}}}}"#);
    let told = room.agent(&asks);
    assert_eq!(told[0], "log");
    assert!(
        told[1].starts_with(r#"agent< {"jsonrpc":"2.0","id":7,"error":{"code":-32600,"#),
        "{told:?}"
    );
    // Its id is one of ours by chance: that turn goes on.
    let told = room.agent(r#"{"id":3,"method":"a","method":"b"}"#);
    assert!(told.iter().all(|line| !line.starts_with("1<")), "{told:?}");
    // A log that is JSON answers nothing; an answer with a number that JSON does not have does.
    assert_eq!(room.agent(r#"{"id":3,"level":"info"}"#), ["log"]);
    let told = room.agent(r#"{"id":3,"result":{"stopReason":NaN}}"#);
    assert!(
        told.iter().any(|line| line.starts_with(r#"1< {"jsonrpc":"2.0","id":2,"error""#)),
        "{told:?}"
    );
}

#[test]
fn a_refused_line_of_a_client_is_refused_under_its_own_id_and_its_answer_is_an_error_for_the_agent()
{
    let mut room = Room::in_turn();
    let told = room.client(1, r#"{"id":"\u0041","method":"a","method":"b"}"#);
    assert!(
        told[0].starts_with(r#"1< {"jsonrpc":"2.0","id":"\u0041","error":{"code":-32600,"#),
        "{told:?}"
    );
    assert!(room.client(1, "{\"id\":5,")[0].contains(r#""id":null,"error":{"code":-32700,"#));
    room.agent(&permission("9", "s"));
    let told = room.client(1, r#"{"id":9,"result":{},"Result":{}}"#);
    assert!(
        told[0].starts_with(r#"agent< {"jsonrpc":"2.0","id":9,"error":{"code":-32603,"#),
        "{told:?}"
    );
    assert!(told[1].starts_with(r#"1< {"jsonrpc":"2.0","id":null,"#), "{told:?}");
}

#[test]
fn an_answer_is_found_however_its_number_is_spelled() {
    for (spelling, found) in [("2.0", true), ("20e-1", true), ("\"2\"", false), ("-2", false)] {
        let mut room = Room::greeted();
        room.client(1, r#"{"id":"x","method":"_a"}"#);
        let told = room.agent(&format!(r#"{{"id":{spelling},"result":1}}"#));
        let wanted = if found { r#"1< {"id":"x","result":1}"# } else { "log" };
        assert_eq!(told, [wanted], "{spelling}");
    }
}
