//! A host such as a chat broker or an editor: starts `casemate acp`, speaks ACP with it, and offers it everything.
//!
//! The bridge is the real program as a child process, so what its host sees is what any host sees. Whatever the
//! confined agent gets through to here is kept in [`Host::reached`] and answered as a careless host would.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use casemate_inside::{Attempt, backwards};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::setup::House;
use crate::client::CallError;

/// A start clones a repository; a scan reads a machine's file systems.
const PATIENCE: Duration = Duration::from_secs(300);

/// Why the demo could not go on. Not a verdict: nothing was proven.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostError {
    #[error("session {0}")]
    Io(&'static str, #[source] std::io::Error),
    #[error("session {0}: the bridge hung up; its last words: {1}")]
    HungUp(&'static str, String),
    #[error("session {0}: no answer to {1} within {2} seconds")]
    TimedOut(&'static str, String, u64),
    #[error("session {0}: {1} was refused: {2}")]
    Refused(&'static str, String, String),
    #[error("session {0}: the allocator")]
    Call(&'static str, #[source] CallError),
    #[error("session {0}: {1} answered something else: {2}")]
    Garbled(&'static str, String, String),
}

/// One host with one session.
#[derive(Debug)]
pub(crate) struct Host {
    /// `A` or `B`.
    pub(crate) name: &'static str,
    /// Requests of the agent that arrived here, by method.
    pub(crate) reached: Vec<String>,
    program: String,
    log: std::path::PathBuf,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    next_id: u64,
    session: String,
    since: i64,
}

/// What a shell command did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shell {
    /// stdout and stderr.
    pub(crate) output: String,
    /// `exit 0`, `signal 9`.
    pub(crate) ended: String,
}

// === impl Host ===

impl Host {
    /// Starts the bridge and opens a session with the scripted agent.
    pub(crate) async fn start(name: &'static str, house: &House) -> Result<Self, HostError> {
        let io = |error| HostError::Io(name, error);
        let log = house.base().join(format!("bridge-{name}.log"));
        let mut child = Command::new(&house.casemate)
            .arg("--home")
            .arg(house.home())
            .args(["acp", "--repo"])
            .arg(house.repository())
            .arg("--skills")
            .arg(house.skills())
            .arg("--")
            .arg(&house.program)
            .arg("scripted-agent")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).map_err(io)?)
            .kill_on_drop(true)
            .spawn()
            .map_err(io)?;
        let stdin = child.stdin.take();
        let stdout =
            child.stdout.take().ok_or_else(|| io(std::io::ErrorKind::BrokenPipe.into()))?;
        let mut host = Self {
            name,
            reached: Vec::new(),
            program: quote(&house.program),
            log,
            child,
            stdin,
            lines: BufReader::new(stdout).lines(),
            next_id: 1,
            session: String::new(),
            since: house.since(),
        };
        let everything = json!({
            "fs": {"readTextFile": true, "writeTextFile": true},
            "terminal": true,
        });
        host.call(
            "initialize",
            json!({"protocolVersion": 1, "clientCapabilities": everything}),
            &mut String::new(),
        )
        .await?;
        let opened = host
            .call(
                "session/new",
                json!({"cwd": house.repository(), "mcpServers": []}),
                &mut String::new(),
            )
            .await?;
        match opened["sessionId"].as_str() {
            Some(id) => id.clone_into(&mut host.session),
            None => {
                return Err(HostError::Garbled(name, "session/new".into(), opened.to_string()));
            }
        }
        Ok(host)
    }

    /// The session's id as this host knows it.
    pub(crate) fn session(&self) -> &str {
        &self.session
    }

    /// One turn; returns what the agent said.
    pub(crate) async fn prompt(&mut self, text: &str) -> Result<String, HostError> {
        let mut said = String::new();
        let prompt = json!([{"type": "text", "text": text}]);
        let params = json!({"sessionId": self.session, "prompt": prompt});
        let answer = self.call("session/prompt", params, &mut said).await?;
        match answer["stopReason"].as_str() {
            Some("end_turn") => Ok(said),
            _ => Err(HostError::Garbled(self.name, text.to_owned(), answer.to_string())),
        }
    }

    /// One command in the agent's shell.
    pub(crate) async fn sh(&mut self, command: &str) -> Result<Shell, HostError> {
        let said = self.prompt(&format!("!sh {command}")).await?;
        match said.rfind("[exit ").or_else(|| said.rfind("[signal ")) {
            Some(at) => Ok(Shell {
                output: said[..at].to_owned(),
                ended: said[at..].trim_matches(['[', ']', '\n']).to_owned(),
            }),
            None => Err(HostError::Garbled(self.name, command.to_owned(), said)),
        }
    }

    /// Output of a command that must work.
    pub(crate) async fn output(&mut self, command: &str) -> Result<String, HostError> {
        let shell = self.sh(command).await?;
        if shell.ended == "exit 0" {
            return Ok(shell.output.trim_end().to_owned());
        }
        let answer = format!("{} ({})", shell.output.trim_end(), shell.ended);
        Err(HostError::Refused(self.name, command.to_owned(), answer))
    }

    /// Runs attacks of `casemate inside` from the agent's shell.
    pub(crate) async fn inside(&mut self, args: &[&str]) -> Result<Vec<Attempt>, HostError> {
        let words: Vec<String> = args.iter().map(|arg| quote(Path::new(arg))).collect();
        let command = format!("{} inside {}", self.program, words.join(" "));
        let output = self.output(&command).await?;
        let attempts: Result<Vec<Attempt>, _> = output.lines().map(serde_json::from_str).collect();
        match attempts {
            Ok(attempts) if !attempts.is_empty() => Ok(attempts),
            _ => Err(HostError::Garbled(self.name, command, output)),
        }
    }

    /// Looks, from the agent's shell, for a file of this name and one of this content.
    pub(crate) async fn scan(
        &mut self,
        name: &str,
        content: &str,
    ) -> Result<Vec<Attempt>, HostError> {
        let since = self.since.to_string();
        self.inside(&["scan", &backwards(name), &backwards(content), &since]).await
    }

    /// Hangs up in order and waits for the bridge's end.
    pub(crate) async fn hang_up(mut self) {
        drop(self.stdin.take());
        if tokio::time::timeout(Duration::from_secs(5), self.child.wait()).await.is_err() {
            // Dropping it kills it; this way it is also waited for.
            let _ = self.child.kill().await;
        }
    }

    async fn call(
        &mut self,
        method: &str,
        params: Value,
        said: &mut String,
    ) -> Result<Value, HostError> {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await?;
        let answer = tokio::time::timeout(PATIENCE, self.answer(id, said)).await;
        let answer = answer
            .map_err(|_| HostError::TimedOut(self.name, method.to_owned(), PATIENCE.as_secs()))??;
        match answer.get("error") {
            Some(error) => {
                let words =
                    error["message"].as_str().map_or_else(|| error.to_string(), str::to_owned);
                Err(HostError::Refused(self.name, method.to_owned(), words))
            }
            None => Ok(answer["result"].clone()),
        }
    }

    async fn answer(&mut self, id: u64, said: &mut String) -> Result<Value, HostError> {
        loop {
            let line =
                self.lines.next_line().await.map_err(|error| HostError::Io(self.name, error))?;
            let Some(line) = line else {
                return Err(HostError::HungUp(self.name, self.last_words()));
            };
            let message: Value = serde_json::from_str(&line)
                .map_err(|_| HostError::Garbled(self.name, "the bridge".into(), line))?;
            match (message["method"].as_str(), message.get("id")) {
                (None, Some(answered)) if *answered == id => return Ok(message),
                (Some(method), Some(asked)) => {
                    self.reached.push(method.to_owned());
                    let result = json!({"content": "the host obeyed", "terminalId": "1"});
                    self.send(&json!({"jsonrpc": "2.0", "id": asked, "result": result})).await?;
                }
                (Some("session/update"), None) => {
                    let update = &message["params"]["update"];
                    if update["sessionUpdate"] == "agent_message_chunk" {
                        said.push_str(update["content"]["text"].as_str().unwrap_or_default());
                    }
                }
                _ => {}
            }
        }
    }

    async fn send(&mut self, message: &Value) -> Result<(), HostError> {
        let Some(stdin) = &mut self.stdin else {
            return Err(HostError::HungUp(self.name, String::new()));
        };
        let line = format!("{message}\n");
        let sent = stdin.write_all(line.as_bytes()).await;
        sent.map_err(|error| HostError::Io(self.name, error))
    }

    fn last_words(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().last().unwrap_or("none").to_owned()
    }
}

/// For sh(1).
pub(crate) fn quote(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_word_is_one_word() {
        assert_eq!(quote(Path::new("a b")), "'a b'");
        assert_eq!(quote(Path::new("it's")), r"'it'\''s'");
    }
}
