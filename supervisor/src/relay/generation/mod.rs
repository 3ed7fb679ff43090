//! One generation: the role, the agent's process and the clients' queues, and every way in which it ends.
//!
//! [`super::driver`] says what happened; here it is given to the role and the role's actions are carried out, in order,
//! without waiting. Ends do wait (a grace, a drain), since nothing else can matter then. Once [`Generation::over`] has
//! a code nothing starts again.

mod ending;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use casemate_protocol::acp::frame::Outline;
use casemate_protocol::acp::server::{Action, Conn, Event, Saved, Server, Settings};
use casemate_protocol::audit;
use casemate_protocol::codes::{close, exit};
use casemate_protocol::worker::{Activity, AgentState, Evidence, Quiesce};
use casemate_sandbox::{Exit, Wall};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::audit::Audit;
use crate::bounds::Bounds;
use crate::evidence::Inspector;
use crate::exec::running::Running;
use crate::guess;
use crate::http::metrics::{Metrics, add};
use crate::patch::PatchError;
use crate::process::agent::{Agent, Recipe};
use crate::process::confined::RunError;
use crate::process::lines::Line;
use crate::process::reaper::Session;
use crate::relay::journal::Journals;
use crate::relay::lasting::Lasting;
use crate::relay::outbox::{Item, Outbox};
use crate::relay::prompts::Prompts;
use crate::relay::saved;
use crate::relay::view::View;
use crate::told::{Told, Waiting};
use crate::words::chain;

/// Why the agent's process runs, in the audit log.
const AGENT: &str = "agent";

/// More bytes than this of answers to an agent's own requests that it has not read, and it is read no further. Some forty thousand
/// refusals: an agent that writes so many requests before it reads one answer could deadlock with any client.
const UNREAD_ANSWERS: usize = 4 * 1024 * 1024;

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
    /// Its records of prompts.
    pub prompts: Rc<RefCell<Prompts>>,
    /// How to look at the worktree.
    pub inspector: Inspector,
    /// Between TERM and KILL.
    pub grace: Duration,
    /// How long the agent waits for a client for whom nothing more can be kept.
    pub blocked_ttl: Duration,
    /// Commands that run beside the agent.
    pub running: Rc<Running>,
    /// What the session may take.
    pub bounds: Rc<Bounds>,
    /// What the walls refuse, where that is told.
    pub told: Option<Arc<Told>>,
    /// Counters.
    pub metrics: Rc<Metrics>,
    /// Shared by all outboxes.
    pub drained: Rc<Notify>,
    /// The worker's log.
    pub audit: Audit,
}

/// One generation.
#[derive(Debug)]
pub struct Generation {
    parts: Parts,
    server: Server,
    agent: Option<Agent>,
    agent_state: AgentState,
    clients: BTreeMap<Conn, Rc<Outbox>>,
    /// Told to close, not yet gone.
    closing: Vec<Rc<Outbox>>,
    epoch: u64,
    evidence: Rc<RefCell<Option<Evidence>>>,
    started: Instant,
    over: Option<u8>,
    /// The agent's own exit code, where its end was seen.
    exited: Option<u8>,
    /// Set by an ordered stop: what every client is closed with, whatever the role says of the agent's end.
    farewell: Option<(u16, String)>,
    /// Empty but for its capacity.
    actions: Vec<Action>,
    lasting: Lasting,
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
            clients: BTreeMap::new(),
            closing: Vec::new(),
            epoch: 0,
            evidence: Rc::default(),
            started: Instant::now(),
            over: None,
            exited: None,
            farewell: None,
            actions: Vec::new(),
            lasting: Lasting::default(),
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
        self.parts.running.with(self.server.activity(self.now()))
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

    /// What the walls refuse, to be waited for.
    #[must_use]
    pub fn told(&self) -> Option<Arc<Told>> {
        self.parts.told.clone()
    }

    /// The agent's end, where it has come, whatever its output still brings.
    pub fn agent_end(&mut self) -> Option<Option<Exit>> {
        match self.agent.as_mut()?.end.try_recv() {
            Ok(exit) => Some(Some(exit)),
            Err(TryRecvError::Closed) => Some(None),
            Err(TryRecvError::Empty) => None,
        }
    }

    /// The agent, to be waited for.
    pub fn agent(&mut self) -> &mut Option<Agent> {
        &mut self.agent
    }

