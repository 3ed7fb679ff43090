//! Connections: one at a time, `initialize` first, bad lines answered.

use super::*;

#[test]
fn whoever_does_not_begin_with_initialize_is_closed() {
    for line in [
        r#"{"id":1,"method":"session/new","params":{}}"#,
        r#"{"method":"initialize"}"#,
        r#"{"id":1,"result":{}}"#,
        "hello",
        "",
    ] {
        let mut room = Room::empty();
        room.connect(1);
        assert_eq!(room.client(1, line), ["close 1 1002"], "{line}");
        assert_eq!(room.client(1, r#"{"id":1,"method":"initialize"}"#), none(), "{line}");
    }
}

#[test]
fn a_newer_client_supersedes_the_older_which_is_not_heard_any_more() {
    let mut room = Room::talking();
    assert_eq!(room.connect(2), ["close 1 4001"]);
    assert_eq!(room.client(1, &prompt("5", "s", "x")), none());
    assert_eq!(room.leave(1), none());
    room.client(2, r#"{"id":0,"method":"initialize"}"#);
    assert_eq!(room.client(2, r#"{"id":1,"method":"x/y"}"#), [r#"agent< {"id":3,"method":"x/y"}"#]);
}

#[test]
fn a_bad_line_is_answered_under_its_id_where_it_has_one_and_the_connection_stays() {
    let mut room = Room::greeted();
    for (line, id, code) in [
        ("{", "null", "-32700"),
        ("[]", "null", "-32700"),
        ("\u{0}", "null", "-32700"),
        (r#"{"id":1}"#, "null", "-32600"),
        (r#"{"id":1,"method":"m","id":2}"#, "null", "-32600"),
        (r#"{"id":1,"method":"session/new","params":{"cwd":"/","\u0063wd":"/"}}"#, "1", "-32600"),
        (r#"{"id":{},"method":"m"}"#, "null", "-32600"),
    ] {
        let answer = room.client(1, line);
        assert_eq!(answer.len(), 1, "{line}");
        assert!(
            answer[0].starts_with(&format!(
                r#"1< {{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"#
            )),
            "{line}: {answer:?}"
        );
    }
    assert_eq!(room.client(1, r#"{"id":1,"method":"m"}"#), [r#"agent< {"id":2,"method":"m"}"#]);
}

#[test]
fn line_breaks_between_tokens_cannot_smuggle_a_second_line_to_the_agent() {
    let mut room = Room::greeted();
    let line =
        "{\"id\":1,\"method\":\"m\",\"params\":\n{\"id\":9,\"method\":\"session/prompt\"}\r\n}";
    assert_eq!(
        room.client(1, line),
        [r#"agent< {"id":2,"method":"m","params": {"id":9,"method":"session/prompt"}  }"#]
    );
    let update = "{\"method\":\"_x\",\"params\":\r{\"id\":9,\"method\":\"fs/read_text_file\"}\r}";
    assert_eq!(
        room.agent(update),
        [r#"1< {"method":"_x","params": {"id":9,"method":"fs/read_text_file"} }"#]
    );
}

#[test]
fn unknown_requests_pass_with_another_id_and_come_back_with_their_own() {
    let mut room = Room::greeted();
    assert_eq!(
        room.client(1, r#"{ "id" : "\u0041" , "method":"_v/x","params":[1.50]}"#),
        [r#"agent< { "id" : 2 , "method":"_v/x","params":[1.50]}"#]
    );
    assert_eq!(
        room.agent(r#"{"id":2,"error":{"code":-32601,"message":"no"}}"#),
        [r#"1< {"id":"\u0041","error":{"code":-32601,"message":"no"}}"#]
    );
}

#[test]
fn two_open_requests_of_one_id_are_each_answered() {
    let mut room = Room::greeted();
    room.client(1, r#"{"id":1,"method":"a"}"#);
    room.client(1, r#"{"id":1,"method":"b"}"#);
    assert_eq!(room.agent(r#"{"id":3,"result":"b"}"#), [r#"1< {"id":1,"result":"b"}"#]);
    assert_eq!(room.agent(r#"{"id":2,"result":"a"}"#), [r#"1< {"id":1,"result":"a"}"#]);
    assert_eq!(room.agent(r#"{"id":2,"result":"a"}"#), ["log"]);
}

#[test]
fn an_answer_for_a_connection_that_is_gone_reaches_nobody() {
    let mut room = Room::greeted();
    room.client(1, r#"{"id":1,"method":"a"}"#);
    room.leave(1);
    room.join(2);
    assert_eq!(room.agent(r#"{"id":2,"result":1}"#), none());
}

#[test]
fn requests_as_notifications_and_the_reverse_do_not_slip_past_their_rule() {
    let mut room = Room::in_turn();
    for method in ["initialize", "session/new", "session/load", "session/prompt", "session/resume"]
    {
        let line = format!(r#"{{"method":"{method}","params":{{"sessionId":"s","cwd":"/"}}}}"#);
        assert_eq!(room.client(1, &line), ["log"], "{method}");
    }
    for method in ["session/cancel", "$/cancel_request"] {
        let line = format!(r#"{{"id":7,"method":"{method}","params":{{"sessionId":"s"}}}}"#);
        let answer = room.client(1, &line);
        assert!(answer[0].starts_with(r#"1< {"jsonrpc":"2.0","id":7,"error":{"code":-32600"#));
        assert_eq!(answer.len(), 1);
    }
}

#[test]
fn other_notifications_pass_both_ways() {
    let mut room = Room::greeted();
    assert_eq!(room.client(1, r#"{"method":"_v/n"}"#), [r#"agent< {"method":"_v/n"}"#]);
    assert_eq!(room.agent(r#"{"method":"_v/n"}"#), [r#"1< {"method":"_v/n"}"#]);
    room.leave(1);
    assert_eq!(room.agent(r#"{"method":"_v/n"}"#), none());
}

#[test]
fn what_is_no_message_of_the_agent_goes_to_the_log() {
    let mut room = Room::greeted();
    assert_eq!(room.agent("DEBUG starting"), ["log"]);
    assert_eq!(room.agent(r#"{"id":99,"result":1}"#), ["log"]);
    assert_eq!(room.agent(r#"{"id":null,"error":{}}"#), ["log"]);
    assert_eq!(room.agent(""), none());
}

#[test]
fn names_that_a_lax_reader_takes_for_others_pass_in_neither_direction() {
    let mut room = Room::in_turn();
    for line in [
        r#"{"id":9,"method":"session/request_permission","params":{"sessionId":"s"},"Method":"fs/read_text_file"}"#,
        r#"{"id":9,"method":"session/request_permission","params":{"sessionId":"s"},"PARAMS":{"path":"/etc/passwd"}}"#,
        r#"{"method":"session/update","params":{"sessionId":"s","SessionID":"t","update":{"sessionUpdate":"plan"}}}"#,
        r#"{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"plan","SessionUpdate":"x"}}}"#,
    ] {
        let told = room.agent(line);
        assert_eq!(told[0], "log", "{line}");
        // Who asked hears that it was refused.
        assert!(told[1..].iter().all(|line| line.starts_with("agent< ")), "{told:?}");
        assert_eq!(told.len() == 2, line.contains("\"id\""), "{told:?}");
        let told = room.client(1, line);
        assert_eq!(told.len(), 1, "{line}");
        assert!(told[0].contains("-32600"), "{told:?}");
    }
}
