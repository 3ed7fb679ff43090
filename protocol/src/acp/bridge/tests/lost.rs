//! What a lost connection, worker or agent means for each request.

use super::*;

#[test]
fn a_broken_connection_fails_the_turn_and_the_next_prompt_goes_on() {
    let mut stage = Stage::initialized(None);
    let (link, session) = stage.opens("agent-1");
    let cut = stage.prompts(&session);
    stage.worker(
        link,
        &json!({"id":5,"method":"session/request_permission","params":{"sessionId":"agent-1"}}),
    );
    let ask = stage.told()[0]["id"].clone();
    stage.ends(link, None);
    let told = stage.told();
    assert_eq!(told[0]["id"], cut);
    assert_eq!(told[0]["error"]["code"], rpc::WORKER);
    assert_eq!(
        told[0]["error"]["data"]["casemate"],
        json!({"delivery":"unknown","session":session})
    );

    let next = stage.prompts(&session);
    let second = stage.attaches(&session, Some("agent-1"), false);
    assert_ne!(link, second);
    assert_eq!(stage.sent(second)[0]["method"], "session/load");
    // The history is not shown twice, and an answer for the old connection does not reach the new one.
    stage.worker(
        second,
        &json!({"method":"session/update","params":{"sessionId":"agent-1","update":{"old":1}}}),
    );
    stage.host(&json!({"id":ask,"result":{}}));
    assert!(stage.sent(second).is_empty());
    stage.answers(second, "casemate", json!({}));
    let sent = stage.sent(second);
    assert_eq!((&sent[0]["id"], &sent[0]["method"]), (&json!(next), &json!("session/prompt")));
    let told = stage.told();
    assert_eq!(told[0]["params"]["update"]["status"], "in_progress");
    assert_eq!(told[1]["params"]["update"]["status"], "completed");
    assert_eq!(told.len(), 2);
}

#[test]
fn a_context_that_cannot_be_loaded_again_is_announced() {
    let mut stage = Stage::initialized(None);
    let (link, session) = stage.opens("agent-1");
    stage.ends(link, Some(close::IDLE));
    assert!(stage.told().is_empty(), "nobody waited for anything");
    let prompt = stage.prompts(&session);
    let link = stage.attaches(&session, Some("agent-1"), false);
    stage.sent(link);
    stage.worker(link, &json!({"id":"casemate","error":{"code":-32603,"message":"no such file"}}));
    assert_eq!(stage.sent(link)[0]["method"], "session/new");
    stage.answers(link, "casemate", json!({"sessionId":"agent-2"}));
    let sent = stage.sent(link);
    assert_eq!(
        (&sent[0]["id"], &sent[0]["params"]["sessionId"]),
        (&json!(prompt), &json!("agent-2"))
    );
    let shown = stage.told();
    assert!(!shown.iter().any(|line| line.to_string().contains("context reset")), "{shown:?}");
    assert!(shown.iter().all(|line| line["params"]["sessionId"] == session.as_str()));
}

#[test]
fn a_superseded_bridge_does_not_come_back_by_itself() {
    let mut stage = Stage::initialized(None);
    let (link, session) = stage.opens("agent-1");
    stage.ends(link, Some(close::SUPERSEDED));
    stage.prompts(&session);
    assert!(stage.wants().is_empty());
    let told = stage.told();
    assert_eq!(told[0]["error"]["data"]["casemate"]["delivery"], "not_delivered");
    stage.asks("session/load", json!({"sessionId":session,"cwd":"/x"}));
    assert_eq!(stage.wants().len(), 1);
}

#[test]
fn a_prompt_that_met_a_worker_on_its_way_out_goes_to_the_next_one() {
    let mut stage = Stage::initialized(None);
    let (link, session) = stage.opens("agent-1");
    let prompt = stage.prompts(&session);
    let data = json!({"casemate":{"delivery":"not_delivered","reattach":true}});
    stage
        .worker(link, &json!({"id":prompt,"error":{"code":rpc::WORKER,"message":"m","data":data}}));
    let next = stage.attaches(&session, Some("agent-1"), false);
    assert_eq!(stage.sent(next)[0]["method"], "session/load");
    stage.answers(next, "casemate", json!({}));
    assert_eq!(stage.sent(next)[0]["id"], prompt);
    assert!(stage.told().iter().all(|line| line.get("id").is_none()), "not answered yet");
}

