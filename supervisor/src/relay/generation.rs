//! One generation: the role, the agent's process and the clients' queues, and every way in which it ends.
//!
//! [`super::driver`] says what happened; here it is given to the role and the role's actions are carried out, in order,
//! without waiting. Ends do wait (a grace, a drain), since nothing else can matter then. Once [`Generation::over`] has
//! a code nothing starts again.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use casemate_protocol::acp::server::{Action, Conn, Event, Saved, Server, Settings};
use casemate_protocol::codes::{close, exit, rpc};
use casemate_protocol::worker::{Activity, AgentState, Evidence, Quiesce};
use casemate_sandbox::{Exit, Wall};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout};

use super::journal::Journals;
use super::outbox::{Item, Outbox};
use super::saved;
use super::view::View;
use crate::evidence::Inspector;
use crate::http::metrics::{Metrics, add};
use crate::patch::PatchError;
use crate::process::agent::{Agent, Recipe};
use crate::process::confined::RunError;
use crate::process::lines::Line;
use crate::process::overlong::Overlong;
use crate::process::reaper::Session;
use crate::words::chain;

/// How long an agent that closed its stdout has to exit.
const EXIT_AFTER_EOF: Duration = Duration::from_secs(3);
/// How long what an agent left behind may hold its output open.
const EOF_AFTER_EXIT: Duration = Duration::from_secs(2);
/// RFC 6455 section 7.4.1, policy violation: the client did not keep up.
const TOO_SLOW: u16 = 1008;

/// What a generation works with.
#[derive(Debug)]
pub struct Parts {
    /// Of the role.
    pub settings: Settings,
    /// From the last generation.
    pub saved: Saved,
    /// How to start the agent.
    pub recipe: Recipe,
    /// Where it runs.
    pub session: Rc<Session>,
    /// Its wall.
    pub wall: Rc<Wall>,
    /// `state/`.
    pub state: PathBuf,
    /// Its journals.
    pub journals: Journals,
    /// How to look at the worktree.
    pub inspector: Inspector,
    /// Between TERM and KILL.
    pub grace: Duration,
    /// Counters.
    pub metrics: Rc<Metrics>,
    /// Shared by all outboxes.
    pub drained: Rc<Notify>,
}

/// One generation.
#[derive(Debug)]
pub struct Generation {
    parts: Parts,
    server: Server,
    agent: Option<Agent>,
    agent_state: AgentState,
    clients: HashMap<Conn, Rc<Outbox>>,
    /// Told to close, not yet gone.
    closing: Vec<Rc<Outbox>>,
    epoch: u64,
    evidence: Rc<RefCell<Option<Evidence>>>,
    started: Instant,
    over: Option<u8>,
    /// Set by an ordered stop: what every client is closed with, whatever the role says of the agent's end.
    farewell: Option<(u16, String)>,
}

// === impl Generation ===

