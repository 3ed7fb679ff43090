//! Which session a request means, and what a new, loaded and closed one is.

use super::*;

#[test]
fn a_session_that_was_answered_outlives_the_bridge() {
    let mut stage = Stage::initialized(None);
    let (link, _) = stage.opens("agent-1");
    stage.happens(Event::HostEnded);
    assert_eq!(stage.said, [Action::Detach(link)]);
}

#[test]
fn an_attempt_that_is_open_when_the_host_hangs_up_leaves_nothing_behind() {
    let mut stage = Stage::initialized(None);
    stage.asks("session/new", json!({"cwd":"/x","mcpServers":[]}));
    stage.happens(Event::HostEnded);
    assert!(!stage.bridge.finished());
    let (link, _) = stage.wants().pop().unwrap();
    let session = SessionId::random();
    stage.happens(Event::Attached(link, attachment(&session)));
    assert_eq!(stage.said, [Action::Detach(link), Action::Discard(session)]);
    assert!(stage.bridge.finished());
}

#[test]
fn each_session_new_is_a_session_of_its_own() {
    let mut stage = Stage::initialized(None);
    let (first, one) = stage.opens("agent-x");
    let (second, two) = stage.opens("agent-x");
    assert_ne!(first, second);
    // Two agents may choose the same id: each line goes to its own worker all the same.
    let id = stage.prompts(&two);
    assert!(stage.sent(first).is_empty());
    assert_eq!(stage.sent(second)[0]["params"]["sessionId"], "agent-x");
    stage.worker(
        second,
        &json!({"method":"session/update","params":{"sessionId":"agent-x","update":{}}}),
    );
    stage.answers(second, id, json!({"stopReason":"end_turn"}));
    let told = stage.told();
    assert_eq!(told[0]["params"]["sessionId"], two.as_str());
    assert_eq!(told[1], json!({"jsonrpc":"2.0","id":id,"result":{"stopReason":"end_turn"}}));
    assert_ne!(one, two);
}

#[test]
fn a_keyed_conversation_is_attached_once() {
    let mut stage = Stage::initialized(Some("thread-7"));
    let id = stage.asks("session/new", json!({"cwd":"/x","mcpServers":[]}));
    assert!(
        matches!(&stage.said[..], [Action::Attach(_, Want::Key(Some(key)))] if key == "thread-7")
    );
    let session = SessionId::random();
    let link = stage.attaches(&session, None, false);
    stage.answers(link, id, json!({"sessionId":"agent-1"}));
    stage.asks("session/new", json!({"cwd":"/x","mcpServers":[]}));
    assert!(stage.wants().is_empty());
    assert_eq!(stage.sent(link).len(), 2);
    stage.asks("session/new", json!({"cwd":"/x","_meta":{"casemate":{"key":"other"}}}));
    assert!(matches!(stage.wants()[..], [(_, Want::Key(Some(ref key)))] if key == "other"));
}

#[test]
fn two_names_of_one_session_are_one_session() {
    let mut stage = Stage::initialized(None);
    let (first, session) = stage.opens("agent-1");
    let cut = stage.prompts(&session);
    let id = stage.asks("session/new", json!({"cwd":"/x","_meta":{"casemate":{"key":"same"}}}));
    let second = stage.attaches(&session, Some("agent-1"), false);
    let told = stage.told();
    assert_eq!((&told[0]["id"], &told[0]["error"]["code"]), (&json!(cut), &json!(rpc::WORKER)));
    assert!(stage.said.contains(&Action::Detach(first)));
    stage.answers(second, id, json!({"sessionId":"agent-2"}));
    stage.prompts(&session);
    assert_eq!(stage.sent(second).pop().unwrap()["params"]["sessionId"], "agent-2");
}

#[test]
fn a_key_whose_session_is_over_leads_to_the_next_one() {
    let mut stage = Stage::initialized(Some("thread"));
    let id = stage.asks("session/new", json!({"cwd":"/x"}));
    let link = stage.attaches(&SessionId::random(), None, true);
    stage.answers(link, id, json!({"sessionId":"agent-1"}));
    stage.ends(link, Some(close::GOING_AWAY));
    stage.told();
    let id = stage.asks("session/new", json!({"cwd":"/x"}));
    assert!(
        stage.said.iter().any(|action| matches!(action, Action::Attach(_, Want::Key(Some(_)))))
    );
    let next = SessionId::random();
    let link = stage.attaches(&next, None, true);
    stage.answers(link, id, json!({"sessionId":"agent-2"}));
    assert_eq!(stage.told()[0]["result"]["sessionId"], next.as_str());
}

