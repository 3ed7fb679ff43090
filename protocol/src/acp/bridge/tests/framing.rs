//! Lines that go no further, from the host's side.

use super::*;
use crate::acp::frame::{MAX_LINE, Outline};

fn padded(line: &Value, to: usize) -> Vec<u8> {
    let mut text = line.to_string();
    let at = text.find("PAD").expect("there is a place for it");
    text.replace_range(at..at + 3, &"x".repeat(to + 3 - text.len()));
    assert_eq!(text.len(), to);
    text.into_bytes()
}

/// An agent's permission request; the host's id of it.
fn asked(stage: &mut Stage, link: Link) -> Value {
    let params = json!({"sessionId":"agent-1","options":[]});
    stage.worker(link, &json!({"id":"own","method":"session/request_permission","params":params}));
    stage.told()[0]["id"].clone()
}

#[test]
fn an_overlong_request_is_refused_under_its_id_and_an_overlong_answer_is_an_error_for_the_agent() {
    let mut stage = Stage::initialized(None);
    let (link, _) = stage.opens("agent-1");
    let ask = asked(&mut stage, link);
    for (line, id) in [
        (json!({"id":"a\"","method":"session/prompt","x":"PAD"}), json!("a\"")),
        (json!({"method":"session/cancel","x":"PAD"}), json!(null)),
        (json!({"id":ask,"result":"PAD"}), json!(null)),
    ] {
        let line = padded(&line, MAX_LINE + 1);
        stage.happens(Event::HostOverlong(&Outline::of(&line)));
        let told = stage.told().remove(0);
        assert_eq!((&told["id"], &told["error"]["code"]), (&id, &json!(rpc::INVALID_REQUEST)));
    }
    let sent = stage.sent(link);
    assert_eq!((&sent[0]["id"], &sent[0]["error"]["code"]), (&json!("own"), &json!(rpc::INTERNAL)));
    assert_eq!(sent.len(), 1);
}

#[test]
fn a_refused_line_is_refused_under_its_own_id_and_an_answer_reaches_the_agent_as_an_error() {
    let mut stage = Stage::initialized(None);
    let (link, _) = stage.opens("agent-1");
    let ask = asked(&mut stage, link);
    stage.happens(Event::FromHost(br#"{"id":5,"method":"m","params":{"cwd":1,"cwd":2}}"#));
    let told = stage.told().remove(0);
    assert_eq!((&told["id"], &told["error"]["code"]), (&json!(5), &json!(rpc::INVALID_REQUEST)));
    assert_eq!(told["error"]["data"]["casemate"]["delivery"], "not_delivered");
    let answer = format!(r#"{{"id":{ask},"result":{}1{}}}"#, "[".repeat(127), "]".repeat(127));
    stage.happens(Event::FromHost(answer.as_bytes()));
    assert_eq!(stage.told().remove(0)["id"], json!(null));
    assert_eq!(stage.sent(link)[0]["error"]["code"], rpc::INTERNAL);
    // Asked once, answered once.
    stage.happens(Event::FromHost(answer.as_bytes()));
    assert_eq!(stage.sent(link).len(), 0);
}

#[test]
fn what_outgrows_the_limit_by_the_agents_ids_is_refused_and_the_rest_goes_on() {
    let mut stage = Stage::initialized(None);
    let name = "n".repeat(100);
    let (link, session) = stage.opens(&name);
    let line = |method| json!({"id":9,"method":method,"params":{"sessionId":session,"x":"PAD"}});
    let grows = name.len() - session.as_str().len();
    for (length, goes) in [(MAX_LINE - grows, true), (MAX_LINE - grows + 1, false)] {
        stage.happens(Event::FromHost(&padded(&line("_long"), length)));
        assert_eq!(
            stage.said.iter().any(
                |action| matches!(action, Action::ToWorker(_, line) if line.len() == MAX_LINE)
            ),
            goes
        );
        if goes {
            stage.said.clear();
            stage.answers(link, 9, json!({}));
            assert_eq!(stage.told()[0]["result"], json!({}));
        } else {
            let told = stage.told().remove(0);
            assert_eq!(told["error"]["data"]["casemate"]["delivery"], "not_delivered", "{told}");
        }
    }
    stage.prompts(&session);
    assert_eq!(stage.sent(link).len(), 1);
}
