//! Tests of the role, a file a rule. [`Room`] plays events in and writes actions down as lines of text:
//! `start`, `agent< LINE` (to the agent), `1< LINE` (to client 1), `close 1 4001`, `journal S LINE`, `forget S`,
//! `replay 1 S`, `save S PROMPTED` (and what is untold), `log`. What is recorded of prompts is asked for and noted apart.

use super::turns::PAUSE;
use super::*;

mod asks;
mod bytes;
mod cancel;
mod continuity;
mod door;
mod early;
mod ending;
mod framing;
mod handshake;
mod model;
mod notices;
mod refusals;
mod setup;
mod turns;
mod updates;

/// The settings of all tests.
const TTL: u64 = 1_000;

/// A server, a clock, and what is recorded of prompts, as the relay's task keeps it.
struct Room {
    server: Server,
    now: u64,
    records: BTreeMap<String, Vec<u8>>,
}

fn written(action: &Action) -> String {
    let text = |line: &[u8]| String::from_utf8(line.to_vec()).unwrap();
    match action {
        Action::StartAgent => "start".into(),
        Action::ToAgent(line) | Action::AnswerAgent(line) => format!("agent< {}", text(line)),
        Action::ToClient(conn, line) => format!("{}< {}", conn.0, text(line)),
        Action::Close(conn, code, _) => format!("close {} {code}", conn.0),
        Action::Journal { session, line } => format!("journal {session} {}", text(line)),
        Action::ForgetJournal { session } => format!("forget {session}"),
        Action::Replay { conn, session } => format!("replay {} {session}", conn.0),
        Action::Save(saved) => {
            let untold: Vec<&str> = saved.untold.keys().map(String::as_str).collect();
            let session = saved.acp_session.as_deref().unwrap_or("-");
            format!("save {session} {} {}", saved.prompted, untold.join(" ")).trim_end().to_owned()
        }
        Action::Record { session, entry } => format!("record {session} {entry:?}"),
        Action::Recall { session } => format!("recall {session}"),
        Action::Log(_) => "log".into(),
    }
}

impl Room {
    /// Nobody is there.
    fn empty() -> Self {
        Self::with(Saved::default())
    }

    fn with(saved: Saved) -> Self {
        let settings = Settings { worktree: "/work".into(), permission_ttl_ms: TTL };
        Self { server: Server::new(settings, saved, 0), now: 0, records: BTreeMap::new() }
    }

    /// Client 1 has initialized; the agent can load.
    fn greeted() -> Self {
        let mut room = Self::empty();
        room.connect(1);
        room.client(1, r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#);
        room.agent(
            r#"{"jsonrpc":"2.0","id":1,"result":{"agentCapabilities":{"loadSession":true},"x":1}}"#,
        );
        room
    }

    /// And has the conversation `s` (agent-side ids 1 and 2 are used).
    fn talking() -> Self {
        let mut room = Self::greeted();
        room.client(1, r#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/"}}"#);
        room.agent(
            r#"{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s","modes":{"currentModeId":"a"}}}"#,
        );
        room
    }

    /// And has prompted: the turn is agent-side id 3, the client's id 2.
    fn in_turn() -> Self {
        let mut room = Self::talking();
        room.client(1, &prompt("2", "s", "hi"));
        room
    }

    fn event(&mut self, event: Event<'_>) -> Vec<String> {
        let mut out = Vec::new();
        self.server.handle(event, self.now, &mut out);
        let mut shown = Vec::new();
        for action in &out {
            match action {
                Action::Record { session, entry } => self.record(session, entry),
                Action::Recall { session } => self.recall(session),
                other => shown.push(written(other)),
            }
        }
        shown
    }

    fn record(&mut self, session: &str, entry: &Entry) {
        let text = self.records.entry(session.to_owned()).or_default();
        let last = Record::read(text).unwrap().last();
        text.extend(entry.line(last));
        text.push(b'\n');
    }

    fn recall(&mut self, session: &str) {
        let record = self.records.get(session).map(|text| Record::read(text).unwrap());
        let event = Event::Recalled { session, record: record.as_ref().filter(|one| one.begun()) };
        let mut out = Vec::new();
        self.server.handle(event, self.now, &mut out);
        assert_eq!(out, []);
    }

    /// The next generation: nobody is there, and what is durable is what it was.
    fn replaced(self) -> Self {
        Self { records: self.records, ..Self::with(self.server.saved().clone()) }
    }

    fn connect(&mut self, conn: u64) -> Vec<String> {
        self.event(Event::Connected(Conn(conn)))
    }

    fn client(&mut self, conn: u64, line: &str) -> Vec<String> {
        self.event(Event::FromClient(Conn(conn), &line.as_bytes().to_vec().into()))
    }

    fn ahead(&mut self, conn: u64, line: &str) -> Vec<String> {
        self.event(Event::Ahead(Conn(conn), &line.as_bytes().to_vec().into()))
    }

    fn leave(&mut self, conn: u64) -> Vec<String> {
        self.event(Event::Disconnected(Conn(conn)))
    }

    /// An agent that is quiet once it has ended a turn: what that leads to is told as well.
    fn agent(&mut self, line: &str) -> Vec<String> {
        let mut shown = self.hears(line);
        let now = self.now;
        if self.server.deadline() == Some(now + PAUSE) {
            self.now += PAUSE;
            shown.extend(self.event(Event::Tick));
            self.now = now;
        }
        shown
    }

    fn hears(&mut self, line: &str) -> Vec<String> {
        self.event(Event::FromAgent(&line.as_bytes().to_vec().into()))
    }

    fn end(&mut self, cause: &str) -> Vec<String> {
        self.event(Event::AgentEnded { cause })
    }

    /// A newcomer up to its answered `initialize`.
    fn join(&mut self, conn: u64) {
        self.connect(conn);
        self.client(conn, r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#);
    }
}

/// A client's prompt; `id` is raw JSON.
fn prompt(id: &str, session: &str, text: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"session/prompt","params":{{"sessionId":"{session}","prompt":[{{"type":"text","text":"{text}"}}]}}}}"#
    )
}

/// The agent's final answer of a turn.
fn done(id: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"stopReason":"end_turn"}}}}"#)
}

/// An update of the agent.
fn update(session: &str, kind: &str, text: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"{session}","update":{{"sessionUpdate":"{kind}","content":{{"type":"text","text":"{text}"}}}}}}}}"#
    )
}

/// A permission request of the agent; `id` is raw JSON.
fn permission(id: &str, session: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"session/request_permission","params":{{"sessionId":"{session}","options":[]}}}}"#
    )
}

/// The journal's line for a prompt of [`prompt`].
fn said(session: &str, text: &str) -> String {
    format!(
        r#"journal {session} {{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"{session}","update":{{"sessionUpdate":"user_message_chunk","content":{{"type":"text","text":"{text}"}}}}}}}}"#
    )
}

fn none() -> Vec<String> {
    Vec::new()
}