#[test]
fn an_agent_that_ended_leaves_the_turn_interrupted() {
    let mut stage = Stage::initialized(None);
    let (link, session) = stage.opens("agent-1");
    stage.prompts(&session);
    stage.ends(link, Some(close::AGENT_GONE));
    assert_eq!(stage.told()[0]["error"]["data"]["casemate"]["delivery"], "interrupted");
}

#[test]
fn a_worker_that_does_not_start_fails_what_waited_for_it() {
    let mut stage = Stage::initialized(None);
    let id = stage.asks("session/new", json!({"cwd":"/x"}));
    let (link, _) = stage.wants().pop().unwrap();
    stage.happens(Event::AttachFailed(
        link,
        Refusal { code: rpc::WORKER, message: "agent: no such program".into() },
    ));
    let told = stage.told();
    assert_eq!((&told[0]["id"], &told[0]["error"]["code"]), (&json!(id), &json!(rpc::WORKER)));
    assert_eq!(told[0]["error"]["data"]["casemate"]["delivery"], "not_delivered");
    // The next one starts afresh.
    stage.asks("session/new", json!({"cwd":"/x"}));
    assert_eq!(stage.wants().len(), 1);
}

#[test]
fn each_request_of_a_lost_attachment_gets_the_word_that_fits_how_far_it_got() {
    let mut stage = Stage::initialized(None);
    let (link, session) = stage.opens("agent-1");
    // Lines 1 and 2 were `initialize` and `session/new`.
    let acked = stage.prompts(&session);
    let sent = stage.asks("session/set_mode", json!({"sessionId":session,"modeId":"m"}));
    let never = stage.asks("session/set_mode", json!({"sessionId":session,"modeId":"n"}));
    let unsent = stage.prompts(&session);
    let fate = Fate { reach: Reach { acked: 3, sent: 4 }, agent_ended: true };
    let ending = Ending { code: None, reason: "its worker is gone".into(), fate: Some(fate) };
    stage.happens(Event::WorkerEnded(link, ending));
    let words: Vec<_> = stage
        .told()
        .iter()
        .filter(|line| line.get("error").is_some())
        .map(|line| (line["id"].clone(), line["error"]["data"]["casemate"]["delivery"].clone()))
        .collect();
    let word = |id: u64, word: &str| (json!(id), json!(word));
    assert_eq!(
        words,
        [word(acked, "interrupted"), word(sent, "unknown"), word(never, "not_delivered")]
    );
    // The prompt that never left needs nobody's decision: it goes to the next worker, once.
    let second = stage.attaches(&session, Some("agent-1"), false);
    assert_eq!(stage.sent(second)[0]["method"], "session/load");
    stage.answers(second, "casemate", json!({}));
    let lines = stage.sent(second);
    assert_eq!(lines.len(), 1);
    assert_eq!((&lines[0]["id"], &lines[0]["method"]), (&json!(unsent), &json!("session/prompt")));
    stage.answers(second, unsent, json!({"stopReason":"end_turn"}));
    assert!(stage.told().iter().any(|line| line["id"] == unsent && line.get("result").is_some()));
}

#[test]
fn a_superseded_bridge_sends_nothing_again() {
    let mut stage = Stage::initialized(None);
    let (link, session) = stage.opens("agent-1");
    let unsent = stage.prompts(&session);
    let fate = Fate { reach: Reach { acked: 2, sent: 2 }, agent_ended: false };
    let code = Some(close::SUPERSEDED);
    let ending = Ending { code, reason: "newer".into(), fate: Some(fate) };
    stage.happens(Event::WorkerEnded(link, ending));
    let told = stage.told();
    assert_eq!(told[0]["id"], unsent);
    assert_eq!(told[0]["error"]["data"]["casemate"]["delivery"], "not_delivered");
    assert!(stage.wants().is_empty());
}
