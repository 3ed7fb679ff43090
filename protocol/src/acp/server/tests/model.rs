//! Random interleavings against an observer that knows nothing of the server's state: it reads what goes to either
//! side with a JSON library of its own and checks what must hold at every step and at the end.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::Value;

use super::*;

/// What may happen; numbers choose among what is there, modulo.
#[derive(Debug, Clone)]
enum Step {
    Join,
    Leave,
    New,
    Load(usize),
    Resume(usize),
    Prompt(usize),
    Cancel(usize),
    CancelRequest(usize),
    Other,
    AnswerAsk(usize),
    Answer(usize, bool),
    Update(usize, bool),
    Permission(usize),
    Elicit,
    Pass(u64),
    End,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Join),
        1 => Just(Step::Leave),
        3 => Just(Step::New),
        3 => (0..4usize).prop_map(Step::Load),
        1 => (0..4usize).prop_map(Step::Resume),
        6 => (0..4usize).prop_map(Step::Prompt),
        2 => (0..4usize).prop_map(Step::Cancel),
        2 => (0..9usize).prop_map(Step::CancelRequest),
        2 => Just(Step::Other),
        3 => (0..9usize).prop_map(Step::AnswerAsk),
        9 => (0..9usize, prop::bool::weighted(0.8)).prop_map(|(n, ok)| Step::Answer(n, ok)),
        6 => (0..4usize, any::<bool>()).prop_map(|(n, content)| Step::Update(n, content)),
        2 => (0..4usize).prop_map(Step::Permission),
        1 => Just(Step::Elicit),
        2 => prop_oneof![1..200u64, 1..2 * TTL].prop_map(Step::Pass),
        1 => prop::bool::weighted(0.1).prop_map(|end| if end { Step::End } else { Step::Join }),
    ]
}

/// A request of a client.
#[derive(Debug)]
struct Sent {
    conn: u64,
    line: String,
    answered: bool,
}

/// A request of the agent.
#[derive(Debug, Default)]
struct Asked {
    with: Option<u64>,
    answered: bool,
}

struct Observer {
    room: Server,
    now: u64,
    conns: u64,
    current: Option<u64>,
    counter: u64,
    sent: BTreeMap<String, Sent>,
    at_agent: BTreeMap<u64, Value>,
    ids: BTreeSet<u64>,
    asked: BTreeMap<u64, Asked>,
    names: Vec<String>,
    live: BTreeSet<String>,
    attached: BTreeSet<String>,
    journal: BTreeMap<String, Vec<u64>>,
    records: BTreeMap<String, Vec<u8>>,
    seen: BTreeMap<String, Vec<u64>>,
    greeted: bool,
    started: u32,
    ended: bool,
}

impl Observer {
    fn new() -> Self {
        let settings = Settings { worktree: "/work".into(), permission_ttl_ms: TTL };
        Self {
            room: Server::new(settings, Saved::default(), 0),
            now: 0,
            conns: 0,
            current: None,
            counter: 0,
            sent: BTreeMap::new(),
            at_agent: BTreeMap::new(),
            ids: BTreeSet::new(),
            asked: BTreeMap::new(),
            names: Vec::new(),
            live: BTreeSet::new(),
            attached: BTreeSet::new(),
            journal: BTreeMap::new(),
            records: BTreeMap::new(),
            seen: BTreeMap::new(),
            greeted: false,
            started: 0,
            ended: false,
        }
    }

    fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    fn name(&self, index: usize) -> String {
        self.names.get(index).cloned().unwrap_or_else(|| "old".into())
    }

    fn open(&self, method: &str, session: &str) -> Option<u64> {
        let wanted =
            |frame: &Value| frame["method"] == method && frame["params"]["sessionId"] == session;
        self.at_agent.iter().find(|(_, frame)| wanted(frame)).map(|(id, _)| *id)
    }

