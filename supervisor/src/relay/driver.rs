//! The relay's task: events in, the role's actions carried out in their order.
//!
//! Owns [`Server`], the agent, the journals and every client's [`Outbox`]. Nothing in the loop waits for a slow peer:
//! what a slow client does not take is kept for it on the disk, and where that is full the agent is read no further; a slow
//! agent stops the reading of clients. What is decided is the role's business, not this file's.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use casemate_protocol::acp::server::Event;
use casemate_protocol::codes::{close, exit};
use casemate_protocol::worker::Activity;
use casemate_sandbox::Exit;
use nix::sys::signal::Signal;
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout};

use super::generation::Generation;
use super::outbox::Outbox;
use super::view::View;
use crate::patch::PatchError;
use crate::process::agent::Agent;
use crate::process::lines::Line;
use crate::told::Told;
use casemate_protocol::acp::server::Conn;
use casemate_protocol::worker::Quiesce;

/// More bytes than this unread by the agent, and clients are read no further.
const AGENT_BEHIND: usize = 64 * 1024 * 1024;
/// More bytes than this of one read of the agent, and there may soon be as many more.
const MANY: usize = 16 * 1024;
/// How often an idle worktree is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// How often refusals are told, where the agent says nothing.
const TELL_EVERY: Duration = Duration::from_millis(50);
/// A client that has just come wants its agent, which has not to share the machine with git then.
const LOOK_AFTER_COMING: Duration = Duration::from_secs(1);
/// How long the last lines have to reach the clients.
const FLUSH: Duration = Duration::from_secs(5);

/// One line of a client.
#[derive(Debug)]
pub enum Sent {
    /// In its turn.
    Line(Bytes),
    /// It goes ahead of others, and comes again in its turn, empty.
    Ahead(Bytes),
}

/// From the connections.
#[derive(Debug)]
pub enum FromClient {
    /// A WebSocket is open.
    Connected(Conn, Rc<Outbox>),
    /// It sent lines.
    Lines(Conn, Vec<Sent>),
    /// It is gone.
    Gone(Conn),
}

/// From the HTTP calls and the signals.
#[derive(Debug)]
pub enum Order {
    /// What goes on?
    Look(oneshot::Sender<View>),
    /// Refuse new prompts.
    Quiesce(oneshot::Sender<Quiesce>),
    /// The session's work as a patch.
    Patch(oneshot::Sender<Result<Vec<u8>, PatchError>>),
    /// Accept them again.
    Reopen(oneshot::Sender<()>),
    /// Tell whoever prompts.
    Notice(String),
    /// End the session's processes at once, and with them the generation, for this reason.
    End(String),
    /// End the worker; clients are closed with the code and words.
    Stop(u16, String),
    /// Pass a signal to the agent.
    Signal(Signal),
}

/// What ended the wait for the next event.
enum Woken {
    Client(FromClient),
    Order(Order),
    Agent(std::io::Result<Line>),
    AgentExit(Option<Exit>),
    Written,
    Drained,
    Blocked,
    Tick,
    Look,
    Refused,
    SpawnerGone,
    Closed,
}

/// Runs a generation to its end; the worker's exit code.
pub async fn run(
    mut generation: Generation,
    mut clients: mpsc::Receiver<FromClient>,
    mut orders: mpsc::Receiver<Order>,
) -> u8 {
    let mut blocked = None;
    let mut next_look = Instant::now();
    let mut next_telling = Instant::now();
    loop {
        generation.settle();
        if let Some(code) = generation.over() {
            let _ = timeout(FLUSH, generation.flushed()).await;
            return code;
        }
        blocked = still_blocked(&generation, blocked);
        let times = (next_look, next_telling);
        match wait(&mut generation, &mut clients, &mut orders, blocked, times).await {
            Woken::Client(FromClient::Connected(conn, outbox)) => {
                generation.connect(conn, outbox);
                next_look = next_look.max(Instant::now() + LOOK_AFTER_COMING);
            }
            Woken::Client(FromClient::Lines(conn, lines)) => {
                for line in lines {
                    match line {
                        Sent::Line(line) => generation.client_line(conn, &line),
                        Sent::Ahead(line) => generation.client_ahead(conn, &line),
                    }
                }
            }
            Woken::Client(FromClient::Gone(conn)) => generation.disconnect(conn),
            Woken::Order(order) => carry_out(&mut generation, order).await,
            Woken::Agent(Ok(Line::End)) => generation.agent_closed_stdout().await,
            Woken::Agent(Ok(line)) => {
                let bytes = generation.agent_lines(line);
                // A process that it left behind may fill its output without a pause.
                if let Some(exit) = generation.agent_end() {
                    generation.agent_exited(exit).await;
                } else if bytes > MANY {
                    // Whoever sends them on has its turn before the next are read.
                    generation.settle();
                    yield_now().await;
                }
            }
            Woken::Agent(Err(error)) => {
                tracing::warn!(%error, "the agent's stdout broke");
                generation.agent_closed_stdout().await;
            }
            Woken::AgentExit(exit) => generation.agent_exited(exit).await,
            Woken::Blocked => {
                generation.blocked().await;
                blocked = Some(Blocked::Told);
            }
            Woken::Tick => generation.handle(Event::Tick),
            Woken::Look => {
                generation.look_later();
                next_look = Instant::now() + LOOK_EVERY;
            }
            Woken::Refused => {
                generation.tell_refusals();
                next_telling = Instant::now() + TELL_EVERY;
            }
            Woken::Written => generation.journal_written(),
            Woken::Drained => {}
            Woken::SpawnerGone => {
                generation.end("the spawner process is gone", exit::SOFTWARE).await;
            }
            Woken::Closed => generation.stop(close::GOING_AWAY, "the worker ends").await,
        }
    }
}

