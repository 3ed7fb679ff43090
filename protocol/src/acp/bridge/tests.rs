//! The bridge played against a host, an allocator and workers that are lines of text.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::codes::{close, rpc};

const RESULT: &str =
    r#"{"protocolVersion":1,"agentCapabilities":{"loadSession":true},"agentInfo":{"name":"a"}}"#;

/// A bridge and everything that it said.
struct Stage {
    bridge: Bridge,
    said: Vec<Action>,
    next_id: u64,
}

impl Stage {
    fn new(key: Option<&str>) -> Self {
        let intent =
            Intent { profile: "default".into(), agent: vec!["agent".into()], ..Intent::default() };
        let bridge = Bridge::new(Settings { intent, key: key.map(Into::into) });
        Self { bridge, said: Vec::new(), next_id: 100 }
    }

    fn happens(&mut self, event: Event<'_>) {
        self.bridge.handle(event, &mut self.said);
    }

    fn host(&mut self, line: &Value) {
        self.happens(Event::FromHost(line.to_string().as_bytes()));
    }

    /// A request of the host; its id.
    fn asks(&mut self, method: &str, params: Value) -> u64 {
        self.next_id += 1;
        self.host(&json!({"jsonrpc":"2.0","id":self.next_id,"method":method,"params":params}));
        self.next_id
    }

    fn worker(&mut self, link: Link, line: &Value) {
        self.happens(Event::FromWorker(link, line.to_string().as_bytes()));
    }

    fn answers(&mut self, link: Link, id: impl Into<Value>, result: Value) {
        self.worker(link, &json!({"jsonrpc":"2.0","id":id.into(),"result":result}));
    }

    fn ends(&mut self, link: Link, code: Option<u16>) {
        self.happens(Event::WorkerEnded(link, Ending { code, reason: "why".into(), fate: None }));
    }

    /// What the host was told since last asked.
    fn told(&mut self) -> Vec<Value> {
        self.drain(|action| match action {
            Action::ToHost(line) => Some(serde_json::from_slice(line).unwrap()),
            _ => None,
        })
    }

    fn sent(&mut self, link: Link) -> Vec<Value> {
        self.drain(|action| match action {
            Action::ToWorker(to, line) if *to == link => {
                Some(serde_json::from_slice(line).unwrap())
            }
            _ => None,
        })
    }

    fn wants(&mut self) -> Vec<(Link, Want)> {
        self.drain(|action| match action {
            Action::Attach(link, want) => Some((*link, want.clone())),
            _ => None,
        })
    }

    fn drain<T>(&mut self, mut pick: impl FnMut(&Action) -> Option<T>) -> Vec<T> {
        let mut picked = Vec::new();
        self.said.retain(|action| match pick(action) {
            Some(value) => {
                picked.push(value);
                false
            }
            None => true,
        });
        picked
    }

    /// `initialize`, answered from the store.
    fn initialized(key: Option<&str>) -> Self {
        let mut stage = Self::new(key);
        stage.asks(
            "initialize",
            json!({"protocolVersion":1,"clientCapabilities":{"fs":{"readTextFile":true}}}),
        );
        stage.happens(Event::Handshake(Some(RESULT)));
        stage.said.clear();
        stage
    }

    /// The allocator and the worker do their part for the newest attempt.
    fn attaches(&mut self, session: &SessionId, acp: Option<&str>, created: bool) -> Link {
        let (link, _) = self.wants().pop().expect("the bridge wants a session");
        let attachment = Attachment {
            session: session.clone(),
            created,
            same_intent: true,
            acp_session: acp.map(Into::into),
            evidence: None,
            tier: crate::tier::Tier::Namespace,
        };
        self.happens(Event::Attached(link, attachment));
        let sent = self.sent(link);
        assert_eq!(sent[0]["method"], "initialize");
        self.worker(
            link,
            &json!({"id":"casemate","result":serde_json::from_str::<Value>(RESULT).unwrap()}),
        );
        link
    }

    /// A `session/new` up to its answer.
    fn opens(&mut self, acp: &str) -> (Link, SessionId) {
        let session = SessionId::random();
        let id = self.asks("session/new", json!({"cwd":"/x","mcpServers":[]}));
        let link = self.attaches(&session, None, true);
        self.answers(link, id, json!({"sessionId":acp}));
        assert_eq!(self.told()[0]["result"]["sessionId"], session.as_str());
        self.said.clear();
        (link, session)
    }

