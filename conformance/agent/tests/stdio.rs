//! The agent as a process, spoken to as a client does.
#![allow(clippy::unwrap_used, reason = "a test helper that fails is a failed test")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

struct Client {
    child: Child,
    stdin: ChildStdin,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Client {
    fn start(home: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_casemate-scripted-agent"))
            .env("HOME", home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, stdin, lines }
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.stdin, "{message}").unwrap();
    }

    fn next(&mut self) -> Value {
        serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap()
    }

    /// Reads up to the answer of request `id`; returns it and what came before.
    fn until(&mut self, id: u64) -> (Value, Vec<Value>) {
        let mut before = Vec::new();
        loop {
            let message = self.next();
            if message["id"] == id && message.get("method").is_none() {
                return (message, before);
            }
            before.push(message);
        }
    }

    fn open(&mut self) -> String {
        self.send(&json!({"id": 1, "method": "session/new", "params": {"cwd": "/"}}));
        self.until(1).0["result"]["sessionId"].as_str().unwrap().to_owned()
    }

    fn prompt(&mut self, id: u64, session: &str, text: &str) {
        let prompt = json!([{"type": "text", "text": text}]);
        let params = json!({"sessionId": session, "prompt": prompt});
        self.send(&json!({"id": id, "method": "session/prompt", "params": params}));
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn texts(messages: &[Value]) -> String {
    messages.iter().filter_map(|m| m["params"]["update"]["content"]["text"].as_str()).collect()
}

/// A directory of this test's own, removed when dropped.
struct Home(std::path::PathBuf);

impl Home {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("scripted-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_cancel_gets_through_while_a_turn_runs_and_the_next_turn_is_whole() {
    let home = Home::new("cancel");
    let mut client = Client::start(&home.0);
    let session = client.open();
    for (turn, text) in [(2, "!sleep 600"), (3, "!sh sleep 600"), (4, "!ask some/thing {}")] {
        client.prompt(turn, &session, text);
        if turn == 4 {
            assert_eq!(client.next()["method"], "some/thing");
        }
        client.send(&json!({"method": "session/cancel", "params": {"sessionId": session}}));
        assert_eq!(client.until(turn).0["result"]["stopReason"], "cancelled", "{text}");
    }
    client.prompt(5, &session, "hello");
    let (answer, before) = client.until(5);
    assert_eq!(answer["result"]["stopReason"], "end_turn");
    assert_eq!(texts(&before), "echo: hello");
}

#[test]
fn a_second_prompt_during_a_turn_is_refused() {
    let home = Home::new("second");
    let mut client = Client::start(&home.0);
    let session = client.open();
    client.prompt(2, &session, "!sleep 600");
    client.prompt(3, &session, "hello");
    assert_eq!(client.until(3).0["error"]["code"], -32600);
}

#[test]
fn a_later_process_replays_and_only_then_answers() {
    let home = Home::new("load");
    let mut client = Client::start(&home.0);
    let session = client.open();
    client.prompt(2, &session, "!sh echo one; exit 4");
    assert!(texts(&client.until(2).1).ends_with("one\n[exit 4]"));
    drop(client);

    let mut client = Client::start(&home.0);
    let params = json!({"sessionId": session, "cwd": "/"});
    client.send(&json!({"id": 1, "method": "session/load", "params": params}));
    let (answer, before) = client.until(1);
    assert!(answer.get("result").is_some());
    assert_eq!(texts(&before), "!sh echo one; exit 4one\n[exit 4]");
    client.send(&json!({"id": 2, "method": "session/resume", "params": params}));
    let (answer, before) = client.until(2);
    assert!(answer.get("result").is_some() && before.is_empty());

    let params = json!({"sessionId": "gone", "cwd": "/"});
    client.send(&json!({"id": 3, "method": "session/load", "params": params}));
    assert_eq!(client.until(3).0["error"]["code"], -32002);
}

#[test]
fn what_the_client_answers_is_printed() {
    let home = Home::new("ask");
    let mut client = Client::start(&home.0);
    let session = client.open();
    client.prompt(2, &session, "!ask terminal/create {\"command\": \"id\"}");
    let request = client.next();
    assert_eq!(request["params"]["sessionId"], session.as_str());
    client.send(&json!({"id": request["id"], "error": {"code": -32601, "message": "no"}}));
    assert_eq!(texts(&client.until(2).1), r#"error {"code":-32601,"message":"no"}"#);
}

#[test]
fn updates_can_follow_the_final_answer() {
    let home = Home::new("late");
    let mut client = Client::start(&home.0);
    let session = client.open();
    client.prompt(2, &session, "!late 2");
    let (answer, before) = client.until(2);
    assert_eq!(answer["result"]["stopReason"], "end_turn");
    assert!(before.is_empty());
    assert_eq!(texts(&[client.next(), client.next()]), "late 1late 2");
}

#[test]
fn it_ends_as_told() {
    use std::os::unix::process::ExitStatusExt;
    let home = Home::new("end");
    for (text, code, signal) in [("!exit 7", Some(7), None), ("!die KILL", None, Some(9))] {
        let mut client = Client::start(&home.0);
        let session = client.open();
        client.prompt(2, &session, text);
        let status = client.child.wait().unwrap();
        assert_eq!((status.code(), status.signal()), (code, signal), "{text}");
    }
}
