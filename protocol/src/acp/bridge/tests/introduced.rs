//! Who the agent is: `initialize` from the store, or from a worker that is asked for it.

use super::*;

#[test]
fn a_known_agent_is_introduced_without_a_worker() {
    let mut stage = Stage::new(None);
    let id = stage.asks("initialize", json!({"protocolVersion":1}));
    assert!(matches!(stage.said[..], [Action::LoadHandshake(_)]));
    stage.happens(Event::Handshake(Some(RESULT)));
    let told = stage.told();
    assert_eq!(told[0]["id"], id);
    assert_eq!(told[0]["result"]["agentInfo"]["name"], "a");
    assert!(stage.wants().is_empty());
}

#[test]
fn an_unknown_agent_is_asked_and_its_session_is_the_first_one() {
    let mut stage = Stage::new(None);
    let initialize = stage.asks(
        "initialize",
        json!({"protocolVersion":1,"clientCapabilities":{"fs":{"readTextFile":true},"terminal":true}}),
    );
    stage.happens(Event::Handshake(None));
    let new = stage.asks("session/new", json!({"cwd":"/x","mcpServers":[]}));
    let session = SessionId::random();
    let (link, want) = stage.wants().pop().unwrap();
    assert_eq!(want, Want::Key(None));
    stage.happens(Event::Attached(link, attachment(&session)));
    let sent = stage.sent(link);
    assert_eq!(sent[0]["params"], json!({"protocolVersion":1,"clientCapabilities":{}}));
    stage.answers(link, "casemate", serde_json::from_str(RESULT).unwrap());
    assert!(stage.said.iter().any(
        |action| matches!(action, Action::StoreHandshake(_, raw) if raw.contains("agentInfo"))
    ));
    assert_eq!(stage.told()[0]["id"], initialize);
    assert_eq!(stage.sent(link)[0]["method"], "session/new");
    assert!(stage.wants().is_empty(), "no second session for it");
    stage.answers(link, new, json!({"sessionId":"agent-1"}));
    assert_eq!(stage.told()[0]["result"]["sessionId"], session.as_str());
}

#[test]
fn an_agent_of_a_remote_repository_is_asked_in_an_empty_session() {
    let mut stage = Stage::new(Some("thread"));
    stage.bridge.settings.intent.repository = Some("https://example.org/big.git".into());
    let id = stage.asks("initialize", json!({"protocolVersion":1}));
    stage.happens(Event::Handshake(None));
    assert!(matches!(stage.said[..], [Action::LoadHandshake(_), Action::Attach(_, Want::Blank)]));
    let blank = SessionId::random();
    let link = stage.attaches(&blank, None, true);
    assert_eq!(stage.told()[0]["id"], id);
    assert!(
        stage.said.contains(&Action::Detach(link)) && stage.said.contains(&Action::Discard(blank))
    );
    stage.asks("session/new", json!({"cwd":"/x"}));
    assert!(matches!(&stage.wants()[..], [(_, Want::Key(Some(key)))] if key == "thread"));
}

#[test]
fn an_agent_that_starts_slowly_is_introduced_to_the_next_who_asks() {
    let mut stage = Stage::new(None);
    let first = stage.asks("initialize", json!({"protocolVersion":1}));
    stage.happens(Event::Handshake(None));
    stage.happens(Event::HandshakeLate);
    assert!(!stage.bridge.is_introducing());
    let told = stage.told();
    assert_eq!((&told[0]["id"], &told[0]["error"]["code"]), (&json!(first), &json!(rpc::WORKER)));
    let second = stage.asks("initialize", json!({"protocolVersion":1}));
    stage.attaches(&SessionId::random(), None, true);
    let told = stage.told();
    assert_eq!((told.len(), &told[0]["id"]), (1, &json!(second)));
    assert!(told[0]["result"].is_object());
}

