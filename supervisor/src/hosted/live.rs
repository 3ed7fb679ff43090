//! A session that is served: what the endpoints know of it, and its generation, which runs until it is over.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use casemate_protocol::acp::server::Settings;
use casemate_protocol::audit::Event;
use casemate_protocol::ids::{BootId, Epoch};
use casemate_protocol::origin::Origin;
use casemate_protocol::token::{Audience, Claims, TokenError};
use casemate_protocol::worker::{Activity, AgentState, StartError, WorkerStatus};
use tokio::sync::{Notify, mpsc, oneshot};

use super::ready::Ready;
use crate::audit::Audit;
use crate::bounds::{Bounds, watch};
use crate::exec::Door;
use crate::http::auth;
use crate::http::metrics::Metrics;
use crate::learning::Learner;
use crate::relay::attachments::Attachments;
use crate::relay::driver::{self, FromClient, Order};
use crate::relay::generation::{Generation, Parts};
use crate::relay::journal::Journals;
use crate::relay::prompts::Prompts;
use crate::relay::saved;
use crate::relay::view::View;
use crate::skills::Skills;

/// Orders are few and small.
const ORDERS: usize = 16;
/// A client's line may be 64 MiB: one at a time waits.
const LINES: usize = 1;

/// How long the ends of commands of exec may take to reach their clients, beyond the grace.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What the endpoints know of a session. Dropping the last sender of `orders` or `clients` ends its generation.
#[derive(Debug)]
pub struct Hosted {
    /// The part of its status that does not change.
    pub fixed: WorkerStatus,
    /// The pages that may attach to it.
    pub origins: Vec<Origin>,
    /// How commands are run in it beside its agent.
    pub exec: Rc<Door>,
    /// To its relay.
    pub clients: mpsc::Sender<FromClient>,
    /// To its relay.
    pub orders: mpsc::Sender<Order>,
    /// What it may take of the machine, and takes.
    pub bounds: Rc<Bounds>,
    /// Its counters.
    pub metrics: Rc<Metrics>,
    /// Shared by all its outboxes.
    pub drained: Rc<Notify>,
    /// What tickets open.
    pub attachments: Attachments,
    /// The worker's log.
    pub audit: Audit,
    /// What it would be refused, where it is learned from.
    pub learner: Option<Arc<Learner>>,
    /// What it reads.
    skills: Option<Skills>,
}

/// Begins to serve a session. The future is its generation, which completes with its exit code.
///
/// # Errors
/// [`StartError`] where what the last generation left cannot be read.
pub fn start(
    ready: Ready,
    boot: BootId,
    audit: &Audit,
) -> Result<(Rc<Hosted>, impl Future<Output = u8> + 'static + use<>), StartError> {
    let volume = |error: std::io::Error| StartError::Volume {
        message: format!("state/: {error}: check the volume's space and owner"),
    };
    let fixed = status(&ready, boot);
    // Nobody is let in before it is on the disk what holds them in.
    let skills = fixed.skills_revision.as_deref().map(Event::skills_in_force);
    let events = [
        Event::policy_in_force(&fixed.policy_revision),
        Event::started("supervisor", fixed.tier, &fixed.enforcement),
    ];
    audit.require(skills.into_iter().chain(events))?;
    // Held until the end: paths below go through its descriptor.
    let held = ready.state;
    let state = held.path().to_owned();
    let attachments = Attachments::new(&state, ready.config.kept).map_err(volume)?;
    // What was tried on the walls so far was the worker's own doing.
    if let Some(told) = &ready.told {
        told.forget();
    }
    if let Some(learner) = &ready.learner {
        learner.forget();
    }
    let metrics = Rc::new(Metrics::default());
    let drained = Rc::new(Notify::new());
    let wall = Rc::new(ready.wall);
    let exec = Rc::new(Door {
        audit: audit.clone(),
        session: Rc::clone(&ready.session),
        wall: Rc::clone(&wall),
        env: ready.recipe.env.clone(),
        work: ready.layout.inside.work.clone(),
        grace: Duration::from_secs(ready.config.grace),
        running: Rc::default(),
    });
    let generation = Generation::new(Parts {
        settings: Settings {
            worktree: ready.layout.inside.work.to_string_lossy().into_owned(),
            permission_ttl_ms: ready.config.permission_ttl.saturating_mul(1000),
        },
        saved: saved::read(&state)?,
        recipe: ready.recipe,
        session: ready.session,
        wall,
        journals: Journals::open(&state).map_err(volume)?,
        prompts: Rc::new(RefCell::new(Prompts::open(&state).map_err(volume)?)),
        state,
        inspector: ready.inspector,
        bounds: Rc::clone(&ready.bounds),
        told: ready.told.clone(),
        grace: Duration::from_secs(ready.config.grace),
        blocked_ttl: Duration::from_secs(ready.config.blocked_ttl),
        running: Rc::clone(&exec.running),
        metrics: Rc::clone(&metrics),
        drained: Rc::clone(&drained),
        audit: audit.clone(),
    });
    let (clients, from_clients) = mpsc::channel(LINES);
    let (orders, taken) = mpsc::channel(ORDERS);
    let watched = watch::run(Rc::clone(&ready.bounds), orders.downgrade());
    tokio::task::spawn_local(watched);
    let hosted = Rc::new(Hosted {
        fixed,
        origins: ready.config.origins,
        exec: Rc::clone(&exec),
        clients,
        orders,
        bounds: ready.bounds,
        metrics,
        drained,
        attachments,
        audit: audit.clone(),
        learner: ready.learner,
        skills: ready.skills,
    });
    let generation = async move {
        let _held = held;
        let code = driver::run(generation, from_clients, taken).await;
        // Their last words.
        let _ = tokio::time::timeout(exec.grace + LAST_WORDS, exec.running.none()).await;
        code
    };
    Ok((hosted, generation))
}

