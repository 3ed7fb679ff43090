//! A worker of many sessions of one user: which it hosts, how each begins and ends.
//!
//! Owns the table of its sessions. A session is in it from the moment on that it was asked for until its last process and its
//! threads in the spawner are gone; in the [`Registry`], which tokens are looked up in, only while it is served.
//!
//! Invariants: every session here is the one user's; of a session one generation is hosted at a time, and never an older one
//! than before; what ends a session ends nothing of another.

mod begin;
pub mod floor;
pub mod intake;
mod measured;
pub mod place;
pub mod porter;
pub mod transcript;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use casemate_protocol::codes::close;
use casemate_protocol::ids::{BootId, PlaceId, SessionId};
use casemate_protocol::sharing::{
    EndSession, Refusal, SessionConfig, SessionEnded, SessionSummary, SharedStatus,
    SharedWorkerConfig, Storage,
};
use casemate_protocol::worker::AgentState;
use casemate_sandbox::Spawner;
use tokio::sync::{Notify, oneshot, watch};

use crate::audit::Audit;
use crate::hosted::registry::Registry;
use crate::http::metrics::Metrics;
use crate::process::reaper::Reaper;
use crate::provision::Seed;
use crate::words::chain;

use floor::Floor;
use intake::{Decision, Known};
pub use measured::{Measured, Turn};
use porter::Porter;
use transcript::Transcript;

/// Beyond its grace, what an end may take: killed processes, flushed clients.
const ENDING: Duration = Duration::from_secs(20);

/// What the sessions of a worker have in common.
#[derive(Debug)]
pub struct Shared {
    /// The worker's configuration.
    pub config: SharedWorkerConfig,
    /// Gives each session a thread.
    pub spawner: Rc<Spawner>,
    /// Claims ports, looks names up, makes ranges for the probe.
    pub porter: Porter,
    /// Waits for all of them.
    pub reaper: Rc<Reaper>,
    /// How the supervisor is shielded: one line a mechanism.
    pub shield: Vec<String>,
    /// The file that the configuration came from: no agent may read it.
    pub file: Option<PathBuf>,
    /// This start.
    pub boot: BootId,
    /// Where it serves.
    pub address: SocketAddr,
    /// Below it are all worktrees, each at a place of its own.
    pub worktrees: PathBuf,
    /// Who is served.
    pub registry: Rc<Registry>,
    /// The worker's log.
    pub audit: Audit,
    /// An empty repository, for each session that begins with one.
    pub seed: Seed,
    /// What the sessions that have ended have counted.
    pub counted: Metrics,
    /// What was measured of the walls.
    pub measured: Measured,
    /// What goes on.
    pub table: Table,
}

/// The sessions.
#[derive(Debug)]
pub struct Table {
    entries: RefCell<BTreeMap<SessionId, Rc<Entry>>>,
    /// As [`floor`] keeps it.
    newest: RefCell<BTreeMap<SessionId, Floor>>,
    /// Whose storage is being deleted.
    deleting: RefCell<BTreeSet<SessionId>>,
    ending: Cell<bool>,
    stop: Notify,
    changed: Notify,
}

/// A session that was asked for.
#[derive(Debug)]
struct Entry {
    intent: SessionConfig,
    transcript: Rc<Transcript>,
    /// Its places on the volume, once they are known.
    places: RefCell<Vec<PathBuf>>,
    stop: Notify,
    /// What its clients are told then.
    farewell: RefCell<(u16, String)>,
    ended: watch::Sender<bool>,
}

// === impl Table ===

impl Table {
    /// No session, and of each that was ever hosted its newest generation.
    #[must_use]
    pub fn new(newest: BTreeMap<SessionId, Floor>) -> Self {
        Self {
            entries: RefCell::default(),
            newest: RefCell::new(newest),
            deleting: RefCell::default(),
            ending: Cell::default(),
            stop: Notify::new(),
            changed: Notify::new(),
        }
    }
}

// === impl Shared ===

