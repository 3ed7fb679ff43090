//! The bridge played against a host, an allocator and workers that are lines of text.

mod framing;
mod introduced;
mod lost;
mod model;
mod requests;
mod sessions;
mod wall;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::codes::{close, rpc};

const RESULT: &str =
    r#"{"protocolVersion":1,"agentCapabilities":{"loadSession":true},"agentInfo":{"name":"a"}}"#;

/// A new session that was attached as it was asked for.
fn attachment(session: &SessionId) -> Attachment {
    Attachment {
        session: session.clone(),
        created: true,
        same_intent: true,
        acp_session: None,
        evidence: None,
        tier: crate::tier::Tier::Namespace,
    }
}

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
            Action::ToWorker(to, line) | Action::Cancel { link: to, line, .. } if *to == link => {
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
        let acp_session = acp.map(Into::into);
        let attachment = Attachment { created, acp_session, ..attachment(session) };
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
