//! A host that drives `casemate acp`.
#![allow(clippy::unwrap_used, reason = "a host that does not stand fails its test")]
#![allow(dead_code, reason = "each test binary uses its part")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

/// Longer than anything here takes; a test that waits for it fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// A host: `casemate acp` as its child.
pub(crate) struct Host {
    pub(crate) child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    next_id: u64,
}

impl Host {
    pub(crate) fn start(home: &Path, options: &[&str], agent: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_casemate"))
            .arg("--home")
            .arg(home)
            .arg("acp")
            .args(options)
            .arg("--")
            .args(agent)
            .env_remove("CASEMATE_SESSION_KEY")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        // A few lines, so that a test that does not read is a host that does not read.
        let (sender, lines) = sync_channel(4);
        thread::spawn(move || {
            for line in stdout.lines() {
                if sender.send(line.unwrap()).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        Self { child, stdin, lines, next_id: 0 }
    }

    pub(crate) fn send(&mut self, line: &str) {
        self.stdin.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    pub(crate) fn ask(&mut self, method: &str, params: Value) -> u64 {
        self.next_id += 1;
        self.send(
            &json!({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params})
                .to_string(),
        );
        self.next_id
    }

    /// The next line; each one must be JSON.
    pub(crate) fn line(&self) -> Value {
        let line = self.lines.recv_timeout(PATIENCE).expect("a line from casemate acp");
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("not ACP on stdout: {line}"))
    }

    /// Lines up to the answer of a request, which comes last.
    pub(crate) fn until(&self, id: u64) -> Vec<Value> {
        let mut lines = vec![self.line()];
        while lines.last().unwrap()["id"] != id || lines.last().unwrap().get("method").is_some() {
            lines.push(self.line());
        }
        lines
    }

    pub(crate) fn answer(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params);
        self.until(id).pop().unwrap()
    }

    /// `initialize` and `session/new`; the session's id.
    pub(crate) fn open(&mut self) -> String {
        let capabilities = json!({"fs": {"readTextFile": true}, "terminal": true});
        let answer = self.answer(
            "initialize",
            json!({"protocolVersion": 1, "clientCapabilities": capabilities}),
        );
        assert_eq!(answer["result"]["protocolVersion"], 1, "{answer}");
        let answer = self.answer("session/new", json!({"cwd": "/x", "mcpServers": []}));
        answer["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// Resident memory of the child in bytes (proc(5), `statm`, in pages of 4096 bytes).
    pub(crate) fn memory(&self) -> usize {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.child.id())).unwrap();
        statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    }

    pub(crate) fn hang_up(&mut self) {
        self.stdin = None;
    }

    /// Waits for the end; what it left with.
    pub(crate) fn end(&mut self) -> std::process::ExitStatus {
        let started = std::time::Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(started.elapsed() < PATIENCE, "casemate acp does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Ended already where the test went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
