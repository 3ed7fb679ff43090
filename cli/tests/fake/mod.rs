//! An allocator and a worker on loopback that do what a test says.

#![allow(clippy::unwrap_used, reason = "a stage that does not stand fails its test")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use casemate_protocol::ids::{BootId, SessionId, SlotId};
use casemate_protocol::proof::Prover;
use casemate_protocol::relay::flow::{Brought, Flow};
use casemate_protocol::relay::outgoing::Kept;
use casemate_protocol::relay::{REFUSAL_HEADER, SUBPROTOCOL, TICKET_HEADER};
use casemate_protocol::tls::Pin;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::{Message, WebSocket, accept_hdr};

use crate::host::Host;

/// What a worker does with one message: answers, or closes with a code.
pub(crate) enum Reply {
    Lines(Vec<Value>),
    Close(u16),
    /// The connection breaks without a word.
    Cut,
}

type Script = Box<dyn FnMut(&Value) -> Reply + Send>;

struct World {
    address: SocketAddr,
    script: Mutex<Script>,
    /// Method and path of each call.
    calls: Mutex<Vec<String>>,
    sessions: Mutex<BTreeMap<String, SessionId>>,
    handshakes: Mutex<BTreeMap<String, String>>,
    /// What workers were told.
    heard: Mutex<Vec<Value>>,
    /// Where workers are said to be, and whom to believe there, if not here.
    elsewhere: Mutex<Option<(SocketAddr, Pin)>>,
    /// The cookies of each handshake, empty where it brought none.
    cookies: Mutex<Vec<String>>,
    /// The most that one attachment was acknowledged.
    acknowledged: Mutex<u64>,
}

/// The stage.
pub(crate) struct Stage {
    pub(crate) home: TempDir,
    world: Arc<World>,
    _up_lock: File,
}

impl Stage {
    /// An allocator whose workers follow the script.
    pub(crate) fn new(script: impl FnMut(&Value) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let world = Arc::new(World {
            address: listener.local_addr().unwrap(),
            script: Mutex::new(Box::new(script)),
            calls: Mutex::default(),
            sessions: Mutex::default(),
            handshakes: Mutex::default(),
            heard: Mutex::default(),
            elsewhere: Mutex::default(),
            cookies: Mutex::default(),
            acknowledged: Mutex::default(),
        });
        let home = TempDir::new().unwrap();
        std::fs::create_dir(home.path().join("run")).unwrap();
        let pid = std::process::id();
        let endpoint = json!({"address": world.address, "token": "allocator-token", "pid": pid});
        std::fs::write(home.path().join("run/allocator.json"), endpoint.to_string()).unwrap();
        let mut up_lock = File::create_new(home.path().join("run/up.lock")).unwrap();
        up_lock.lock().unwrap();
        writeln!(up_lock, "{pid}").unwrap();
        let served = Arc::clone(&world);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let world = Arc::clone(&served);
                thread::spawn(move || world.serve(stream.unwrap()));
            }
        });
        Self { home, world, _up_lock: up_lock }
    }

    /// Starts `casemate acp` with these options.
    pub(crate) fn host(&self, options: &[&str]) -> Host {
        Host::start(self.home.path(), options, &["agent"])
    }

    pub(crate) fn calls(&self) -> Vec<String> {
        self.world.calls.lock().unwrap().clone()
    }

    /// From now on workers are said to be there.
    pub(crate) fn lead_to(&self, address: SocketAddr, pin: Pin) {
        *self.world.elsewhere.lock().unwrap() = Some((address, pin));
    }

    pub(crate) fn cookies(&self) -> Vec<String> {
        self.world.cookies.lock().unwrap().clone()
    }

    pub(crate) fn acknowledged(&self) -> u64 {
        *self.world.acknowledged.lock().unwrap()
    }

    pub(crate) fn heard(&self) -> Vec<Value> {
        self.world.heard.lock().unwrap().clone()
    }
}

impl World {
    fn serve(&self, stream: TcpStream) {
        let mut head = [0u8; 2048];
        let seen = stream.peek(&mut head).unwrap();
        if head[..seen].starts_with(b"GET /acp ") {
            return self.attach(stream);
        }
        let mut reader = BufReader::new(stream);
        while self.serve_call(&mut reader) {}
    }

