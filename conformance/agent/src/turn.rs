//! One turn: does a verb's work, streams what comes of it, and can be cancelled from another thread.

use std::io::Write;
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use crate::history::History;
use crate::shell;
use crate::verb::Verb;
use crate::wire::{Answer, Wire};

/// A cancel that a turn can wait for.
#[derive(Debug, Default)]
pub(crate) struct Cancel {
    asked: Mutex<bool>,
    changed: Condvar,
}

/// How a turn went on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    EndTurn,
    Cancelled,
    /// Updates that are to be sent after the final answer.
    Late {
        count: u64,
        cancelled: bool,
    },
}

/// What a turn works with.
pub(crate) struct Turn {
    pub(crate) wire: Wire,
    pub(crate) history: History,
    pub(crate) session: String,
    pub(crate) cwd: String,
    pub(crate) cancel: Arc<Cancel>,
}

// === impl Cancel ===

impl Cancel {
    pub(crate) fn ask(&self) {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// True as soon as the cancel was asked for, false after `pause`.
    pub(crate) fn wait(&self, pause: Duration) -> bool {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let (asked, _) = self
            .changed
            .wait_timeout_while(asked, pause, |asked| !*asked)
            .unwrap_or_else(PoisonError::into_inner);
        *asked
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.wait(Duration::ZERO)
    }
}

// === impl Turn ===

impl Turn {
    /// Sends one `session/update` and keeps it.
    pub(crate) fn update(&self, update: &Value) {
        if let Err(error) = self.history.append(&self.session, update) {
            eprintln!("scripted agent: history of {}: {error}", self.session);
        }
        let params = json!({"sessionId": self.session, "update": update});
        self.wire.notify("session/update", &params);
    }

    pub(crate) fn say(&self, text: &str) {
        self.update(&json!({
            "sessionUpdate": "agent_message_chunk",
            "content": {"type": "text", "text": text},
        }));
    }