fn status(ready: &Ready, boot: BootId) -> WorkerStatus {
    WorkerStatus {
        session: ready.config.session.clone(),
        incarnation: ready.config.incarnation,
        generation: ready.config.generation,
        slot: ready.config.slot.clone(),
        boot,
        tier: ready.tier,
        worktree: ready.layout.inside.work.clone(),
        agent: AgentState::NotStarted,
        activity: Activity::Idle { for_ms: 0 },
        epoch: Epoch::ZERO,
        attachments: 0,
        execs: 0,
        acp_session: None,
        prompted: false,
        commanded: false,
        policy_revision: ready.policy_revision.clone(),
        skills_revision: ready.skills.as_ref().and_then(|skills| skills.revision(|_| ())),
        enforcement: ready.enforcement.clone(),
        matrix: Some(ready.matrix.clone()),
        evidence: None,
        handed_variables: ready.config.agent.env.keys().cloned().collect(),
        audit_head: None,
        usage: ready.bounds.usage(),
    }
}

// === impl Hosted ===

impl Hosted {
    /// Asks its relay; `None` where that has ended.
    pub async fn ask<T>(&self, order: impl FnOnce(oneshot::Sender<T>) -> Order) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.orders.send(order(answer)).await.ok()?;
        answered.await.ok()
    }

    /// Whether pages of this origin may attach.
    #[must_use]
    pub fn takes(&self, origin: &str) -> bool {
        self.origins.iter().any(|listed| listed.is(origin))
    }

    /// Whether claims open it for one of these audiences.
    ///
    /// # Errors
    /// [`TokenError::Mismatch`].
    pub fn check(&self, claims: &Claims, audiences: &[Audience]) -> Result<(), TokenError> {
        let fixed = &self.fixed;
        auth::compare(claims, (&fixed.session, fixed.incarnation, fixed.generation), audiences)
    }

    /// Its status now; `None` where its generation is over.
    pub async fn status(&self) -> Option<WorkerStatus> {
        let View { agent, activity, epoch, attachments, saved, evidence } =
            self.ask(Order::Look).await?;
        Some(WorkerStatus {
            agent,
            activity,
            epoch: Epoch(epoch),
            attachments,
            execs: self.exec.running.count(),
            acp_session: saved.acp_session,
            prompted: saved.prompted,
            commanded: self.exec.running.any_ever(),
            evidence,
            audit_head: self.audit.head(),
            usage: self.bounds.usage(),
            skills_revision: self.skills_revision(),
            ..self.fixed.clone()
        })
    }

    /// Of what the agent reads now: a kubelet changes it under its hands.
    fn skills_revision(&self) -> Option<String> {
        let changed = |now: &str| self.audit.record(Event::skills_in_force(now));
        self.skills.as_ref()?.revision(changed)
    }
}