impl Shared {
    /// Takes a session in, or finds it; how it goes is in the transcript.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn begin(self: &Rc<Self>, asked: SessionConfig) -> Result<Rc<Transcript>, Refusal> {
        let table = &self.table;
        if table.ending.get() {
            return Err(Refusal::Ending);
        }
        if table.deleting.borrow().contains(&asked.session) {
            return Err(Refusal::Hangs { session: asked.session });
        }
        let mut entries = table.entries.borrow_mut();
        let hosted = entries.get(&asked.session);
        let known = Known {
            hosted: hosted.map(|entry| &entry.intent),
            newest: table.newest.borrow().get(&asked.session).copied(),
            count: entries.len(),
        };
        if intake::decide(&self.config, &asked, known)? == Decision::Same {
            let transcript = hosted.map(|entry| Rc::clone(&entry.transcript));
            return transcript.ok_or(Refusal::Ending);
        }
        let entry = Rc::new(Entry {
            transcript: Rc::default(),
            places: RefCell::default(),
            stop: Notify::new(),
            farewell: RefCell::new((close::GOING_AWAY, "the worker was stopped".to_owned())),
            ended: watch::Sender::new(false),
            intent: asked,
        });
        entries.insert(entry.intent.session.clone(), Rc::clone(&entry));
        table.changed.notify_one();
        let transcript = Rc::clone(&entry.transcript);
        tokio::task::spawn_local(Rc::clone(self).host(entry));
        Ok(transcript)
    }

    /// Ends a session, whatever it is doing, and nothing else. Returns when its last process is gone.
    ///
    /// # Errors
    /// [`Refusal`].
    pub async fn end(
        self: &Rc<Self>,
        session: &SessionId,
        wanted: EndSession,
    ) -> Result<SessionEnded, Refusal> {
        let entry = self.table.entries.borrow().get(session).cloned();
        let generation = entry.as_ref().map(|entry| entry.intent.generation);
        if let Some(entry) = entry {
            let hosted = entry.intent.generation;
            if wanted.generation.is_some_and(|named| named != hosted) {
                return Err(Refusal::OtherGeneration {
                    session: session.clone(),
                    generation: hosted,
                });
            }
            entry.farewell.replace((close::GOING_AWAY, "the session was ended".to_owned()));
            entry.stop.notify_one();
            if !entry.has_ended().await {
                return Err(Refusal::Hangs { session: session.clone() });
            }
        }
        let storage = |message| Refusal::Storage { session: session.clone(), message };
        let place = place::find(&self.config.volume, session)
            .map_err(|error| storage(error.to_string()))?;
        if generation.is_none() && place.is_none() {
            return Err(Refusal::NoSession { session: session.clone() });
        }
        // Since its end was seen here it may have begun anew: what is deleted then would be in use.
        let anew = self.table.entries.borrow().get(session).map(|entry| entry.intent.generation);
        if let (Storage::Delete, Some(generation)) = (wanted.storage, anew) {
            return Err(Refusal::OtherGeneration { session: session.clone(), generation });
        }
        if let (Storage::Delete, Some(place)) = (wanted.storage, place) {
            self.delete(session.clone(), place).await.map_err(storage)?;
        }
        Ok(SessionEnded { session: session.clone(), generation, storage: wanted.storage })
    }

    /// Goes on to its end though nobody waits for it any more.
    async fn delete(self: &Rc<Self>, session: SessionId, place: PlaceId) -> Result<(), String> {
        if !self.table.deleting.borrow_mut().insert(session.clone()) {
            return Err("somebody else is deleting it: ask again".to_owned());
        }
        let (tell, told) = oneshot::channel();
        let shared = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let (volume, name) = (shared.config.volume.clone(), session.clone());
            // As long as a large tree takes, the other sessions go on.
            let deleted =
                tokio::task::spawn_blocking(move || place::delete(&volume, &name, &place)).await;
            shared.table.deleting.borrow_mut().remove(&session);
            let deleted = match deleted {
                Ok(deleted) => deleted.map_err(|error| chain(&error)),
                Err(error) => Err(error.to_string()),
            };
            // Whoever asked may have gone.
            let _ = tell.send(deleted);
        });
        told.await.unwrap_or_else(|_| Err("the worker is ending".to_owned()))
    }

    /// What is hosted, by id.
    pub async fn list(&self) -> Vec<SessionSummary> {
        let entries: Vec<Rc<Entry>> = self.table.entries.borrow().values().cloned().collect();
        let mut list = Vec::with_capacity(entries.len());
        for entry in entries {
            let intent = &entry.intent;
            let hosted = self.registry.get(&intent.session);
            let status = match hosted {
                Some(hosted) => hosted.status().await,
                None => None,
            };
            list.push(SessionSummary {
                session: intent.session.clone(),
                incarnation: intent.incarnation,
                generation: intent.generation,
                tier: status.as_ref().map(|status| status.tier),
                policy_revision: status.as_ref().map(|status| status.policy_revision.clone()),
                activity: status.as_ref().map(|status| status.activity),
                attachments: status.as_ref().map_or(0, |status| status.attachments),
                agent: status.map_or(AgentState::NotStarted, |status| status.agent),
            });
        }
        list
    }

    /// For `/v1/status`.
    pub async fn status(&self) -> SharedStatus {
        SharedStatus {
            user: self.config.user.clone(),
            slot: self.config.slot.clone(),
            boot: self.boot.clone(),
            enforcement: self.shield.clone(),
            sessions: self.list().await,
        }
    }

    /// Whether sessions are taken in.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.table.ending.get()
    }

    /// Asks the worker to end.
    pub fn stop(&self) {
        self.table.stop.notify_one();
    }

    /// Completes when the worker was asked to end, or has had no session for as long as it lingers.
    pub async fn over(&self) {
        tokio::select! {
            () = self.table.stop.notified() => {}
            () = self.lonely() => tracing::info!("no session came: the worker ends"),
        }
        // From here on no session is taken in.
        self.table.ending.set(true);
    }

    async fn lonely(&self) {
        let Some(linger) = self.config.linger.map(Duration::from_secs) else {
            return std::future::pending().await;
        };
        loop {
            let changed = self.table.changed.notified();
            if !self.table.entries.borrow().is_empty() {
                changed.await;
            } else if tokio::time::timeout(linger, changed).await.is_err() {
                return;
            }
        }
    }

    /// Ends every session; each is told that the worker was stopped.
    pub async fn end_all(&self) {
        self.table.ending.set(true);
        let entries: Vec<Rc<Entry>> = self.table.entries.borrow().values().cloned().collect();
        for entry in &entries {
            entry.stop.notify_one();
        }
        for entry in entries {
            if !entry.has_ended().await {
                tracing::error!(session = %entry.intent.session, "the session has not ended");
            }
        }
    }
}

// === impl Entry ===

impl Entry {
    /// Waits for its end a bounded time; false where it did not come.
    async fn has_ended(&self) -> bool {
        let limit = Duration::from_secs(self.intent.grace) + ENDING;
        let mut ended = self.ended.subscribe();
        tokio::time::timeout(limit, ended.wait_for(|ended| *ended)).await.is_ok()
    }
}