    /// Works until the verb is done or a cancel comes.
    pub(crate) fn work(&self, verb: Verb) -> Stop {
        match verb {
            Verb::Shell(command) => {
                let ended = shell::run(&command, &self.cwd, &self.cancel, |text| self.say(text));
                if self.cancel.is_asked() {
                    return Stop::Cancelled;
                }
                self.say(&match ended {
                    Ok(ended) => format!("[{ended}]"),
                    Err(error) => format!("[could not run sh: {error}]"),
                });
            }
            Verb::Tool(command) => {
                let (id, mut said) = ("scripted-tool", String::new());
                self.update(&json!({
                    "sessionUpdate": "tool_call", "toolCallId": id, "title": command,
                    "kind": "execute", "status": "in_progress",
                }));
                let ended =
                    shell::run(&command, &self.cwd, &self.cancel, |text| said.push_str(text));
                let status = if ended.is_ok() { "completed" } else { "failed" };
                let content = json!({"type": "content", "content": {"type": "text", "text": said}});
                self.update(&json!({
                    "sessionUpdate": "tool_call_update", "toolCallId": id, "status": status,
                    "content": [content],
                }));
                if self.cancel.is_asked() {
                    return Stop::Cancelled;
                }
            }
            Verb::Ask { method, params } => return self.ask(&method, params),
            Verb::Permission => {
                let params = json!({
                    "toolCall": {"toolCallId": "scripted-1", "title": "scripted permission"},
                    "options": [
                        {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
                        {"optionId": "no", "name": "Reject", "kind": "reject_once"},
                    ],
                });
                return self.ask("session/request_permission", params);
            }
            Verb::Sleep { millis } => {
                if self.cancel.wait(Duration::from_millis(millis)) {
                    return Stop::Cancelled;
                }
                self.say("slept");
            }
            Verb::Updates { count, bytes } => {
                for index in 1..=count {
                    if self.cancel.is_asked() {
                        return Stop::Cancelled;
                    }
                    self.say(&numbered(index, bytes));
                }
            }
            Verb::Late { count, millis } => {
                let cancelled = self.cancel.wait(Duration::from_millis(millis));
                return Stop::Late { count, cancelled };
            }
            Verb::Exit(code) => leave(i32::from(code)),
            Verb::Die(signal) => die(signal),
            Verb::Garbage => {
                self.wire.raw(b"this is a log line, not JSON\n");
                self.wire.raw(b"{\"half\": \n");
                self.wire.raw(b"[{\"jsonrpc\":\"2.0\",\"method\":\"in/a/batch\"}]\n");
                self.wire.raw(b"\xff\xfe\x00 not UTF-8\n\n");
                self.say("garbage was written");
            }
            Verb::Environment => {
                let mut lines: Vec<String> = std::env::vars_os()
                    .map(|(name, value)| {
                        format!("{}={}", name.to_string_lossy(), value.to_string_lossy())
                    })
                    .collect();
                lines.sort();
                self.say(&lines.join("\n"));
            }
            Verb::WorkingDirectory => {
                let process = std::env::current_dir().map(|path| path.display().to_string());
                let process = process.unwrap_or_else(|error| format!("({error})"));
                self.say(&format!("session {}\nprocess {process}", self.cwd));
            }
            Verb::Listen(port) => self.say(&match listen(port) {
                Ok(()) => format!("listening on 127.0.0.1:{port}"),
                Err(error) => format!("cannot listen on 127.0.0.1:{port}: {error}"),
            }),
            Verb::Echo(text) => self.say(&format!("echo: {text}")),
        }
        Stop::EndTurn
    }

    /// One request to the client; prints its answer. `sessionId` is added where the caller left it out.
    fn ask(&self, method: &str, mut params: Value) -> Stop {
        if let Value::Object(members) = &mut params {
            members.entry("sessionId").or_insert_with(|| self.session.clone().into());
        }
        let (to, answers): (Sender<Answer>, Receiver<Answer>) = channel();
        let id = self.wire.request(method, &params, to);
        loop {
            match answers.recv_timeout(Duration::from_millis(10)) {
                Ok(Answer::Result(result)) => self.say(&format!("result {result}")),
                Ok(Answer::Error(error)) => self.say(&format!("error {error}")),
                Err(RecvTimeoutError::Timeout) if !self.cancel.is_asked() => continue,
                Err(_) => {
                    self.wire.forget(id);
                    return Stop::Cancelled;
                }
            }
            // A client answers an open permission `cancelled` when it cancels the turn.
            return if self.cancel.is_asked() { Stop::Cancelled } else { Stop::EndTurn };
        }
    }
}

/// `bytes` long where that leaves room for the number.
fn numbered(index: u64, bytes: usize) -> String {
    format!("{index} {}", "x".repeat(bytes.saturating_sub(index.to_string().len() + 1)))
}

/// Says `scripted` to whoever connects, for as long as the process lives.
fn listen(port: u16) -> std::io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let mut connection = connection;
            let _ = connection.write_all(b"scripted\n");
        }
    });
    Ok(())
}

#[expect(
    clippy::exit,
    reason = "the prompt asks for exactly this: an agent that leaves in mid-turn"
)]
fn leave(code: i32) -> ! {
    std::process::exit(code)
}

fn die(signal: nix::sys::signal::Signal) {
    if let Err(error) = nix::sys::signal::raise(signal) {
        eprintln!("scripted agent: raise {signal}: {error}");
    }
    // The signal may be delivered to the process a moment later.
    std::thread::sleep(Duration::from_secs(1));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_chunks_have_the_length_that_was_asked_for() {
        assert_eq!(numbered(12, 100).len(), 100);
        assert_eq!(numbered(1, 0), "1 ");
    }

    #[test]
    fn a_cancel_wakes_whoever_waits() {
        let cancel = Arc::new(Cancel::default());
        assert!(!cancel.wait(Duration::from_millis(1)));
        let asker = Arc::clone(&cancel);
        let thread = std::thread::spawn(move || asker.ask());
        assert!(cancel.wait(Duration::from_secs(60)));
        thread.join().unwrap();
    }
}