    /// False where the client has hung up.
    fn serve_call(&self, reader: &mut BufReader<TcpStream>) -> bool {
        let mut first = String::new();
        if reader.read_line(&mut first).unwrap_or(0) == 0 {
            return false;
        }
        let (mut length, mut token) = (0, String::new());
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let line = line.trim().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().unwrap();
            }
            if let Some(value) = line.strip_prefix("authorization: bearer ") {
                token = value.to_owned();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let call: Vec<&str> = first.split(' ').take(2).collect();
        let call = call.join(" ");
        if let Some(nonce) = call.strip_prefix("GET /healthz?nonce=") {
            let prover = Prover::new("allocator-token");
            let proof = prover.prove(self.address, nonce.parse().unwrap());
            return respond(reader, 200, &json!({"ok": true, "proof": proof}).to_string());
        }
        let wanted = if call.ends_with("/v1/status") { "worker-token" } else { "allocator-token" };
        let (status, answer) = if token == wanted {
            self.answer(&call, &String::from_utf8(body).unwrap())
        } else {
            (401, json!({"kind": "unauthorized", "message": "no"}).to_string())
        };
        self.calls.lock().unwrap().push(call);
        respond(reader, status, &answer)
    }

    fn answer(&self, call: &str, body: &str) -> (u16, String) {
        let parsed = || serde_json::from_str::<Value>(body).unwrap();
        let parts: Vec<&str> = call.split(['/', ' ']).collect();
        match parts[..] {
            ["GET", "", "healthz"] => (200, String::new()),
            ["GET", "", "v1", "status"] => (200, self.status().to_string()),
            ["GET", "", "v1", "handshakes", key] => {
                match self.handshakes.lock().unwrap().get(key) {
                    Some(raw) => (200, raw.clone()),
                    None => (404, json!({"kind": "not-found", "message": "no"}).to_string()),
                }
            }
            ["PUT", "", "v1", "handshakes", key] => {
                self.handshakes.lock().unwrap().insert(key.into(), body.into());
                (204, String::new())
            }
            ["POST", "", "v1", "sessions"] => {
                let body = parsed();
                let thread = body["key"]["thread"].as_str().unwrap().to_owned();
                let mut sessions = self.sessions.lock().unwrap();
                let created = !sessions.contains_key(&thread);
                let id = sessions.entry(thread.clone()).or_insert_with(SessionId::random).clone();
                (200, self.attached(&id, &thread, created).to_string())
            }
            [_, "", "v1", "sessions", id, ..] => {
                let sessions = self.sessions.lock().unwrap();
                let Some((thread, id)) = sessions.iter().find(|(_, own)| own.as_str() == id) else {
                    return (404, json!({"kind": "not-found", "message": "unknown"}).to_string());
                };
                let attached = self.attached(id, thread, false);
                if parts.last() == Some(&"resume") {
                    (200, attached.to_string())
                } else {
                    (200, attached["session"].to_string())
                }
            }
            _ => (404, String::new()),
        }
    }

    fn attached(&self, id: &SessionId, thread: &str, created: bool) -> Value {
        let key = json!({"tenant": "local", "agent": "agent", "platform": "acp", "thread": thread});
        let intent =
            json!({"profile": "default", "repository": null, "agent": ["agent"], "env": {}});
        let view = json!({"id": id, "key": key, "incarnation": 1, "generation": 1, "intent": intent, "phase": "active",
            "slot": SlotId::random(), "worker": null, "last_end": null, "next": null, "created": 1});
        match &*self.elsewhere.lock().unwrap() {
            None => {
                json!({"session": view, "created": created, "address": self.address, "token": "worker-token"})
            }
            Some((address, pin)) => {
                json!({"session": view, "created": created, "address": address, "token": "worker-token", "pin": pin})
            }
        }
    }

    fn status(&self) -> Value {
        json!({"session": SessionId::random(), "incarnation": 1, "generation": 1, "slot": SlotId::random(),
            "boot": BootId::random(), "tier": "namespace", "worktree": "/work", "agent": {"state": "not-started"},
            "activity": {"is": "idle", "for_ms": 0}, "epoch": 0, "attachments": 0, "acp_session": "agent-1",
            "prompted": false, "policy_revision": "", "skills_revision": null, "enforcement": [], "evidence": null,
            "handed_variables": []})
    }

