//! Cancels, and lines that are no request.

use super::*;

#[test]
fn a_cancel_takes_back_a_prompt_that_was_not_sent() {
    let mut stage = Stage::initialized(None);
    let (link, session) = stage.opens("agent-1");
    stage.ends(link, Some(close::IDLE));
    let prompt = stage.prompts(&session);
    stage.host(&json!({"method":"session/cancel","params":{"sessionId":session}}));
    assert_eq!(
        stage.told().pop().unwrap(),
        json!({"jsonrpc":"2.0","id":prompt,"result":{"stopReason":"cancelled"}})
    );
    let link = stage.attaches(&session, Some("agent-1"), false);
    assert!(stage.sent(link).iter().all(|line| line["method"] != "session/prompt"));
}

#[test]
fn a_cancel_of_a_running_turn_goes_to_its_worker() {
    let mut stage = Stage::initialized(None);
    let (link, session) = stage.opens("agent-1");
    let prompt = stage.prompts(&session);
    stage.host(&json!({"method":"session/cancel","params":{"sessionId":session}}));
    stage.host(&json!({"method":"$/cancel_request","params":{"requestId":prompt}}));
    let sent = stage.sent(link);
    assert_eq!(sent[1]["params"]["sessionId"], "agent-1");
    assert_eq!(sent[2]["params"]["requestId"], prompt);
}

#[test]
fn what_is_no_request_is_said_to_be_none() {
    let mut stage = Stage::initialized(None);
    for (line, code) in
        [("hello", rpc::PARSE), ("[]", rpc::INVALID_REQUEST), ("{}", rpc::INVALID_REQUEST)]
    {
        stage.happens(Event::FromHost(line.as_bytes()));
        assert_eq!(stage.told()[0]["error"]["code"], code, "{line}");
    }
    stage.happens(Event::FromHost(b"\r\n"));
    assert!(stage.said.is_empty());
    for method in ["session/list", "session/fork", "session/delete", "logout", "made/up"] {
        stage.asks(method, json!({}));
        assert_eq!(stage.told()[0]["error"]["code"], rpc::METHOD_NOT_FOUND, "{method}");
    }
    let mut early = Stage::new(None);
    early.asks("session/new", json!({}));
    assert_eq!(early.told()[0]["error"]["code"], rpc::INVALID_REQUEST);
}
