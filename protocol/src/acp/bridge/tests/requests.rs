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
fn a_cancel_names_what_it_is_for_and_what_is_taken_back_is_answered_here() {
    let mut stage = Stage::initialized(None);
    let (link, session) = stage.opens("agent-1");
    let (first, second) = (stage.prompts(&session), stage.prompts(&session));
    let before = stage.sent(link).len();
    assert_eq!(before, 2);
    stage.host(&json!({"method":"session/cancel","params":{"sessionId":session}}));
    let cancels = stage.drain(|action| match action {
        Action::Cancel { of, .. } => Some(of.clone()),
        _ => None,
    });
    // Lines 1 and 2 were the bridge's initialize and the host's session/new.
    assert_eq!(cancels, [vec![3, 4]]);
    stage.happens(Event::Revoked(link, vec![4]));
    let answer = json!({"jsonrpc":"2.0","id":second,"result":{"stopReason":"cancelled"}});
    assert_eq!(stage.told(), [answer]);
    // The cancel has number 5.
    stage.prompts(&session);
    stage.host(&json!({"method":"$/cancel_request","params":{"requestId":first}}));
    stage.host(&json!({"method":"session/cancel","params":{"sessionId":session}}));
    let cancels = stage.drain(|action| match action {
        Action::Cancel { of, .. } => Some(of.clone()),
        _ => None,
    });
    assert_eq!(cancels, [vec![3], vec![3, 6]]);
    stage.answers(link, first, json!({"stopReason":"cancelled"}));
    assert_eq!(stage.told().len(), 1, "answered once");
}

#[test]
fn another_request_that_is_taken_back_is_an_error() {
    let mut stage = Stage::initialized(None);
    let (link, session) = stage.opens("agent-1");
    let mode = stage.asks("session/set_mode", json!({"sessionId":session,"modeId":"x"}));
    stage.host(&json!({"method":"$/cancel_request","params":{"requestId":mode}}));
    stage.happens(Event::Revoked(link, vec![3]));
    let told = stage.told().pop().unwrap();
    assert_eq!((&told["id"], &told["error"]["code"]), (&json!(mode), &json!(rpc::CANCELLED)));
    // Nobody else's line, and none twice.
    stage.happens(Event::Revoked(Link(99), vec![3]));
    stage.happens(Event::Revoked(link, vec![3]));
    assert!(stage.told().is_empty());
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
