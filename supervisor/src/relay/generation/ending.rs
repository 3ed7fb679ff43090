//! The ends of a generation: the agent's own, in all its forms, and an ordered stop.

use std::rc::Rc;
use std::time::Duration;

use casemate_protocol::acp::server;
use casemate_protocol::audit::Event;
use casemate_protocol::codes::{close, exit};
use casemate_protocol::worker::AgentState;
use casemate_sandbox::Exit;
use nix::sys::signal::Signal;
use tokio::time::{Instant, timeout};

use super::{AGENT, Generation};
use crate::process::lines::Line;
use crate::relay::outbox::{Item, Outbox};

/// How long an agent that closed its stdout has to exit.
const EXIT_AFTER_EOF: Duration = Duration::from_secs(3);
/// How long what an agent left behind may hold its output open.
const EOF_AFTER_EXIT: Duration = Duration::from_secs(2);
/// A pipe holds no more than this (`/proc/sys/fs/pipe-max-size` by default): what comes after so much was not the agent's.
const PIPE: usize = 1024 * 1024;

impl Generation {
    /// The agent exited. What it left in the pipe is taken first, a bounded time: a process that it left behind may
    /// hold the pipe, and may even go on speaking.
    pub async fn agent_exited(&mut self, exit: Option<Exit>) {
        let held = !self.drain_until_closed(EOF_AFTER_EXIT).await;
        self.exited = exit.map(Exit::code);
        let code = self.exited.unwrap_or(exit::SOFTWARE);
        let mut cause = match exit {
            Some(exit) => format!("the agent ended with {exit}"),
            None => "the agent's end was not seen".to_owned(),
        };
        let broken = self.parts.bounds.broken();
        let code = if broken.is_some() { exit::BOUNDS } else { code };
        if let Some(broken) = broken {
            cause = broken;
        } else if held {
            cause.push_str(" while a process that it left behind held its output");
        }
        tracing::warn!(%cause, "the generation is over");
        self.end(&cause, code).await;
    }

    /// The agent closed its stdout: it is about to exit, or it lives on and is of no use any more.
    pub async fn agent_closed_stdout(&mut self) {
        self.settle_now();
        let Some(agent) = &mut self.agent else { return };
        match timeout(EXIT_AFTER_EOF, &mut agent.end).await {
            Ok(exit) => self.agent_exited(exit.ok()).await,
            Err(_) => {
                let cause = "the agent closed its output but did not exit";
                tracing::warn!(cause, "the generation is over");
                self.terminate().await;
                self.end(cause, exit::SOFTWARE).await;
            }
        }
    }

    /// An ordered stop: TERM, grace, KILL; every client hears why.
    pub async fn stop(&mut self, code: u16, words: &str) {
        if self.over.is_some() {
            return;
        }
        tracing::info!(words, "stopping");
        self.parts.running.hang_up();
        let deadline = Instant::now() + self.parts.grace;
        self.terminate().await;
        // Commands of exec were told as well, and have the same grace.
        let _ = tokio::time::timeout_at(deadline, self.parts.running.none()).await;
        self.parts.session.end().await;
        self.farewell = Some((code, words.to_owned()));
        self.conclude(words, exit::OK, code);
    }

    /// Ends a generation whose agent is gone or useless.
    pub async fn end(&mut self, cause: &str, code: u8) {
        let mut cause = cause.to_owned();
        if let Some(agent) = &mut self.agent {
            let tail = agent.stderr_tail().await;
            if !tail.is_empty() {
                cause = format!("{cause}; it last wrote to stderr: {tail}");
            }
        }
        if let Some(noise) = self.server.noise() {
            cause = format!("{cause}; {noise}");
        }
        self.parts.running.hang_up();
        self.parts.session.end().await;
        self.conclude(&cause, code, close::AGENT_GONE);
    }

    /// The one way into the end: whoever waits for an answer gets one, then every client is closed.
    pub(super) fn conclude(&mut self, cause: &str, exit_code: u8, close_code: u16) {
        // First, so that nothing of what the role does now can start another agent.
        self.over = Some(exit_code);
        self.parts.running.hang_up();
        if let Some(agent) = self.agent.take() {
            let event = Event::ended(AGENT, &self.program(), agent.pid, self.exited);
            self.parts.audit.record(event);
        }
        self.agent_state = AgentState::Exited { cause: cause.to_owned() };
        self.handle(server::Event::AgentEnded { cause });
        self.close_all(close_code, cause);
        // Also where nobody is attached: nothing is under way when the worker goes.
        self.settle_now();
    }

    fn close_all(&mut self, code: u16, words: &str) {
        for (conn, outbox) in std::mem::take(&mut self.clients) {
            self.parts.audit.record(Event::detached(conn.0));
            self.close_one(outbox, code, words.to_owned());
        }
    }

    pub(super) fn close_one(&mut self, outbox: Rc<Outbox>, code: u16, words: String) {
        self.closing.retain(|outbox| !outbox.is_finished());
        outbox.put(Item::Close(code, words));
        self.let_go(&outbox);
        self.closing.push(outbox);
    }

    /// Waits until every client that was told to close has gone.
    pub async fn flushed(&self) {
        while self.closing.iter().any(|outbox| !outbox.is_finished()) {
            self.parts.drained.notified().await;
        }
    }

    /// TERM to the agent's group, and its output relayed while it makes use of the grace.
    async fn terminate(&mut self) {
        let Some(agent) = &mut self.agent else { return };
        agent.signal(Signal::SIGTERM);
        let deadline = Instant::now() + self.parts.grace;
        loop {
            let (blocked, drained, written) = (self.is_blocked(), self.drained(), self.written());
            let Some(agent) = &mut self.agent else { return };
            let line = tokio::select! {
                biased;
                _ = &mut agent.end => return,
                () = tokio::time::sleep_until(deadline) => return,
                line = agent.stdout.next(), if !blocked => line,
                () = drained.notified(), if blocked => continue,
                () = written.notified() => {
                    self.journal_written();
                    continue;
                }
            };
            match line {
                Ok(Line::Text(line)) => self.agent_line(&line),
                Ok(Line::TooLong(outline)) => self.agent_line_too_long(&outline),
                Ok(Line::End) | Err(_) => {
                    self.settle_now();
                    let Some(agent) = &mut self.agent else { return };
                    let _ = tokio::time::timeout_at(deadline, &mut agent.end).await;
                    return;
                }
            }
            self.settle();
        }
    }

    /// Takes what is left in the agent's stdout; false where it was not closed in time, or more comes than can be kept.
    async fn drain_until_closed(&mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        // The first line may have been read in part before.
        let mut bytes = None;
        loop {
            let Some(agent) = &mut self.agent else { return true };
            match tokio::time::timeout_at(deadline, agent.stdout.next()).await {
                Ok(Ok(Line::Text(line))) => {
                    bytes = Some(bytes.map_or(0, |bytes| bytes + line.len()));
                    self.agent_line(&line);
                }
                Ok(Ok(Line::TooLong(outline))) => self.agent_line_too_long(&outline),
                Ok(Ok(Line::End) | Err(_)) => return true,
                Err(_) => return false,
            }
            self.settle_now();
            if Instant::now() >= deadline || (bytes > Some(PIPE) && self.is_blocked()) {
                return false;
            }
        }
    }
}
