//! Serves until the generation is over or a signal says stop.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use casemate_protocol::acp::server::Settings;
use casemate_protocol::codes::close;
use casemate_protocol::ids::Epoch;
use casemate_protocol::worker::{Activity, AgentState, StartError, StartEvent, WorkerStatus};
use nix::sys::signal::Signal;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::inside::Ready;
use super::other;
use crate::http::app::App;
use crate::http::auth::Gate;
use crate::http::metrics::Metrics;
use crate::relay::driver::{self, Order};
use crate::relay::generation::{Generation, Parts};
use crate::relay::journal::Journals;
use crate::relay::saved;
use crate::{http, report};

/// Orders are few and small.
const ORDERS: usize = 16;
/// A client's line may be 64 MiB: one at a time waits.
const LINES: usize = 1;

/// Signals that are the agent's to deal with.
const FORWARDED: [Signal; 5] =
    [Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGWINCH];

/// Serves; the worker's exit code.
///
/// # Errors
/// [`StartError`] where what the last generation left cannot be read.
pub(super) async fn run(
    ready: Ready,
    terminate: Signals,
    interrupt: Signals,
) -> Result<u8, StartError> {
    let volume = |error: std::io::Error| StartError::Volume {
        message: format!("state/journal: {error}: check the volume's space and owner"),
    };
    let fixed = status(&ready);
    // Held until the end: paths below go through its descriptor.
    let held = ready.state;
    let state = held.path().to_owned();
    let listener = tokio::net::TcpListener::from_std(ready.listener)
        .map_err(|error| other("no listener", &error))?;
    let address = listener.local_addr().map_err(|error| other("no listener", &error))?;
    let metrics = Rc::new(Metrics::default());
    let drained = Rc::new(Notify::new());
    let reaper = Rc::clone(&ready.session.reaper);
    let generation = Generation::new(Parts {
        settings: Settings {
            worktree: ready.layout.inside.work.to_string_lossy().into_owned(),
            permission_ttl_ms: ready.config.permission_ttl.saturating_mul(1000),
        },
        saved: saved::read(&state)?,
        recipe: ready.recipe,
        session: ready.session,
        wall: Rc::new(ready.wall),
        journals: Journals::open(&state).map_err(volume)?,
        state,
        inspector: ready.inspector,
        grace: Duration::from_secs(ready.config.grace),
        metrics: Rc::clone(&metrics),
        drained: Rc::clone(&drained),
    });
    let (clients_in, clients) = mpsc::channel(LINES);
    let (orders_in, orders) = mpsc::channel(ORDERS);
    stop_on(terminate, orders_in.clone());
    stop_on(interrupt, orders_in.clone());
    for forwarded in FORWARDED {
        forward(forwarded, orders_in.clone());
    }
    let app = Rc::new(App {
        gate: Gate::of(&ready.config),
        fixed: fixed.clone(),
        clients: clients_in,
        orders: orders_in,
        metrics,
        drained,
        reaper,
        since: Instant::now(),
        connections: Cell::new(0),
    });
    tokio::task::spawn_local(http::serve(listener, app));
    tracing::info!(
        %address,
        boot = %fixed.boot,
        tier = %fixed.tier,
        policy = %fixed.policy_revision,
        "ready"
    );
    report::event(&StartEvent::Ready {
        address,
        boot: fixed.boot,
        tier: fixed.tier,
        worktree: fixed.worktree,
    });
    Ok(driver::run(generation, clients, orders).await)
}

fn status(ready: &Ready) -> WorkerStatus {
    WorkerStatus {
        session: ready.config.session.clone(),
        incarnation: ready.config.incarnation,
        generation: ready.config.generation,
        slot: ready.config.slot.clone(),
        boot: ready.boot.clone(),
        tier: ready.tier,
        worktree: ready.layout.inside.work.clone(),
        agent: AgentState::NotStarted,
        activity: Activity::Idle { for_ms: 0 },
        epoch: Epoch::ZERO,
        attachments: 0,
        acp_session: None,
        prompted: false,
        policy_revision: ready.policy_revision.clone(),
        skills_revision: ready.skills_revision.clone(),
        enforcement: ready.enforcement.clone(),
        evidence: None,
        handed_variables: ready.config.agent.env.keys().cloned().collect(),
    }
}

fn stop_on(mut signals: Signals, orders: mpsc::Sender<Order>) {
    tokio::task::spawn_local(async move {
        if signals.recv().await.is_some() {
            let stop = Order::Stop(close::GOING_AWAY, "the worker was stopped".to_owned());
            // Where nobody takes orders any more the worker is ending already.
            let _ = orders.send(stop).await;
        }
    });
}

fn forward(number: Signal, orders: mpsc::Sender<Order>) {
    match signal(SignalKind::from_raw(number as i32)) {
        Ok(mut signals) => drop(tokio::task::spawn_local(async move {
            while signals.recv().await.is_some() {
                if orders.send(Order::Signal(number)).await.is_err() {
                    return;
                }
            }
        })),
        Err(error) => tracing::warn!(%error, %number, "not forwarded"),
    }
}
