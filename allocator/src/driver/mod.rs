//! Carries the core's decisions out.
//!
//! Owns, in memory only: the living workers it watches ([`Live`]), those that sessions share ([`shared`]), and the starts and ends
//! under way ([`Flight`]).
//! Everything else is in the store, and what is in memory can be lost at any instant: [`recover`] builds it again.
//!
//! Each change of a record is one store transaction that is durable before its effect begins. The phases `starting` and
//! `stopping` are taken together with a flight; whoever finds a session in one of them waits for that flight, and where
//! there is none (its owner failed to write) recovers the session first.

mod attach;
mod end;
mod idle;
mod keys;
mod recover;
mod shared;
mod shutdown;
mod start;
pub(crate) mod view;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use casemate_allocator_core::record::{Record, Serving};
use casemate_allocator_core::tick::Observation;
use casemate_protocol::api::{ApiError, ErrorKind, Phase};
use casemate_protocol::ids::{Generation, SessionId, SlotId};
use casemate_protocol::matrix::Matrix;
use casemate_protocol::tier::Tier;
use casemate_protocol::token::{Audience, Claims, SigningSecret};
use casemate_protocol::usage::Usage;
use tokio::sync::watch;

use crate::audit::Audit;
use crate::home::Home;
use crate::refusal::{IntoApi as _, refuse};
use crate::store::{Change, Store, StoreError, Stored};

/// How long a client may use what it was handed. A worker seldom lives so long; a resume signs a new one.
const ATTACH_TOKEN: Duration = Duration::from_secs(12 * 60 * 60);
/// The allocator's own calls sign a token each.
const CONTROL_TOKEN: Duration = Duration::from_secs(5 * 60);

/// What the driver needs from its caller.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) home: Home,
    pub(crate) store: Store,
    pub(crate) secret: SigningSecret,
    pub(crate) supervisor: PathBuf,
    pub(crate) profiles: PathBuf,
    pub(crate) tier: Tier,
    pub(crate) patience: Duration,
    pub(crate) owned: bool,
    pub(crate) learn: Option<Vec<PathBuf>>,
    pub(crate) audit: Audit,
}

/// The allocator.
#[derive(Debug)]
pub(crate) struct Driver {
    home: Home,
    store: Arc<Store>,
    secret: Mutex<SigningSecret>,
    supervisor: PathBuf,
    profiles: PathBuf,
    tier: Tier,
    patience: Duration,
    owned: bool,
    learn: Option<Vec<PathBuf>>,
    audit: Audit,
    live: Mutex<HashMap<SessionId, Live>>,
    flights: Mutex<HashMap<SessionId, Flight>>,
    /// By slot, for those whose worker sessions share.
    rooms: Mutex<HashMap<SlotId, shared::Room>>,
    /// One replacement of the key at a time.
    rotating: tokio::sync::Mutex<()>,
    /// One deletion at a time: two of the same directory would trip over each other.
    deleting: tokio::sync::Mutex<()>,
    /// True: no new work is taken.
    draining: watch::Sender<bool>,
}

/// A worker that is watched.
#[derive(Debug, Clone)]
struct Live {
    generation: Generation,
    /// The words of its end, once it has ended.
    ended: watch::Receiver<Option<String>>,
    seen: Option<Observation>,
    matrix: Option<Matrix>,
    usage: Option<Usage>,
}

/// A start or an end under way.
#[derive(Debug, Clone)]
struct Flight {
    /// Its outcome, once there is one.
    done: watch::Receiver<Option<Result<(), ApiError>>>,
    /// Set to true: cut a start short.
    cancel: watch::Sender<bool>,
}

/// The owner's side of a [`Flight`].
#[derive(Debug)]
struct Landing {
    session: SessionId,
    done: watch::Sender<Option<Result<(), ApiError>>>,
    cancelled: watch::Receiver<bool>,
}