impl Generation {
    /// A new generation, with no agent yet.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        Self {
            server: Server::new(parts.settings.clone(), parts.saved.clone(), 0),
            parts,
            agent: None,
            agent_state: AgentState::NotStarted,
            clients: HashMap::new(),
            closing: Vec::new(),
            epoch: 0,
            evidence: Rc::default(),
            started: Instant::now(),
            over: None,
            farewell: None,
        }
    }

    /// The worker's exit code, once the generation is over.
    #[must_use]
    pub fn over(&self) -> Option<u8> {
        self.over
    }

    /// When the role wants a tick.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.server.deadline().map(|at| self.started + Duration::from_millis(at))
    }

    /// Busy or idle.
    #[must_use]
    pub fn activity(&self) -> Activity {
        self.server.activity(self.now())
    }

    /// A client was there at least once.
    #[must_use]
    pub fn was_attached(&self) -> bool {
        self.epoch > 0
    }

    /// Notified when a client has taken something.
    #[must_use]
    pub fn drained(&self) -> Rc<Notify> {
        Rc::clone(&self.parts.drained)
    }

    /// The session that everything runs in.
    #[must_use]
    pub fn session(&self) -> Rc<Session> {
        Rc::clone(&self.parts.session)
    }

    /// The agent, to be waited for.
    pub fn agent(&mut self) -> &mut Option<Agent> {
        &mut self.agent
    }

    /// What a client that is behind has taken so far; `None` where nobody is behind.
    #[must_use]
    pub fn slowest(&self) -> Option<u64> {
        self.clients.values().filter(|outbox| outbox.is_full()).map(|outbox| outbox.taken()).min()
    }

    /// For `/v1/status`.
    #[must_use]
    pub fn view(&self) -> View {
        View {
            agent: self.agent_state.clone(),
            activity: self.activity(),
            epoch: self.epoch,
            attachments: u32::try_from(self.clients.len()).unwrap_or(u32::MAX),
            saved: self.server.saved().clone(),
            evidence: self.evidence.borrow().clone(),
        }
    }

    /// A client attached.
    pub fn connect(&mut self, conn: Conn, outbox: Rc<Outbox>) {
        self.epoch += 1;
        add(&self.parts.metrics.attachments, 1);
        self.clients.insert(conn, outbox);
        self.handle(Event::Connected(conn));
    }

    /// A client is gone.
    pub fn disconnect(&mut self, conn: Conn) {
        if self.clients.remove(&conn).is_some() {
            self.handle(Event::Disconnected(conn));
        }
    }

    /// A client sent a line. One that was closed already has nothing to say.
    pub fn client_line(&mut self, conn: Conn, line: &[u8]) {
        add(&self.parts.metrics.client_lines, 1);
        if self.clients.contains_key(&conn) {
            self.handle(Event::FromClient(conn, line));
        }
    }

    /// The agent wrote a line.
    pub fn agent_line(&mut self, line: &[u8]) {
        add(&self.parts.metrics.agent_lines, 1);
        add(&self.parts.metrics.agent_bytes, line.len() as u64);
        self.handle(Event::FromAgent(line));
    }

    /// The agent wrote a line above the limit: an answer becomes an error for its asker, a request of the agent is
    /// refused, anything else is dropped and said so in the log.
    pub fn agent_line_too_long(&mut self, outline: &Overlong) {
        add(&self.parts.metrics.agent_noise, 1);
        let length = outline.length;
        tracing::warn!(length, "a line of the agent is longer than is relayed");
        let Some(id) = &outline.id else { return };
        let code = if outline.has_method { rpc::INVALID_REQUEST } else { rpc::INTERNAL };
        let error = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"the agent's message of {length} bytes is longer than the 64 MiB that are relayed"}}}}"#
        );
        if outline.has_method {
            self.to_agent(error.into_bytes());
        } else {
            self.handle(Event::FromAgent(error.as_bytes()));
        }
    }

    /// Gives the role an event and does what it says.
    pub fn handle(&mut self, event: Event<'_>) {
        let mut actions = Vec::new();
        let now = self.now();
        self.server.handle(event, now, &mut actions);
        for action in actions {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::StartAgent => self.start_agent(),
            Action::ToAgent(line) => self.to_agent(line),
            Action::ToClient(conn, line) => self.to_client(conn, Item::Line(line)),
            Action::Close(conn, code, words) => {
                // Out of the table at once: a superseded client is no attachment any more. The role knows.
                if let Some(outbox) = self.clients.remove(&conn) {
                    let (code, words) = self.farewell.clone().unwrap_or((code, words));
                    self.close_one(outbox, code, words);
                }
            }
            Action::Journal { session, line } => {
                if let Err(error) = self.parts.journals.append(&session, &line) {
                    tracing::error!(%error, "the journal lacks a line: check the volume's space");
                }
            }
            Action::ForgetJournal { session } => {
                if let Err(error) = self.parts.journals.forget(&session) {
                    tracing::error!(%error, "the journal could not be forgotten");
                }
            }
            Action::Replay { conn, session } => match self.parts.journals.replay(&session) {
                Ok(Some(item)) => self.to_client(conn, item),
                Ok(None) => {}
                Err(error) => tracing::error!(%error, "the journal could not be read"),
            },
            Action::Save(saved) => {
                if let Err(error) = saved::write(&self.parts.state, &saved) {
                    tracing::error!(%error, "what the next generation needs could not be saved");
                }
            }
            Action::Log(words) => tracing::info!(words, "relay"),
        }
    }

    fn to_client(&self, conn: Conn, item: Item) {
        if let Some(outbox) = self.clients.get(&conn) {
            outbox.put(item);
        }
    }

    fn to_agent(&self, line: Vec<u8>) {
        match &self.agent {
            Some(agent) => agent.stdin.send(line),
            None => tracing::debug!("a line for an agent that does not run"),
        }
    }

    fn start_agent(&mut self) {
        if self.agent.is_some() || self.over.is_some() {
            return;
        }
        match Agent::start(&self.parts.session, &self.parts.wall, &self.parts.recipe) {
            Ok(agent) => {
                tracing::info!(pid = agent.pid, "the agent runs");
                self.agent_state = AgentState::Running { pid: agent.pid };
                self.agent = Some(agent);
            }
            Err(error) => {
                let cause = format!("the agent could not be started: {}", chain(&error));
                tracing::error!(%cause);
                self.conclude(&cause, not_started(&error), close::AGENT_GONE);
            }
        }
    }

    /// Looks at the worktree, without holding anything up.
    pub fn look_later(&self) {
        let keep = Rc::clone(&self.evidence);
        let look = self.look();
        tokio::task::spawn_local(async move {
            if let Some(evidence) = look.await {
                keep.replace(Some(evidence));
            }
        });
    }

    fn look(&self) -> impl Future<Output = Option<Evidence>> + 'static {
        let inspector = self.parts.inspector.clone();
        let (session, wall) = (Rc::clone(&self.parts.session), Rc::clone(&self.parts.wall));
        async move { inspector.look(&session, &wall).await }
    }

    /// Makes a patch of the work, without holding anything up.
    pub fn patch(&self, answer: oneshot::Sender<Result<Vec<u8>, PatchError>>) {
        let inspector = self.parts.inspector.clone();
        let (session, wall) = (Rc::clone(&self.parts.session), Rc::clone(&self.parts.wall));
        tokio::task::spawn_local(async move {
            drop(answer.send(inspector.patch(&session, &wall).await));
        });
    }

    /// Refuses new prompts if idle, and tells what the worktree holds.
    pub fn quiesce(&mut self, answer: oneshot::Sender<Quiesce>) {
        if !self.server.quiesce() {
            drop(answer.send(Quiesce::Busy));
            return;
        }
        let keep = Rc::clone(&self.evidence);
        let look = self.look();
        tokio::task::spawn_local(async move {
            let evidence = look.await;
            keep.replace(evidence.clone());
            drop(answer.send(Quiesce::Quiesced { evidence }));
        });
    }

    /// Accepts prompts again.
    pub fn reopen(&mut self) {
        self.server.reopen();
    }

    /// Passes a signal to the agent's process group.
    pub fn signal(&self, signal: Signal) {
        if let Some(agent) = &self.agent {
            agent.signal(signal);
        }
    }

    /// Closes clients that are behind.
    pub fn cut_slow_clients(&mut self) {
        let slow: Vec<Conn> = self
            .clients
            .iter()
            .filter(|(_, outbox)| outbox.is_full())
            .map(|(conn, _)| *conn)
            .collect();
        for conn in slow {
            add(&self.parts.metrics.slow_clients, 1);
            tracing::warn!(conn = conn.0, "a client is too slow and is closed");
            if let Some(outbox) = self.clients.remove(&conn) {
                outbox.cut(TOO_SLOW, "too slow: nothing was taken for 30 s");
            }
            self.handle(Event::Disconnected(conn));
        }
    }

    /// The agent exited. What it left in the pipe is taken first, a bounded time: a process that it left behind may
    /// hold the pipe, and may even go on speaking.
    pub async fn agent_exited(&mut self, exit: Option<Exit>) {
        let held = !self.drain_until_closed(EOF_AFTER_EXIT).await;
        let code = exit.map_or(exit::SOFTWARE, Exit::code);
        let mut cause = match exit {
            Some(exit) => format!("the agent ended with {exit}"),
            None => "the agent's end was not seen".to_owned(),
        };
        if held {
            cause.push_str(" while a process that it left behind held its output");
        }
        tracing::warn!(%cause, "the generation is over");
        self.end(&cause, code).await;
    }

    /// The agent closed its stdout: it is about to exit, or it lives on and is of no use any more.
    pub async fn agent_closed_stdout(&mut self) {
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
        self.terminate().await;
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
        self.parts.session.end().await;
        self.conclude(&cause, code, close::AGENT_GONE);
    }

    /// The one way into the end: whoever waits for an answer gets one, then every client is closed.
    fn conclude(&mut self, cause: &str, exit_code: u8, close_code: u16) {
        // First, so that nothing of what the role does now can start another agent.
        self.over = Some(exit_code);
        self.agent = None;
        self.agent_state = AgentState::Exited { cause: cause.to_owned() };
        self.handle(Event::AgentEnded { cause });
        self.close_all(close_code, cause);
    }

    fn close_all(&mut self, code: u16, words: &str) {
        for (_, outbox) in std::mem::take(&mut self.clients) {
            self.close_one(outbox, code, words.to_owned());
        }
    }

    fn close_one(&mut self, outbox: Rc<Outbox>, code: u16, words: String) {
        self.closing.retain(|outbox| !outbox.is_finished());
        outbox.put(Item::Close(code, words));
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
            let Some(agent) = &mut self.agent else { return };
            let line = tokio::select! {
                biased;
                _ = &mut agent.end => return,
                line = agent.stdout.next() => line,
                () = tokio::time::sleep_until(deadline) => return,
            };
            match line {
                Ok(Line::Text(line)) => self.agent_line(&line),
                Ok(Line::TooLong(outline)) => self.agent_line_too_long(&outline),
                Ok(Line::End) | Err(_) => {
                    let Some(agent) = &mut self.agent else { return };
                    let _ = tokio::time::timeout_at(deadline, &mut agent.end).await;
                    return;
                }
            }
        }
    }

    /// Takes what is left in the agent's stdout; false where it was not closed in time.
    async fn drain_until_closed(&mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            let Some(agent) = &mut self.agent else { return true };
            match tokio::time::timeout_at(deadline, agent.stdout.next()).await {
                Ok(Ok(Line::Text(line))) => self.agent_line(&line),
                Ok(Ok(Line::TooLong(outline))) => self.agent_line_too_long(&outline),
                Ok(Ok(Line::End) | Err(_)) => return true,
                Err(_) => return false,
            }
            if Instant::now() >= deadline {
                return false;
            }
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// As sh(1) has it: 127 for a program that is not there, 126 for one that cannot be run.
fn not_started(error: &RunError) -> u8 {
    match error {
        RunError::Spawn(error) if error.source.raw_os_error() == Some(Errno::ENOENT as i32) => {
            exit::AGENT_NOT_FOUND
        }
        _ => exit::AGENT_NOT_RUNNABLE,
    }
}