#[test]
fn updates_that_come_before_their_session_new_is_answered_are_kept_for_it() {
    let mut stage = Stage::initialized(None);
    let id = stage.asks("session/new", json!({"cwd":"/x","mcpServers":[]}));
    let session = SessionId::random();
    let link = stage.attaches(&session, None, true);
    stage.worker(link, &json!({"method":"session/update","params":{"sessionId":"agent-1","update":{"early":true}}}));
    stage.worker(
        link,
        &json!({"method":"session/update","params":{"sessionId":"stranger","update":{}}}),
    );
    assert!(stage.told().is_empty());
    stage.answers(link, id, json!({"sessionId":"agent-1"}));
    let told = stage.told();
    assert_eq!(told.len(), 2);
    assert_eq!(told[1]["params"], json!({"sessionId":session,"update":{"early":true}}));
}

#[test]
fn what_is_kept_before_a_session_new_is_answered_is_bounded_in_bytes_and_its_loss_is_told() {
    let mut stage = Stage::initialized(None);
    let id = stage.asks("session/new", json!({"cwd":"/x","mcpServers":[]}));
    let session = SessionId::random();
    let link = stage.attaches(&session, None, true);
    let update = json!({"sessionUpdate":"x","filler":"x".repeat(3 << 20)});
    let params = json!({"sessionId":"agent-1","update":update});
    for _ in 0..20 {
        stage.worker(link, &json!({"method":"session/update","params":params}));
    }
    stage.answers(link, id, json!({"sessionId":"agent-1"}));
    assert_eq!(stage.told().len(), 1 + 5, "the answer, and five times 3 MiB");
    let (prompt, next) = (stage.prompts(&session), stage.prompts(&session));
    let told = stage.told();
    assert_eq!(told.len(), 1, "told once");
    assert!(told[0].to_string().contains("the rest of that is lost"), "{told:?}");
    let sent: Vec<Value> = stage.sent(link).into_iter().map(|line| line["id"].clone()).collect();
    assert!(sent.ends_with(&[json!(prompt), json!(next)]), "{sent:?}");
}

#[test]
fn once_a_line_is_held_no_more_none_after_it_is_and_the_next_conversation_begins_anew() {
    let mut stage = Stage::initialized(Some("thread"));
    let session = SessionId::random();
    let new = |stage: &mut Stage| stage.asks("session/new", json!({"cwd":"/x","mcpServers":[]}));
    let mut id = new(&mut stage);
    let link = stage.attaches(&session, None, true);
    for agent in ["agent-1", "agent-2"] {
        // The second finds no room; the third would.
        for (number, length) in [(1, 10), (2, 17 << 20), (3, 10)] {
            let update = json!({"number":number,"filler":"x".repeat(length)});
            let params = json!({"sessionId":agent,"update":update});
            stage.worker(link, &json!({"method":"session/update","params":params}));
        }
        stage.answers(link, id, json!({"sessionId":agent}));
        let told = stage.told();
        let shown: Vec<_> =
            told[1..].iter().map(|line| &line["params"]["update"]["number"]).collect();
        assert_eq!(shown, [1], "a beginning, with nothing missing before its end");
        stage.prompts(&session);
        let told = stage.told();
        assert!(told.len() == 1 && told[0].to_string().contains("the rest of that is lost"));
        id = new(&mut stage);
    }
}

#[test]
fn an_earlier_process_session_is_loaded_by_its_casemate_id() {
    let mut stage = Stage::initialized(None);
    let session = SessionId::random();
    let id = stage.asks("session/load", json!({"sessionId":session,"cwd":"/x","mcpServers":[{"name":"m","env":[{"value":"secret"}]}]}));
    assert!(
        matches!(&stage.said[..], [Action::Attach(_, Want::Session(wanted))] if *wanted == session)
    );
    let link = stage.attaches(&session, Some("agent-9"), false);
    let sent = stage.sent(link);
    assert_eq!(sent[0]["params"], json!({"sessionId":"agent-9","cwd":"/x","mcpServers":[]}));
    stage.worker(
        link,
        &json!({"method":"session/update","params":{"sessionId":"agent-9","update":{"old":1}}}),
    );
    stage.answers(link, id, json!(null));
    let told = stage.told();
    assert_eq!(told[0]["params"]["sessionId"], session.as_str());
    assert_eq!(told[1]["id"], id);
    // The servers that were left out are named in the next turn, without their settings.
    stage.prompts(&session);
    let notice = stage.told().remove(0).to_string();
    assert!(notice.contains(": m") && !notice.contains("secret"), "{notice}");
}