/// Seconds since the Unix epoch: for people and for token expiry, never for TTLs.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// What opens a session's worker, signed with `secret`.
fn token(secret: &SigningSecret, record: &Record, audience: Audience) -> String {
    let life = match audience {
        Audience::Attach => ATTACH_TOKEN,
        // Looked at when a command starts; it is used at once.
        Audience::Control | Audience::Exec => CONTROL_TOKEN,
    };
    secret.sign(&Claims {
        session: record.id.clone(),
        incarnation: record.incarnation,
        generation: record.generation,
        slot: record.slot.clone(),
        audience,
        expires: now() + life.as_secs(),
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder panics")
}

impl Driver {
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        let Parts {
            home,
            store,
            secret,
            supervisor,
            profiles,
            tier,
            patience,
            owned,
            learn,
            audit,
        } = parts;
        Arc::new(Self {
            home,
            store: Arc::new(store),
            secret: Mutex::new(secret),
            supervisor,
            profiles,
            tier,
            patience,
            owned,
            learn,
            audit,
            live: Mutex::default(),
            flights: Mutex::default(),
            rooms: Mutex::default(),
            rotating: tokio::sync::Mutex::default(),
            deleting: tokio::sync::Mutex::default(),
            draining: watch::Sender::new(false),
        })
    }

    pub(crate) fn audit(&self) -> &Audit {
        &self.audit
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// One durable change, off the reactor: it waits for the disk.
    async fn change<T: Send + 'static>(
        &self,
        body: impl FnOnce(&Change<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let store = Arc::clone(&self.store);
        tokio::task::spawn_blocking(move || store.change(body))
            .await
            .map_err(|error| refuse(ErrorKind::Internal, error))?
            .map_err(|error| error.into_api())
    }

    /// One durable change of one record, where `change` finds it fit. The record as it is then; `None`: no such session.
    async fn update<E: std::fmt::Display + Send + 'static>(
        &self,
        id: &SessionId,
        change: impl FnOnce(&mut Record) -> Result<(), E> + Send + 'static,
    ) -> Result<Stored, ApiError> {
        let wanted = id.clone();
        let outcome = self
            .change(move |book| {
                let Some(mut stored) = book.session(&wanted)? else { return Ok(None) };
                if let Err(error) = change(&mut stored.record) {
                    return Ok(Some(Err(error)));
                }
                book.put_session(&stored)?;
                Ok(Some(Ok(stored)))
            })
            .await?;
        match outcome {
            Some(Ok(stored)) => Ok(stored),
            Some(Err(error)) => Err(refuse(ErrorKind::Conflict, error)),
            None => Err(refuse(ErrorKind::NotFound, format!("no session {id}"))),
        }
    }

    fn token(&self, record: &Record, audience: Audience) -> String {
        token(&self.secret(), record, audience)
    }

    /// Registers a flight for a session that the caller is about to take. Called inside the transaction that takes it, so
    /// that nobody sees the phase without the flight.
    fn take_off(&self, session: &SessionId) -> Landing {
        let (done, outcome) = watch::channel(None);
        let (cancel, cancelled) = watch::channel(false);
        lock(&self.flights).insert(session.clone(), Flight { done: outcome, cancel });
        Landing { session: session.clone(), done, cancelled }
    }

    fn land(&self, landing: Landing, outcome: Result<(), ApiError>) {
        lock(&self.flights).remove(&landing.session);
        let _ = landing.done.send(Some(outcome));
    }

    /// Waits until the session's flight has landed; `cut`: asks a start to stop. A session that is taken without a flight
    /// is recovered.
    async fn wait(self: &Arc<Self>, session: &SessionId, cut: bool) -> Result<(), ApiError> {
        let flight = lock(&self.flights).get(session).cloned();
        let Some(mut flight) = flight else { return self.adopt_orphan(session).await };
        if cut {
            let _ = flight.cancel.send(true);
        }
        match flight.done.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().unwrap_or(Ok(())),
            // The owner was dropped without an outcome: the runtime ends, or it panicked.
            Err(_) => {
                lock(&self.flights).remove(session);
                Ok(())
            }
        }
    }

    /// Recovers a session whose owner failed to write its last step (a full disk). The check is a transaction: no start or
    /// end can begin between it and the claim.
    async fn adopt_orphan(self: &Arc<Self>, session: &SessionId) -> Result<(), ApiError> {
        let (driver, id) = (Arc::clone(self), session.clone());
        let claimed = self
            .change(move |book| {
                let taken = book.session(&id)?.is_some_and(|stored| {
                    matches!(stored.record.phase, Phase::Starting | Phase::Stopping)
                });
                let orphan = taken && !lock(&driver.flights).contains_key(&id);
                Ok(orphan.then(|| driver.take_off(&id)))
            })
            .await?;
        if let Some(landing) = claimed {
            let outcome = self.recover(session).await;
            self.land(landing, outcome.clone());
            return outcome;
        }
        Ok(())
    }

    fn refuse_while_draining(&self) -> Result<(), ApiError> {
        if *self.draining.borrow() {
            let message = "the allocator is shutting down; start it again and retry";
            return Err(refuse(ErrorKind::Unavailable, message));
        }
        Ok(())
    }

    /// The living worker of this generation, if it is watched.
    fn living(&self, record: &Record) -> Option<Live> {
        let live = lock(&self.live).get(&record.id).cloned();
        live.filter(|live| live.generation == record.generation)
    }

    fn serving(record: &Record) -> Result<&Serving, ApiError> {
        record
            .worker
            .as_ref()
            .and_then(|worker| worker.serving.as_ref())
            .ok_or_else(|| refuse(ErrorKind::Internal, format!("{} has no worker", record.id)))
    }
}