    /// The agent is read no further: more waits for a client than can be kept for it, or the agent asks and asks and does not read
    /// what it is answered.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.agent_is_deaf() || self.clients.values().any(|outbox| outbox.is_full())
    }

    fn agent_is_deaf(&self) -> bool {
        self.agent.as_ref().is_some_and(|agent| agent.stdin.unread_answers() > UNREAD_ANSWERS)
    }

    /// How long that may last until the turn is cancelled.
    #[must_use]
    pub fn blocked_ttl(&self) -> Duration {
        self.parts.blocked_ttl
    }

    /// It has lasted so long.
    pub async fn blocked(&mut self) {
        if self.agent_is_deaf() {
            let seconds = self.parts.blocked_ttl.as_secs();
            let cause = format!(
                "the agent asked without end and for {seconds} s read nothing of what it was answered"
            );
            tracing::warn!(%cause, "the generation is over");
            return self.end(&cause, exit::SOFTWARE).await;
        }
        add(&self.parts.metrics.blocked_turns, 1);
        let seconds = self.parts.blocked_ttl.as_secs();
        let words = format!(
            "nobody took what the agent said for {seconds} s, and no more of it can be kept: its turn was cancelled"
        );
        tracing::warn!(words, "relay");
        self.handle(Event::Blocked(&words));
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
        outbox.hold();
        self.clients.insert(conn, outbox);
        self.parts.audit.record(audit::Event::attached(conn.0));
        self.handle(Event::Connected(conn));
    }

    /// A client is gone.
    pub fn disconnect(&mut self, conn: Conn) {
        if self.forget(conn).is_some() {
            self.handle(Event::Disconnected(conn));
        }
    }

    fn forget(&mut self, conn: Conn) -> Option<Rc<Outbox>> {
        let outbox = self.clients.remove(&conn)?;
        self.parts.audit.record(audit::Event::detached(conn.0));
        Some(outbox)
    }

    /// A client sent a line. One that was closed already has nothing to say.
    pub fn client_line(&mut self, conn: Conn, line: &Bytes) {
        add(&self.parts.metrics.client_lines, 1);
        if let Some(outbox) = self.clients.get(&conn) {
            if let Some(receipts) = outbox.receipts() {
                receipts.take();
            }
            self.handle(Event::FromClient(conn, line));
        }
    }

    /// A client sent a line that goes ahead of others. It is counted when it comes in its turn.
    pub fn client_ahead(&mut self, conn: Conn, line: &Bytes) {
        if self.clients.contains_key(&conn) {
            self.handle(Event::Ahead(conn, line));
        }
    }

    /// The agent wrote a line.
    pub fn agent_line(&mut self, line: &Bytes) {
        // Before what it says of it, and before its turn's end.
        self.tell_refusals();
        self.take_agent_line(line);
    }

    fn take_agent_line(&mut self, line: &Bytes) {
        add(&self.parts.metrics.agent_lines, 1);
        add(&self.parts.metrics.agent_bytes, line.len() as u64);
        self.handle(Event::FromAgent(line));
        self.tell_guesses(line);
    }

    /// Of paths, by what a tool of the agent's has just said: neither counted nor recorded, for nobody refused it for sure.
    fn tell_guesses(&mut self, line: &[u8]) {
        let Some(told) = &self.parts.told else { return };
        let Some(text) = guess::denied(line) else { return };
        let told = Arc::clone(told);
        for refusal in told.guesses(&text) {
            self.handle(Event::Refused { what: &refusal.what, why: &refusal.why, times: 1 });
        }
    }

    /// The agent wrote a line; takes all that came with it, while its clients take what there is. How many bytes it was.
    pub fn agent_lines(&mut self, first: Line) -> usize {
        let mut bytes = 0;
        // As in `agent_line`: all of them were written by now.
        self.tell_refusals();
        let mut next = Some(first);
        while let Some(line) = next {
            match line {
                Line::Text(line) => {
                    bytes += line.len();
                    self.take_agent_line(&line);
                }
                Line::TooLong(outline) => self.agent_line_too_long(&outline),
                Line::End => {}
            }
            let reads = self.over.is_none() && !self.is_blocked();
            next = self.agent.as_mut().filter(|_| reads).and_then(|agent| agent.stdout.ready());
        }
        bytes
    }

    /// Tells, counts and records what the walls have refused.
    pub fn tell_refusals(&mut self) {
        let Some(told) = &self.parts.told else { return };
        let Waiting { refusals, beyond, again, .. } = told.take();
        let metrics = Rc::clone(&self.parts.metrics);
        metrics.actions_unread.set(told.unread());
        // Said in an earlier turn: on record and counted, and no noise in this one.
        if again > 0 {
            add(&metrics.actions_refused, again);
            self.parts.audit.record(audit::Event::refused("calls that were told before", again));
        }
        for (refusal, times) in refusals {
            add(&metrics.actions_refused, times);
            self.parts.audit.record(audit::Event::refused(&refusal.what, times));
            self.handle(Event::Refused { what: &refusal.what, why: &refusal.why, times });
        }
        if beyond > 0 {
            add(&metrics.actions_refused, beyond);
            self.parts.audit.record(audit::Event::refused("more of different kinds", beyond));
            self.handle(Event::RefusedMore(beyond));
        }
    }

    /// The agent wrote a line above the limit.
    pub fn agent_line_too_long(&mut self, outline: &Outline) {
        add(&self.parts.metrics.agent_noise, 1);
        self.handle(Event::AgentOverlong(outline));
    }

    /// Gives the role an event and does what it says.
    pub fn handle(&mut self, event: Event<'_>) {
        let mut actions = std::mem::take(&mut self.actions);
        let now = self.now();
        self.server.handle(event, now, &mut actions);
        let mut recalled = None;
        for action in actions.drain(..) {
            if let Action::Recall { session } = action {
                recalled = Some(session);
            } else {
                self.act(action);
            }
        }
        self.actions = actions;
        if let Some(session) = recalled {
            let record = self.parts.prompts.borrow_mut().recall(&session);
            self.handle(Event::Recalled { session: &session, record: record.as_ref() });
        }
    }

    /// After all that came at once. Lines of clients are dealt with when what they led to is written; a prompt that waits
    /// for a turn is not. Nothing goes out before it is in its journal.
    pub fn settle(&mut self) {
        // One write at a time: what waits for the one before goes first.
        if self.parts.journals.is_pending() && self.parts.journals.is_writing() {
            report(self.parts.journals.wait());
            self.release();
        }
        report(self.parts.journals.begin());
        for outbox in self.clients.values() {
            outbox.mark();
        }
        if !self.parts.journals.is_writing() {
            self.release();
        }
        for (conn, outbox) in &self.clients {
            let Some(receipts) = outbox.receipts() else { continue };
            let Some(to) = receipts.mark(self.server.oldest_waiting(*conn)) else { continue };
            match &self.agent {
                Some(agent) => {
                    let receipts = Rc::clone(receipts);
                    agent.stdin.then(move || receipts.settle(to));
                }
                None => receipts.settle(to),
            }
        }
    }

    /// As [`Self::settle`], and waits for the journals: whoever calls this has no time for them later.
    pub fn settle_now(&mut self) {
        self.settle();
        report(self.parts.journals.wait());
        self.release();
    }

    /// What was being written to a journal may be written.
    pub fn journal_written(&mut self) {
        report(self.parts.journals.look());
        if !self.parts.journals.is_writing() {
            self.release();
        }
    }

    /// Notified when it is.
    #[must_use]
    pub fn written(&self) -> Arc<Notify> {
        self.parts.journals.written()
    }

    fn release(&self) {
        self.clients.values().for_each(|outbox| outbox.release());
    }

    /// All that was put in for one client may go: its journals are written first.
    fn let_go(&mut self, outbox: &Outbox) {
        report(self.parts.journals.flush());
        outbox.mark();
        outbox.release();
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::StartAgent => self.start_agent(),
            Action::ToAgent(line) => self.to_agent(line),
            Action::AnswerAgent(line) => match &self.agent {
                Some(agent) => agent.stdin.answer(line),
                None => tracing::debug!("an answer for an agent that does not run"),
            },
            Action::ToClient(conn, line) => {
                let line = self.lasting.keep(line);
                self.to_client(conn, Item::Line(line));
            }
            Action::Close(conn, code, words) => {
                // Out of the table at once: a superseded client is no attachment any more. The role knows.
                if let Some(outbox) = self.forget(conn) {
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
            Action::Record { session, entry } => {
                let Some(agent) = &self.agent else { return };
                let prompts = Rc::clone(&self.parts.prompts);
                agent.stdin.then(move || prompts.borrow_mut().append(&session, &entry));
            }
            // Answered once the actions beside it are done.
            Action::Recall { .. } => {}
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

    fn to_agent(&self, line: Bytes) {
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
                let arguments = self.parts.recipe.argv.len().saturating_sub(1);
                let event = audit::Event::launched(AGENT, &self.program(), arguments, agent.pid);
                self.parts.audit.record(event);
                self.agent_state = AgentState::Running { pid: agent.pid };
                self.agent = Some(agent);
            }
            Err(error) => {
                let cause = format!("the agent could not be started: {}", chain(&error));
                tracing::error!(%cause);
                let event = audit::Event::not_launched(AGENT, &self.program(), &chain(&error));
                self.parts.audit.record(event);
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
        if self.parts.running.count() > 0 || !self.server.quiesce() {
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

    fn program(&self) -> String {
        self.parts.recipe.program.to_string_lossy().into_owned()
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

fn report(written: std::io::Result<()>) {
    if let Err(error) = written {
        tracing::error!(%error, "the journal lacks lines: check the volume's space");
    }
}

/// As sh(1) has it: 127 for a program that is not there, 126 for one that cannot be run.
fn not_started(error: &RunError) -> u8 {
    match error {
        RunError::Spawn(error) if error.source.raw_os_error() == Some(Errno::ENOENT as i32) => {
            exit::NOT_FOUND
        }
        _ => exit::NOT_RUNNABLE,
    }
}
