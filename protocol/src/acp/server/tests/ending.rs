//! The agent's end.

use super::*;

#[test]
fn everybody_who_waits_is_told_what_became_of_the_request() {
    let mut room = Room::in_turn();
    room.client(1, &prompt("3", "s", "waits"));
    room.client(1, r#"{"id":"x","method":"_v/x"}"#);
    room.agent(&permission("1", "s"));
    let told = room.end("exit code 3");
    assert_eq!(told.len(), 4, "{told:?}");
    let fault = |id: &str, delivery: &str| {
        let told = told.iter().find(|line| line.contains(&format!(r#""id":{id},"error""#)));
        let told = told.unwrap();
        assert!(told.contains(r#""code":-32050,"message":"exit code 3; "#));
        assert!(
            told.contains(&format!(
                r#""data":{{"casemate":{{"delivery":"{delivery}","cause":"exit code 3"}}}}"#
            )),
            "{told}"
        );
    };
    fault("2", "interrupted");
    fault("\"x\"", "interrupted");
    fault("3", "not_delivered");
    assert_eq!(told[3], "close 1 4003");
    assert!(matches!(room.server.activity(0), Activity::Idle { .. }));
    assert_eq!(room.server.deadline(), None);
}

#[test]
fn whoever_comes_later_is_told_as_well() {
    let mut room = Room::talking();
    room.end("signal 9");
    room.connect(2);
    for line in [
        r#"{"id":7,"method":"initialize"}"#,
        r#"{"id":7,"method":"session/load","params":{"sessionId":"s"}}"#,
        r#"{"id":7,"method":"session/prompt","params":{"sessionId":"s"}}"#,
    ] {
        let told = room.client(2, line);
        assert_eq!(told.len(), 1);
        assert!(told[0].starts_with(r#"2< {"jsonrpc":"2.0","id":7,"error":{"code":-32050"#));
        assert!(told[0].contains("not_delivered"));
    }
    assert_eq!(
        room.client(2, r#"{"method":"session/cancel","params":{"sessionId":"s"}}"#),
        ["log"]
    );
    assert_eq!(room.agent(&update("s", "plan", "x")), none(), "its output is over");
    assert_eq!(room.end("again"), none());
}

#[test]
fn an_agent_that_never_answers_initialize_ends_the_same_way() {
    let mut room = Room::empty();
    room.connect(1);
    room.client(1, r#"{"id":1,"method":"initialize"}"#);
    room.client(1, r#"{"id":2,"method":"initialize"}"#);
    let told = room.end("could not be started");
    assert!(told[0].contains(r#""id":1"#) && told[0].contains("interrupted"));
    assert!(told[1].contains(r#""id":2"#) && told[1].contains("not_delivered"));
    assert_eq!(told[2], "close 1 4003");
}

#[test]
fn half_a_replay_is_forgotten() {
    let mut room = Room::greeted();
    room.client(1, r#"{"id":1,"method":"session/load","params":{"sessionId":"o"}}"#);
    room.client(1, r#"{"id":2,"method":"session/load","params":{"sessionId":"o"}}"#);
    let told = room.end("signal 11");
    assert_eq!(told[0], "forget o");
    assert!(told[1].contains(r#""id":1"#) && told[1].contains("interrupted"));
    assert!(told[2].contains(r#""id":2"#) && told[2].contains("not_delivered"));
}

#[test]
fn the_reason_fits_a_close_frame() {
    let mut room = Room::talking();
    let mut out = Vec::new();
    let cause = "é".repeat(200);
    room.server.handle(Event::AgentEnded { cause: &cause }, 0, &mut out);
    let Some(Action::Close(_, 4003, reason)) = out.last() else { panic!("{out:?}") };
    assert!(reason.len() <= 123 && reason.starts_with("éé"), "{reason}");
}
