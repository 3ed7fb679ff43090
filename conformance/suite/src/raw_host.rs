//! An ACP host that speaks raw lines, for what a client library would hide: errors word for word, hostile requests.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::place::Place;

/// A host with its subprocess.
#[derive(Debug)]
pub struct RawHost {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    last_id: u64,
    /// Every line that was no answer to the call in progress, oldest first.
    pub others: Vec<Value>,
}

/// An answer: the result, or the error object.
pub type Answer = Result<Value, Value>;

// === impl RawHost ===

impl RawHost {
    /// Starts the subprocess in a process group of its own, as brokers do.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        use std::os::unix::process::CommandExt as _;
        let mut child = command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()?;
        let stdout = BufReader::new(child.stdout.take().expect("stdout was asked for"));
        let stdin = child.stdin.take();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, stdin, lines, last_id: 0, others: Vec::new() })
    }

    /// The subprocess; also its process group.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Sends a request; the id is given back.
    pub fn send(&mut self, method: &str, params: &Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// Sends any line.
    pub fn write(&mut self, line: &Value) {
        // A subprocess that is gone is seen where its answer is waited for.
        if let Some(stdin) = &mut self.stdin {
            writeln!(stdin, "{line}").ok();
        }
    }

    /// Waits for the answer to a request.
    ///
    /// # Errors
    /// The error object.
    ///
    /// # Panics
    /// Where none comes in time, or stdout carries something else than JSON-RPC.
    pub fn answer(&mut self, id: u64, within: Duration) -> Answer {
        self.answered(id, within)
            .unwrap_or_else(|| panic!("no answer to request {id}; before it: {:#?}", self.others))
    }

    /// The same, or nothing where none comes in time.
    ///
    /// # Errors
    /// The error object.
    ///
    /// # Panics
    /// Where stdout carries something else than JSON-RPC.
    pub fn answered(&mut self, id: u64, within: Duration) -> Option<Answer> {
        let deadline = Instant::now() + within;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).ok()?;
            let mut message: Value = serde_json::from_str(&line).unwrap_or_else(|error| {
                panic!("stdout carries ACP and nothing else: {error}: {line}")
            });
            if message["id"] == id && message.get("method").is_none() {
                return Some(match message.get_mut("error") {
                    Some(error) => Err(error.take()),
                    None => Ok(message["result"].take()),
                });
            }
            self.others.push(message);
        }
    }

    /// A request and its answer.
    ///
    /// # Errors
    /// The error object.
    pub fn call(&mut self, method: &str, params: &Value) -> Answer {
        let id = self.send(method, params);
        self.answer(id, Duration::from_secs(60))
    }

    /// `initialize` as an editor with files and terminals says it.
    ///
    /// # Errors
    /// The error object.
    pub fn initialize(&mut self) -> Answer {
        let files = json!({"readTextFile": true, "writeTextFile": true});
        let capabilities = json!({"fs": files, "terminal": true});
        self.call("initialize", &json!({"protocolVersion": 1, "clientCapabilities": capabilities}))
    }

    /// `session/new`; the session's id.
    ///
    /// # Errors
    /// The error object.
    pub fn new_session(&mut self, place: &Place) -> Result<String, Value> {
        let answer = self.call("session/new", &json!({"cwd": place.path(), "mcpServers": []}))?;
        Ok(answer["sessionId"].as_str().unwrap_or_default().to_owned())
    }

    /// The error that says why no session is to be had: for `initialize` already where its answer needs the agent,
    /// else for `session/new`.
    ///
    /// # Panics
    /// Where there is a session.
    pub fn refusal(&mut self, place: &Place) -> Value {
        match self.initialize() {
            Err(error) => error,
            Ok(_) => self.new_session(place).expect_err("there is no session to be had"),
        }
    }

    /// `session/load`.
    ///
    /// # Errors
    /// The error object.
    pub fn load(&mut self, place: &Place, session: &str) -> Answer {
        let params = json!({"cwd": place.path(), "mcpServers": [], "sessionId": session});
        self.call("session/load", &params)
    }

    /// The parameters of a prompt of one text.
    #[must_use]
    pub fn prompt(session: &str, text: &str) -> Value {
        json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]})
    }

    /// One turn; what the agent said in it.
    ///
    /// # Errors
    /// The error object.
    pub fn say(&mut self, session: &str, text: &str) -> Result<String, Value> {
        let before = self.others.len();
        self.call("session/prompt", &Self::prompt(session, text))?;
        Ok(self.others[before..]
            .iter()
            .map(|message| &message["params"]["update"])
            .filter(|update| update["sessionUpdate"] == "agent_message_chunk")
            .filter_map(|update| update["content"]["text"].as_str())
            .collect())
    }

    /// Closes stdin and waits for the end.
    ///
    /// # Panics
    /// Where it does not leave in time.
    pub fn quit(mut self, place: &Place) -> std::process::ExitStatus {
        drop(self.stdin.take());
        place
            .wait(&mut self.child, Duration::from_secs(20))
            .expect("an agent leaves when its host has gone")
    }
}

impl Drop for RawHost {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