    fn attach(&self, mut stream: TcpStream) {
        #[allow(clippy::result_large_err, reason = "the callback's type is the library's")]
        let check = |request: &Request, mut response: Response| {
            assert_eq!(request.headers()["authorization"], "Bearer worker-token");
            assert_eq!(request.headers()["sec-websocket-protocol"], SUBPROTOCOL);
            response.headers_mut().insert("sec-websocket-protocol", SUBPROTOCOL.parse().unwrap());
            // As a balancer in between would.
            response
                .headers_mut()
                .insert("set-cookie", "route=a; Path=/; HttpOnly".parse().unwrap());
            Ok(response)
        };
        let mut head = [0u8; 2048];
        let seen = stream.peek(&mut head).unwrap();
        let said = String::from_utf8_lossy(&head[..seen]).to_ascii_lowercase();
        let cookie = said.lines().find_map(|line| line.strip_prefix("cookie: "));
        self.cookies.lock().unwrap().push(cookie.unwrap_or_default().to_owned());
        if said.contains(TICKET_HEADER) {
            // Nothing here outlives its connection.
            let refusal =
                format!("HTTP/1.1 410 Gone\r\n{REFUSAL_HEADER}: over\r\ncontent-length: 0\r\n\r\n");
            assert!(stream.read(&mut head).unwrap() > 0);
            stream.write_all(refusal.as_bytes()).unwrap();
            return;
        }
        let mut socket: WebSocket<TcpStream> = accept_hdr(stream, check).unwrap();
        let mut flow = Flow::worker(1, "ticket".into(), usize::MAX);
        flow.opened();
        loop {
            while let Some(frame) = flow.frame() {
                if socket.send(Message::binary(frame)).is_err() {
                    return;
                }
            }
            let Ok(message) = socket.read() else { return };
            let Message::Binary(frame) = message else { continue };
            let brought = flow.take(&frame).unwrap();
            let mut most = self.acknowledged.lock().unwrap();
            *most = flow.reach().acked.max(*most);
            drop(most);
            let line = match brought {
                Brought::Message(seq, line) => {
                    flow.settled(seq);
                    if line.is_empty() {
                        continue;
                    }
                    line
                }
                Brought::Ahead(_, line) => line,
                Brought::Bye(..) => {
                    flow.bye(1000, "", false);
                    continue;
                }
                Brought::Nothing | Brought::Welcome { .. } => continue,
            };
            let line: Value = serde_json::from_slice(&line).unwrap();
            self.heard.lock().unwrap().push(line.clone());
            let reply = (self.script.lock().unwrap())(&line);
            match reply {
                Reply::Lines(lines) => {
                    for line in lines {
                        assert_eq!(flow.push(line.to_string().into_bytes()), Kept::Here);
                    }
                }
                Reply::Close(code) => flow.bye(code, "why", true),
                Reply::Cut => return,
            }
        }
    }
}

fn respond(reader: &mut BufReader<TcpStream>, status: u16, answer: &str) -> bool {
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n", answer.len());
    let stream = reader.get_mut();
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(answer.as_bytes()).unwrap();
    true
}

/// What a well-behaved agent's worker does: prompts are answered with one update and an end.
pub(crate) fn obliging(line: &Value) -> Reply {
    let id = &line["id"];
    let answer = |result: Value| json!({"jsonrpc": "2.0", "id": id, "result": result});
    Reply::Lines(match line["method"].as_str() {
        Some("initialize") => {
            vec![answer(json!({"protocolVersion": 1, "agentCapabilities": {"loadSession": true}}))]
        }
        Some("session/new") => vec![answer(json!({"sessionId": "agent-1"}))],
        Some("session/load") => vec![update("old words"), answer(json!({}))],
        Some("session/prompt") => vec![update("words"), answer(json!({"stopReason": "end_turn"}))],
        _ => vec![],
    })
}

pub(crate) fn update(text: &str) -> Value {
    let content = json!({"type": "text", "text": text});
    let update = json!({"sessionUpdate": "agent_message_chunk", "content": content});
    json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "agent-1", "update": update}})
}
