//! What a confined agent may ask of its host, and in whose name.

use super::*;

#[test]
fn files_terminals_and_unknown_requests_never_reach_the_host() {
    let mut stage = Stage::initialized(None);
    let (link, _) = stage.opens("agent-1");
    for (id, method) in [
        "fs/read_text_file",
        "fs/write_text_file",
        "terminal/create",
        "terminal/output",
        "_x/run",
        "mcp/message",
    ]
    .into_iter()
    .enumerate()
    {
        stage.worker(link, &json!({"jsonrpc":"2.0","id":id,"method":method,"params":{"sessionId":"agent-1","path":"/etc/passwd"}}));
        let sent = stage.sent(link);
        assert_eq!(sent[0]["error"]["code"], rpc::METHOD_NOT_FOUND, "{method}");
        assert_eq!(sent[0]["id"], id);
        stage.worker(
            link,
            &json!({"method":method.trim_start_matches('_'),"params":{"sessionId":"agent-1"}}),
        );
        assert_eq!(stage.told(), Vec::<Value>::new(), "{method}");
    }
}

#[test]
fn a_permission_request_comes_back_to_its_agent_under_its_own_id() {
    let mut stage = Stage::initialized(None);
    let (first, one) = stage.opens("agent-1");
    let (second, two) = stage.opens("agent-2");
    for (link, acp) in [(first, "agent-1"), (second, "agent-2")] {
        stage.worker(link, &json!({"jsonrpc":"2.0","id":"uuid-7","method":"session/request_permission","params":{"sessionId":acp}}));
    }
    let told = stage.told();
    assert_eq!(
        (&told[0]["params"]["sessionId"], &told[1]["params"]["sessionId"]),
        (&json!(one), &json!(two))
    );
    assert!(told[0]["id"].is_u64() && told[0]["id"] != told[1]["id"]);
    stage.host(
        &json!({"jsonrpc":"2.0","id":told[1]["id"],"result":{"outcome":{"outcome":"cancelled"}}}),
    );
    assert!(stage.sent(first).is_empty());
    assert_eq!(stage.sent(second)[0]["id"], "uuid-7");
    // Answered once: a second answer goes nowhere.
    stage.host(&json!({"jsonrpc":"2.0","id":told[1]["id"],"result":{}}));
    assert!(stage.sent(second).is_empty());
    // The agent takes the other one back.
    stage.worker(first, &json!({"method":"$/cancel_request","params":{"requestId":"uuid-7"}}));
    assert_eq!(stage.told()[0]["params"]["requestId"], told[0]["id"]);
}

#[test]
fn an_agent_cannot_speak_for_another_session() {
    let mut stage = Stage::initialized(None);
    let (link, own) = stage.opens("agent-1");
    let (_, other) = stage.opens("agent-2");
    for name in ["agent-2", other.as_str(), own.as_str(), ""] {
        stage.worker(link, &json!({"method":"session/update","params":{"sessionId":name}}));
        stage.worker(
            link,
            &json!({"id":1,"method":"session/request_permission","params":{"sessionId":name}}),
        );
    }
    let twice =
        br#"{"method":"session/update","params":{"sessionId":"agent-1","sessionId":"agent-2"}}"#;
    stage.happens(Event::FromWorker(link, twice));
    assert_eq!(stage.told(), Vec::<Value>::new());
}

#[test]
fn a_host_that_does_not_mind_case_is_told_nothing_else_than_we_read() {
    let mut stage = Stage::initialized(None);
    let (link, own) = stage.opens("agent-1");
    stage.opens("agent-2");
    let prompt = stage.prompts(&own);
    for line in [
        r#"{"id":1,"method":"session/request_permission","params":{"sessionId":"agent-1"},"Method":"fs/read_text_file","Params":{"path":"/etc/passwd"}}"#,
        r#"{"id":1,"method":"session/request_permission","METHOD":"terminal/create","params":{"sessionId":"agent-1"}}"#,
        r#"{"id":1,"ID":2,"method":"session/request_permission","params":{"sessionId":"agent-1"}}"#,
        r#"{"method":"session/update","params":{"sessionId":"agent-1","SessionID":"agent-2"}}"#,
        "{\"method\":\"session/update\",\"params\":{\"sessionId\":\"agent-1\",\"\u{17f}essionId\":\"agent-2\"}}",
        r#"{"id":1,"method":"session/request_permission","params":{"sessionId":"agent-1"},"result":{}}"#,
        r#"{"method":"elicitation/complete","params":{"elicitationId":"e","SessionId":"agent-2"}}"#,
    ] {
        stage.happens(Event::FromWorker(link, line.as_bytes()));
        assert_eq!(stage.told(), Vec::<Value>::new(), "{line}");
    }
    let answer =
        format!(r#"{{"id":{prompt},"result":{{"stopReason":"end_turn","SessionId":"agent-2"}}}}"#);
    stage.happens(Event::FromWorker(link, answer.as_bytes()));
    assert_eq!(stage.told(), Vec::<Value>::new());
}

#[test]
fn an_elicitation_is_completed_in_its_own_session_only() {
    let mut stage = Stage::initialized(None);
    let (link, own) = stage.opens("agent-1");
    let (_, other) = stage.opens("agent-2");
    for name in ["agent-2", other.as_str(), own.as_str()] {
        let params = json!({"elicitationId":"e","sessionId":name});
        stage.worker(link, &json!({"method":"elicitation/complete","params":params}));
        assert_eq!(stage.told(), Vec::<Value>::new(), "{name}");
    }
    stage.worker(link, &json!({"method":"elicitation/complete","params":{"elicitationId":"e"}}));
    let params = json!({"elicitationId":"e","sessionId":"agent-1"});
    stage.worker(link, &json!({"method":"elicitation/complete","params":params}));
    let told = stage.told();
    assert_eq!(told[0]["params"], json!({"elicitationId":"e"}));
    assert_eq!(told[1]["params"], json!({"elicitationId":"e","sessionId":own.as_str()}));
}

#[test]
fn a_line_break_inside_a_message_does_not_start_a_line_of_its_own() {
    let mut stage = Stage::initialized(None);
    let (link, _) = stage.opens("agent-1");
    let forged = b"{\"method\":\"session/update\",\"params\":{\"sessionId\":\"agent-1\",\"update\":\n{\"id\":1,\"method\":\"fs/x\"}\r\n}}";
    stage.happens(Event::FromWorker(link, forged));
    let Some(Action::ToHost(line)) = stage.said.pop() else { panic!("nothing for the host") };
    assert!(!line.contains(&b'\n') && !line.contains(&b'\r'));
}