    fn asker(&self, id: u64) -> u64 {
        self.sent[self.at_agent[&id]["params"]["_meta"]["of"].as_str().unwrap()].conn
    }

    /// Whatever the agent was asked, its client asked for a load.
    fn wants_the_past(&self, id: u64) -> bool {
        let of = self.at_agent[&id]["params"]["_meta"]["of"].as_str().unwrap();
        self.sent[of].line.contains("session/load")
    }

    fn play(&mut self, event: Event<'_>) -> Vec<Action> {
        let mut out = Vec::new();
        self.room.handle(event, self.now, &mut out);
        for action in &out {
            self.watch(action);
        }
        let saved = out.iter().rev().find_map(|action| match action {
            Action::Save(saved) => Some(saved),
            _ => None,
        });
        assert!(
            saved.is_none_or(|saved| saved == self.room.saved()),
            "what is kept is made durable"
        );
        for action in &out {
            let Action::Recall { session } = action else { continue };
            let record = self.records.get(session).map(|text| Record::read(text).unwrap());
            let record = record.as_ref().filter(|record| record.begun());
            let mut none = Vec::new();
            self.room.handle(Event::Recalled { session, record }, self.now, &mut none);
            assert_eq!(none, []);
        }
        out
    }

    fn watch(&mut self, action: &Action) {
        match action {
            Action::StartAgent => self.started += 1,
            Action::ToAgent(line) | Action::AnswerAgent(line) => {
                self.watch_agent(std::str::from_utf8(line).unwrap())
            }
            Action::ToClient(conn, line) => {
                assert_eq!(Some(conn.0), self.current, "only the current client is spoken to");
                self.watch_client(conn.0, std::str::from_utf8(line).unwrap());
            }
            Action::Close(conn, ..) => {
                assert_eq!(Some(conn.0), self.current);
                self.current = None;
            }
            Action::Journal { session, line } => {
                let line: Value = serde_json::from_slice(line).unwrap();
                assert_eq!(line["params"]["sessionId"], **session);
                if let Some(number) = line["params"]["update"]["number"].as_u64() {
                    self.journal.entry(session.clone()).or_default().push(number);
                }
            }
            Action::ForgetJournal { session } => drop(self.journal.remove(session)),
            Action::Replay { conn, session } => {
                assert_eq!(Some(conn.0), self.current);
                let past = self.journal.get(session).cloned().unwrap_or_default();
                self.seen.insert(session.clone(), past);
            }
            Action::Save(_) | Action::Recall { .. } | Action::Log(_) => {}
            Action::Record { session, entry } => {
                let text = self.records.entry(session.clone()).or_default();
                let last = Record::read(text).unwrap().last();
                text.extend(entry.line(last));
                text.push(b'\n');
            }
        }
        assert!(self.started <= 1, "one agent a generation");
        let turns = self.at_agent.values().filter(|frame| frame["method"] == "session/prompt");
        assert!(turns.count() <= 1, "one turn at a time");
    }