    fn prompts(&mut self, session: &SessionId) -> u64 {
        self.asks("session/prompt", json!({"sessionId":session,"prompt":[]}))
    }
}

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
    let attachment = Attachment {
        session: session.clone(),
        created: true,
        same_intent: true,
        acp_session: None,
        evidence: None,
        tier: crate::tier::Tier::Namespace,
    };
    stage.happens(Event::Attached(link, attachment));
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
fn an_agent_that_can_only_resume_is_resumed_where_a_load_fails() {
    let mut stage = Stage::initialized(None);
    let session = SessionId::random();
    let load = stage.asks("session/load", json!({"sessionId":session,"cwd":"/x"}));
    let (link, _) = stage.wants().pop().unwrap();
    let attachment = Attachment {
        session: session.clone(),
        created: false,
        same_intent: false,
        acp_session: Some("agent-1".into()),
        evidence: None,
        tier: crate::tier::Tier::Namespace,
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
    let attachment = Attachment {
        session: session.clone(),
        created: true,
        same_intent: true,
        acp_session: None,
        evidence: None,
        tier: crate::tier::Tier::Namespace,
    };
    stage.happens(Event::Attached(link, attachment));
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
    assert!(stage.told()[0].to_string().contains("context reset"));
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
    assert!(shown.iter().any(|line| line.to_string().contains("context reset")), "{shown:?}");
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
fn a_line_break_inside_a_message_does_not_start_a_line_of_its_own() {
    let mut stage = Stage::initialized(None);
    let (link, _) = stage.opens("agent-1");
    let forged = b"{\"method\":\"session/update\",\"params\":{\"sessionId\":\"agent-1\",\"update\":\n{\"id\":1,\"method\":\"fs/x\"}\r\n}}";
    stage.happens(Event::FromWorker(link, forged));
    let Some(Action::ToHost(line)) = stage.said.pop() else { panic!("nothing for the host") };
    assert!(!line.contains(&b'\n') && !line.contains(&b'\r'));
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

#[test]
fn an_agent_that_changed_fails_the_new_session_and_is_remembered() {
    let mut stage = Stage::initialized(None);
    stage.asks("session/new", json!({"cwd":"/x"}));
    let (link, _) = stage.wants().pop().unwrap();
    let session = SessionId::random();
    let attachment = Attachment {
        session: session.clone(),
        created: true,
        same_intent: true,
        acp_session: None,
        evidence: None,
        tier: crate::tier::Tier::Namespace,
    };
    stage.happens(Event::Attached(link, attachment));
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

/// One thing that a host or an agent does in the model below; numbers choose the session.
#[derive(Debug, Clone)]
enum Deed {
    Prompt(usize, String),
    Update(usize, String),
    Ask(usize, &'static str),
    AnswerAll,
    Finish(usize),
    Cancel(usize),
    Break(usize),
}

fn deed() -> impl Strategy<Value = Deed> {
    let text = "[ a-z\\\\\"é🙂]{0,12}";
    let ask = prop::sample::select(vec![
        "session/request_permission",
        "fs/read_text_file",
        "fs/write_text_file",
        "terminal/create",
        "terminal/kill",
        "_vendor/x",
        "elicitation/create",
        "",
    ]);
    prop_oneof![
        (0..3usize, text).prop_map(|(at, text)| Deed::Prompt(at, text)),
        (0..3usize, text).prop_map(|(at, text)| Deed::Update(at, text)),
        (0..3usize, ask).prop_map(|(at, method)| Deed::Ask(at, method)),
        Just(Deed::AnswerAll),
        (0..3usize).prop_map(Deed::Finish),
        (0..3usize).prop_map(Deed::Cancel),
        (0..3usize).prop_map(Deed::Break),
    ]
}

struct Room {
    link: Option<Link>,
    session: SessionId,
    acp: String,
    open: Vec<u64>,
}

proptest! {
    #[test]
    fn ids_never_cross_and_nothing_else_changes(deeds in prop::collection::vec(deed(), 1..60)) {
        let mut stage = Stage::initialized(None);
        let mut rooms: Vec<Room> = (0..3)
            .map(|n| {
                let acp = format!("AGENT{n}");
                let (link, session) = stage.opens(&acp);
                Room { link: Some(link), session, acp, open: Vec::new() }
            })
            .collect();
        let mut asked: Vec<(Value, usize)> = Vec::new();
        for deed in deeds {
            let mut copy: Option<String> = None;
            match deed {
                Deed::Prompt(at, text) => {
                    stage.next_id += 1;
                    let id = stage.next_id;
                    // Odd spacing, escapes and numbers, as a host may write them.
                    let line = format!(
                        r#" {{ "params":{{"x":1.0e+2,"sessionId":"{}", "prompt":[{{"text":{}}}]}},"id":{id} ,"method":"session/prompt" }}"#,
                        rooms[at].session, json!(text)
                    );
                    stage.happens(Event::FromHost(line.as_bytes()));
                    rooms[at].open.push(id);
                    copy = Some(line.trim().replace(rooms[at].session.as_str(), &rooms[at].acp));
                    if rooms[at].link.is_none() {
                        let (session, acp) = (rooms[at].session.clone(), rooms[at].acp.clone());
                        let link = stage.attaches(&session, Some(&acp), false);
                        stage.answers(link, "casemate", json!({}));
                        rooms[at].link = Some(link);
                    }
                    let link = rooms[at].link.unwrap();
                    prop_assert!(stage.said.contains(&Action::ToWorker(link, copy.take().unwrap().into_bytes())));
                }
                Deed::Update(at, text) => {
                    let Some(link) = rooms[at].link else { continue };
                    let line = format!(
                        r#"{{"method":"session/update", "params":{{"update":{{"t":{},"n":-0.0}} ,"sessionId":"{}"}},"_meta":null}}"#,
                        json!(text), rooms[at].acp
                    );
                    stage.happens(Event::FromWorker(link, line.as_bytes()));
                    copy = Some(line.replace(&rooms[at].acp, rooms[at].session.as_str()));
                }
                Deed::Ask(at, method) => {
                    let Some(link) = rooms[at].link else { continue };
                    stage.worker(link, &json!({"id":format!("own-{at}"),"method":method,"params":{"sessionId":rooms[at].acp}}));
                }
                Deed::AnswerAll => {
                    for (id, at) in asked.drain(..) {
                        stage.said.clear();
                        stage.host(&json!({"id":id,"result":{}}));
                        let own = format!("own-{at}");
                        for action in &stage.said {
                            let Action::ToWorker(link, line) = action else { continue };
                            prop_assert_eq!(Some(*link), rooms[at].link);
                            prop_assert!(String::from_utf8_lossy(line).contains(&own));
                        }
                    }
                }
                Deed::Finish(at) => {
                    let (Some(link), Some(id)) = (rooms[at].link, rooms[at].open.pop()) else { continue };
                    stage.answers(link, id, json!({"stopReason":"end_turn","sessionId":rooms[at].acp}));
                    let told = stage.told();
                    prop_assert_eq!(&told.last().unwrap()["id"], &json!(id));
                    prop_assert_eq!(&told.last().unwrap()["result"]["sessionId"], &json!(rooms[at].session));
                }
                Deed::Cancel(at) => {
                    stage.host(&json!({"method":"session/cancel","params":{"sessionId":rooms[at].session}}));
                }
                Deed::Break(at) => {
                    let Some(link) = rooms[at].link.take() else { continue };
                    stage.ends(link, None);
                    let lost = rooms[at].open.drain(..).count();
                    prop_assert_eq!(stage.told().len(), lost);
                    asked.retain(|(_, owner)| *owner != at);
                }
            }
            if let Some(copy) = copy {
                prop_assert!(stage.said.contains(&Action::ToHost(copy.into_bytes())));
            }
            for action in std::mem::take(&mut stage.said) {
                match action {
                    Action::ToHost(line) => {
                        let text = String::from_utf8(line).unwrap();
                        prop_assert!(!text.contains("AGENT"), "an agent's id reached the host: {}", text);
                        prop_assert!(!text.contains("fs/") && !text.contains("terminal/"), "{}", text);
                        let line: Value = serde_json::from_str(&text).unwrap();
                        if line.get("method").is_some() && line.get("id").is_some() {
                            let at = rooms.iter().position(|room| line["params"]["sessionId"] == room.session.as_str());
                            asked.push((line["id"].clone(), at.unwrap()));
                        }
                    }
                    Action::ToWorker(link, line) => {
                        let text = String::from_utf8(line).unwrap();
                        let at = rooms.iter().position(|room| room.link == Some(link));
                        for (n, room) in rooms.iter().enumerate() {
                            prop_assert!(!text.contains(room.session.as_str()), "{}", text);
                            prop_assert!(at == Some(n) || !text.contains(&room.acp), "{}", text);
                        }
                    }
                    _ => {}
                }
            }
        }
    }
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