#[test]
fn an_agent_that_can_only_resume_is_resumed_where_a_load_fails() {
    let mut stage = Stage::initialized(None);
    let session = SessionId::random();
    let load = stage.asks("session/load", json!({"sessionId":session,"cwd":"/x"}));
    let (link, _) = stage.wants().pop().unwrap();
    let attachment = Attachment {
        created: false,
        same_intent: false,
        acp_session: Some("agent-1".into()),
        ..attachment(&session)
    };
    stage.happens(Event::Attached(link, attachment));
    let capabilities = json!({"sessionCapabilities":{"resume":{}}});
    stage.answers(link, "casemate", json!({"protocolVersion":1,"agentCapabilities":capabilities}));
    stage.worker(link, &json!({"id":load,"error":{"code":rpc::NOT_FOUND,"message":"no load"}}));
    assert!(stage.told().is_empty());
    let again = stage.sent(link).pop().unwrap();
    assert_eq!((&again["method"], &again["id"]), (&json!("session/resume"), &json!(load)));
    assert_eq!(again["params"]["sessionId"], "agent-1");
    // Only once.
    stage.worker(link, &json!({"id":load,"error":{"code":rpc::NOT_FOUND,"message":"no resume"}}));
    assert_eq!(stage.told()[0]["id"], load);
    stage.asks("session/new", json!({"cwd":"/x"}));
    assert_eq!(stage.sent(link).pop().unwrap()["method"], "session/new");
}

#[test]
fn after_a_failed_load_the_next_session_new_stays_in_that_session() {
    let mut stage = Stage::initialized(None);
    let session = SessionId::random();
    let load = stage.asks("session/load", json!({"sessionId":session,"cwd":"/x","mcpServers":[]}));
    let link = stage.attaches(&session, Some("agent-9"), false);
    stage.worker(link, &json!({"id":load,"error":{"code":-32603,"message":"lost"}}));
    let new = stage.asks("session/new", json!({"cwd":"/x","mcpServers":[]}));
    assert!(stage.wants().is_empty());
    stage.answers(link, new, json!({"sessionId":"agent-10"}));
    let told = stage.told();
    assert_eq!(told[1]["result"]["sessionId"], session.as_str());
    let prompt = stage.prompts(&session);
    assert!(stage.told().is_empty(), "it is the worker's to say what was lost");
    let sent = stage.sent(link);
    assert_eq!(
        (&sent[2]["id"], &sent[2]["params"]["sessionId"]),
        (&json!(prompt), &json!("agent-10"))
    );
}

#[test]
fn a_session_that_does_not_exist_is_a_typed_error() {
    let mut stage = Stage::initialized(None);
    stage.asks("session/load", json!({"sessionId":"nonsense"}));
    assert_eq!(stage.told()[0]["error"]["code"], rpc::NOT_FOUND);
    stage.asks("session/load", json!({"sessionId":SessionId::random()}));
    let (link, _) = stage.wants().pop().unwrap();
    stage.happens(Event::AttachFailed(
        link,
        Refusal { code: rpc::NOT_FOUND, message: "gone".into() },
    ));
    assert_eq!(stage.told()[0]["error"]["code"], rpc::NOT_FOUND);
    stage.prompts(&SessionId::random());
    assert_eq!(stage.told()[0]["error"]["code"], rpc::NOT_FOUND);
}

#[test]
fn close_stops_the_worker_and_answers() {
    let mut stage = Stage::initialized(None);
    let (link, session) = stage.opens("agent-1");
    let prompt = stage.prompts(&session);
    let id = stage.asks("session/close", json!({"sessionId":session}));
    assert!(stage.said.contains(&Action::Detach(link)));
    assert!(stage.said.contains(&Action::Stop(session.clone())));
    assert_eq!(
        stage.told()[0],
        json!({"jsonrpc":"2.0","id":prompt,"result":{"stopReason":"cancelled"}})
    );
    stage.happens(Event::Stopped(session, Ok(())));
    assert_eq!(stage.told()[0], json!({"jsonrpc":"2.0","id":id,"result":{}}));
}