    fn watch_agent(&mut self, line: &str) {
        assert!(!line.contains(['\n', '\r']));
        let frame: Value = serde_json::from_str(line).unwrap();
        match (frame["method"].as_str(), frame["id"].as_u64()) {
            (Some(method), Some(id)) => {
                assert!(self.ids.insert(id), "ids are never used again");
                if method == "initialize" {
                    let another = self.at_agent.values().any(|one| one["method"] == method);
                    assert!(!self.greeted && !another, "initialize is said once");
                }
                let of = frame["params"]["_meta"]["of"].as_str().unwrap();
                let sent = &self.sent[of];
                let restored =
                    line.replacen(&format!(r#""id" : {id},"#), &format!(r#""id" : "{of}","#), 1);
                let mut expected =
                    sent.line.replace("/host", "/work").replace(r#"[{"x":1e0}]"#, "[]");
                if self.greeted && expected.contains("session/resume") {
                    // An agent that can load is asked to.
                    expected = expected.replace("session/resume", "session/load");
                    if !expected.contains("mcpServers") {
                        expected = expected.replace("}} }", r#"},"mcpServers":[]} }"#);
                    }
                }
                assert_eq!(restored, expected, "nothing but what is spliced differs");
                if method == "session/prompt" && self.current == Some(sent.conn) {
                    self.attached.insert(frame["params"]["sessionId"].as_str().unwrap().into());
                }
                self.at_agent.insert(id, frame);
            }
            (Some("session/cancel"), None) => {
                let session = frame["params"]["sessionId"].as_str().unwrap();
                assert!(
                    self.open("session/prompt", session).is_some(),
                    "a late cancel got through"
                );
            }
            (Some(_), None) => {
                let id = frame["params"]["requestId"].as_u64().unwrap();
                assert_eq!(Some(self.asker(id)), self.current, "cancels another's request");
            }
            (None, id) => {
                let asked = self.asked.get_mut(&id.unwrap()).unwrap();
                assert!(!std::mem::replace(&mut asked.answered, true), "answered twice: {line}");
            }
        }
    }

    fn watch_client(&mut self, conn: u64, line: &str) {
        let frame: Value = serde_json::from_str(line).unwrap();
        let update = &frame["params"]["update"];
        match (frame["method"].as_str(), &frame["id"]) {
            (None, id) => {
                let sent = self.sent.get_mut(id.as_str().unwrap()).unwrap();
                assert_eq!(sent.conn, conn, "an answer for another connection: {line}");
                assert!(!std::mem::replace(&mut sent.answered, true), "answered twice: {line}");
                if let Some(of) = frame["result"]["of"].as_str() {
                    assert_eq!(Some(of), id.as_str(), "another request's answer");
                }
                let setup: Value = serde_json::from_str(&sent.line).unwrap();
                let method = setup["method"].as_str().unwrap();
                if frame.get("result").is_some()
                    && ["session/load", "session/resume"].contains(&method)
                {
                    self.attached.insert(setup["params"]["sessionId"].as_str().unwrap().into());
                }
                if let Some(session) = frame["result"]["sessionId"].as_str() {
                    self.attached.insert(session.into());
                }
            }
            (Some("session/update"), _) => {
                if let Some(number) = update["number"].as_u64() {
                    let session = frame["params"]["sessionId"].as_str().unwrap().to_owned();
                    let seen = self.seen.entry(session).or_default();
                    assert!(
                        seen.last().is_none_or(|last| *last < number),
                        "doubled or out of order"
                    );
                    seen.push(number);
                } else {
                    let notice = update["toolCallId"].as_str().unwrap();
                    let ours = ["casemate-wait-", "casemate-notice-"];
                    assert!(ours.iter().any(|ours| notice.starts_with(ours)), "{notice}");
                }
            }
            (Some(_), id) => {
                let asked = self.asked.get_mut(&id.as_u64().unwrap()).unwrap();
                assert_ne!(asked.with, Some(conn), "delivered twice");
                assert!(!asked.answered);
                asked.with = Some(conn);
            }
        }
    }

    fn request(&mut self, method: &str, members: &str) {
        let Some(conn) = self.current else { return };
        let id = format!("c{conn}-{}", self.next());
        let line = format!(
            r#"{{ "id" : "{id}","method":"{method}","n":1.0e+0,"params":{{{members}"_meta":{{"of":"{id}","t":"\u00e9"}}}} }}"#
        );
        self.sent.insert(id, Sent { conn, line: line.clone(), answered: false });
        self.play(Event::FromClient(Conn(conn), &line.as_bytes().to_vec().into()));
    }

    fn notify(&mut self, line: &str) {
        if let Some(conn) = self.current {
            self.play(Event::FromClient(Conn(conn), &line.as_bytes().to_vec().into()));
        }
    }

    fn join(&mut self) {
        self.conns += 1;
        let conn = self.conns;
        self.play(Event::Connected(Conn(conn)));
        self.current = Some(conn);
        self.attached.clear();
        self.seen.clear();
        self.request("initialize", "");
    }

    fn leave(&mut self) {
        if let Some(conn) = self.current.take() {
            self.play(Event::Disconnected(Conn(conn)));
        }
    }

    /// The agent answers one of its open requests.
    fn answer(&mut self, index: usize, ok: bool) {
        let open: Vec<u64> = self.at_agent.keys().copied().collect();
        let Some(&id) = open.get(index % open.len().max(1)) else { return };
        let of = self.at_agent[&id]["params"]["_meta"]["of"].clone();
        let frame = self.at_agent.remove(&id).unwrap();
        let session = frame["params"]["sessionId"].as_str().map(String::from);
        let result = match frame["method"].as_str().unwrap() {
            "initialize" => {
                self.greeted |= ok;
                r#"{"agentCapabilities":{"loadSession":true}}"#.to_owned()
            }
            "session/new" => {
                let name = format!("s{}", self.next());
                if ok {
                    self.names.push(name.clone());
                    self.live.insert(name.clone());
                }
                format!(r#"{{"sessionId":"{name}"}}"#)
            }
            "session/load" | "session/resume" => {
                if ok {
                    self.live.insert(session.unwrap());
                }
                "{}".to_owned()
            }
            _ => format!(r#"{{"of":{of}}}"#),
        };
        let line = if ok {
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
        } else {
            format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-1,"message":"no"}}}}"#)
        };
        self.play(Event::FromAgent(&line.as_bytes().to_vec().into()));
    }

    fn update(&mut self, index: usize, content: bool) {
        let session = self.name(index);
        let number = self.next();
        let kind = if content { "agent_message_chunk" } else { "usage_update" };
        let line = format!(
            r#"{{"params":{{"update":{{"number":{number},"sessionUpdate":"{kind}"}},"sessionId":"{session}"}},"method":"session/update"}}"#
        );
        let live = self.live.contains(&session);
        let opening = ["session/load", "session/resume"];
        let opening = opening.iter().find_map(|method| self.open(method, &session));
        let opening = opening.map(|id| (self.asker(id), self.wants_the_past(id)));
        let new = self.at_agent.values().any(|frame| frame["method"] == "session/new");
        let turn = self.open("session/prompt", &session).is_some();
        let out = self.play(Event::FromAgent(&line.as_bytes().to_vec().into()));
        if self.started == 0 || self.ended {
            assert_eq!(out, []);
            return;
        }
        let sent = out.iter().any(|action| matches!(action, Action::ToClient(..)));
        let journaled = out.iter().any(|action| matches!(action, Action::Journal { .. }));
        if live {
            let shown = self.attached.contains(&session) && (turn || !content);
            assert_eq!(sent, shown && self.current.is_some(), "lost or shown too much");
            assert!(journaled);
        } else if let Some((conn, past)) = opening {
            assert_eq!(sent, self.current == Some(conn) && (past || !content));
            assert!(journaled);
        } else if !new {
            assert!(!sent && !journaled, "of a conversation that does not exist");
        }
        for action in &out {
            if let Action::ToClient(_, sent) = action {
                assert_eq!(sent, line.as_bytes(), "arrives byte for byte");
            }
        }
    }

    fn ask(&mut self, method: &str, session: &str) {
        if self.started == 0 || self.ended {
            return;
        }
        let id = self.next();
        self.asked.insert(id, Asked::default());
        let line =
            format!(r#"{{"id":{id},"method":"{method}","params":{{"sessionId":"{session}"}}}}"#);
        self.play(Event::FromAgent(&line.as_bytes().to_vec().into()));
    }

    /// The client answers one of the agent's requests, or one that it never had.
    fn answer_ask(&mut self, index: usize) {
        let ids: Vec<u64> = self.asked.keys().copied().collect();
        let (Some(conn), Some(&id)) = (self.current, ids.get(index % ids.len().max(1))) else {
            return;
        };
        let expected =
            self.asked[&id].with == Some(conn) && !self.asked[&id].answered && !self.ended;
        let line = format!(r#"{{"id":{id},"result":{{"by":{conn}}}}}"#);
        let out = self.play(Event::FromClient(Conn(conn), &line.as_bytes().to_vec().into()));
        let passed = out.iter().any(|action| matches!(action, Action::ToAgent(_)));
        assert_eq!(passed, expected, "an answer goes back once, from whom was asked");
    }

    fn act(&mut self, step: Step) {
        match step {
            Step::Join => self.join(),
            Step::Leave => self.leave(),
            Step::New => {
                self.request("session/new", r#""cwd":"/host","mcpServers":[{"x":1e0}],"#);
            }
            Step::Load(index) | Step::Resume(index) => {
                let method =
                    if matches!(step, Step::Load(_)) { "session/load" } else { "session/resume" };
                let session = self.name(index);
                let members = format!(r#""cwd":"/host","sessionId":"{session}","#);
                self.request(method, &members);
            }
            Step::Prompt(index) => {
                let members = format!(r#""prompt":[1.0],"sessionId":"{}","#, self.name(index));
                self.request("session/prompt", &members);
            }
            Step::Cancel(index) => {
                let session = self.name(index);
                self.notify(&format!(
                    r#"{{"method":"session/cancel","params":{{"sessionId":"{session}"}}}}"#
                ));
            }
            Step::CancelRequest(index) => {
                let ids: Vec<&String> = self.sent.keys().collect();
                let id = ids.get(index % ids.len().max(1)).map_or("x", |id| id.as_str());
                let line =
                    format!(r#"{{"method":"$/cancel_request","params":{{"requestId":"{id}"}}}}"#);
                self.notify(&line);
            }
            Step::Other => self.request("_v/x", ""),
            Step::AnswerAsk(index) => self.answer_ask(index),
            Step::Answer(index, ok) => self.answer(index, ok),
            Step::Update(index, content) => self.update(index, content),
            Step::Permission(index) => {
                let session = self.name(index);
                self.ask("session/request_permission", &session);
            }
            Step::Elicit => self.ask("elicitation/create", "-"),
            Step::Pass(by) => {
                self.now += by;
                self.play(Event::Tick);
            }
            Step::End => {
                self.at_agent.clear();
                self.ended = true;
                self.play(Event::AgentEnded { cause: "signal 9" });
            }
        }
    }

    /// Lets everything come to rest, then counts.
    fn settle(&mut self) {
        // After a cancelled turn the next prompt reaches the agent by time alone.
        while !self.at_agent.is_empty()
            || self.room.deadline().is_some_and(|at| at <= self.now + 100)
        {
            while !self.at_agent.is_empty() {
                self.answer(0, true);
            }
            self.now += 100;
            self.play(Event::Tick);
        }
        if let Some(conn) = self.current {
            for (id, sent) in &self.sent {
                assert!(sent.conn != conn || sent.answered, "{id} was never answered");
            }
        }
        for index in 0..self.asked.len() {
            self.answer_ask(index);
        }
        self.now += 3 * TTL;
        self.play(Event::Tick);
        if !self.ended {
            let open: Vec<_> = self.asked.iter().filter(|(_, asked)| !asked.answered).collect();
            assert!(open.is_empty(), "the agent still waits: {open:?}");
        }
        assert_eq!(self.room.deadline(), None);
        assert!(matches!(self.room.activity(self.now), Activity::Idle { .. }));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_order_the_rules_hold(steps in prop::collection::vec(step(), 1..150)) {
        let mut observer = Observer::new();
        observer.join();
        for step in steps {
            observer.act(step);
        }
        observer.settle();
    }
}