#[test]
fn a_session_that_was_only_asked_for_its_name_is_discarded() {
    let mut stage = Stage::new(None);
    stage.asks("initialize", json!({"protocolVersion":1}));
    stage.happens(Event::Handshake(None));
    let session = SessionId::random();
    stage.attaches(&session, None, true);
    stage.happens(Event::HostEnded);
    assert!(stage.said.contains(&Action::Discard(session)));
    assert!(stage.bridge.finished());
}

#[test]
fn an_agent_that_changed_fails_the_new_session_and_is_remembered() {
    let mut stage = Stage::initialized(None);
    stage.asks("session/new", json!({"cwd":"/x"}));
    let (link, _) = stage.wants().pop().unwrap();
    let session = SessionId::random();
    stage.happens(Event::Attached(link, attachment(&session)));
    stage.answers(link, "casemate", json!({"protocolVersion":1,"agentCapabilities":{}}));
    assert!(stage.told()[0]["error"]["message"].as_str().unwrap().contains("start again"));
    assert!(stage.said.iter().any(|action| matches!(action, Action::StoreHandshake(..))));
    assert!(stage.said.contains(&Action::Discard(session)));
}

#[test]
fn an_authentication_is_repeated_to_each_worker() {
    let mut stage = Stage::initialized(None);
    let (first, _) = stage.opens("agent-1");
    let id = stage.asks("authenticate", json!({"methodId":"env"}));
    assert_eq!(stage.sent(first)[0]["params"]["methodId"], "env");
    stage.answers(first, id, json!({}));
    assert_eq!(stage.told()[0]["id"], id);
    stage.asks("session/new", json!({"cwd":"/x"}));
    let second = stage.attaches(&SessionId::random(), None, true);
    let sent = stage.sent(second);
    assert_eq!((&sent[0]["method"], &sent[0]["id"]), (&json!("authenticate"), &json!("casemate")));
    stage.answers(second, "casemate", json!({}));
    assert_eq!(stage.sent(second)[0]["method"], "session/new");
}

#[test]
fn a_session_that_told_the_agents_name_can_be_loaded_by_its_id() {
    let mut stage = Stage::new(Some("thread-7"));
    stage.asks("initialize", json!({"protocolVersion":1}));
    stage.happens(Event::Handshake(None));
    let session = SessionId::random();
    let link = stage.attaches(&session, Some("agent-1"), false);
    let load = stage.asks("session/load", json!({"sessionId":session,"cwd":"/x"}));
    assert!(stage.wants().is_empty());
    stage.answers(link, load, json!({}));
    let prompt = stage.prompts(&session);
    assert_eq!(stage.sent(link).pop().unwrap()["id"], prompt);
}

/// The first failure is what there is to mend, and not that it was one.
#[test]
fn what_comes_after_an_initialize_that_failed_is_told_why_that_failed() {
    let mut stage = Stage::new(None);
    stage.asks("session/new", json!({"cwd":"/x"}));
    let told = stage.told();
    assert_eq!(told[0]["error"]["message"], "session/new came before initialize");
    stage.asks("initialize", json!({"protocolVersion":1}));
    stage.happens(Event::Handshake(None));
    // One that waited, and one that comes later.
    let early = stage.asks("session/new", json!({"cwd":"/x"}));
    let (link, _) = stage.wants().pop().unwrap();
    let message = "agent: no such program".to_owned();
    stage.happens(Event::AttachFailed(link, Refusal { code: rpc::WORKER, message }));
    let told = stage.told();
    assert_eq!((told.len(), &told[1]["id"]), (2, &json!(early)), "{told:?}");
    let late = stage.asks("session/load", json!({"sessionId":"x","cwd":"/x"}));
    let later = stage.told();
    assert_eq!(later[0]["id"], json!(late));
    for (answer, method) in [(&told[1], "session/new"), (&later[0], "session/load")] {
        let said = answer["error"]["message"].as_str().unwrap();
        let expected = format!(
            "initialize failed: agent: no such program; {method} comes after one that succeeds"
        );
        assert_eq!(said, expected);
    }
}