async fn carry_out(generation: &mut Generation, order: Order) {
    match order {
        // Whoever asked and has gone away needs no answer.
        Order::Look(answer) => drop(answer.send(generation.view())),
        Order::Quiesce(answer) => generation.quiesce(answer),
        Order::Patch(answer) => generation.patch(answer),
        Order::Reopen(answer) => {
            generation.reopen();
            let _ = answer.send(());
        }
        Order::Notice(text) => {
            tracing::warn!(text, "bounds");
            generation.handle(Event::Notice(&text));
        }
        Order::End(cause) => generation.end(&cause, exit::BOUNDS).await,
        Order::Stop(code, words) => generation.stop(code, &words).await,
        Order::Signal(signal) => generation.signal(signal),
    }
}

/// An agent that is not read, since nothing more of it can be kept.
#[derive(Debug, Clone, Copy)]
enum Blocked {
    Since(Instant),
    /// For so long that its turn was cancelled.
    Told,
}

fn still_blocked(generation: &Generation, before: Option<Blocked>) -> Option<Blocked> {
    generation.is_blocked().then(|| before.unwrap_or_else(|| Blocked::Since(Instant::now())))
}

async fn wait(
    generation: &mut Generation,
    clients: &mut mpsc::Receiver<FromClient>,
    orders: &mut mpsc::Receiver<Order>,
    blocked: Option<Blocked>,
    (next_look, next_telling): (Instant, Instant),
) -> Woken {
    let deadline = generation.deadline();
    let look = generation.was_attached() && matches!(generation.activity(), Activity::Idle { .. });
    let drained = generation.drained();
    let written = generation.written();
    let session = generation.session();
    let told = generation.told();
    let stdin = generation.agent().as_ref().map(|agent| &agent.stdin);
    let behind = stdin.is_some_and(|stdin| stdin.pending() > AGENT_BEHIND);
    let agent_drained =
        stdin.filter(|_| behind || blocked.is_some()).map(|stdin| Rc::clone(&stdin.drained));
    let patience = match blocked {
        Some(Blocked::Since(since)) => Some(since + generation.blocked_ttl()),
        Some(Blocked::Told) | None => None,
    };
    tokio::select! {
        biased;
        () = written.notified() => Woken::Written,
        order = orders.recv() => order.map_or(Woken::Closed, Woken::Order),
        event = clients.recv(), if !behind => event.map_or(Woken::Closed, Woken::Client),
        woken = from_agent(generation.agent(), blocked.is_none()) => woken,
        () = notified(agent_drained) => Woken::Drained,
        () = drained.notified(), if blocked.is_some() => Woken::Drained,
        () = at(patience) => Woken::Blocked,
        () = at(deadline) => Woken::Tick,
        () = at(look.then_some(next_look)) => Woken::Look,
        () = session.reaper.spawner_end() => Woken::SpawnerGone,
        () = refused(told, next_telling) => Woken::Refused,
    }
}

/// Output before the end: what an agent wrote before it died is still its word.
async fn from_agent(agent: &mut Option<Agent>, reads: bool) -> Woken {
    match agent {
        Some(agent) => tokio::select! {
            biased;
            line = agent.stdout.next(), if reads => Woken::Agent(line),
            exit = &mut agent.end => Woken::AgentExit(exit.ok()),
        },
        None => std::future::pending().await,
    }
}

async fn at(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => std::future::pending().await,
    }
}

/// However many are refused, the relay has other work.
async fn refused(told: Option<Arc<Told>>, not_before: Instant) {
    match told {
        Some(told) => {
            sleep_until(not_before).await;
            told.some().await;
        }
        None => std::future::pending().await,
    }
}

async fn notified(notify: Option<Rc<tokio::sync::Notify>>) {
    match notify {
        Some(notify) => notify.notified().await,
        None => std::future::pending().await,
    }
}
