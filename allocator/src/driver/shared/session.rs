//! One session in a worker that its user's sessions share: its start, a look at it, its end.
//!
//! Owns nothing; each step is a call to the worker with the worker's own token.

use std::sync::Arc;
use std::time::Duration;

use casemate_allocator_core::record::{Record, Storage as Kept};
use casemate_allocator_core::recover::{Answer, Observed, is_recorded};
use casemate_protocol::api::{ApiError, ErrorKind, Phase};
use casemate_protocol::end::EndReason;
use casemate_protocol::sharing::{EndSession, Refusal, Storage, UserId};
use casemate_protocol::tls::Pin;
use casemate_protocol::token::{Audience, SigningSecret};
use casemate_protocol::worker::{StartError, Stop, WorkerConfig};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::{END_MARGIN, await_end, cut_short, wanted};
use crate::driver::keys::Told;
use crate::driver::{Driver, Live, lock};
use crate::refusal::{IntoApi as _, refuse};
use crate::store::Stored;
use crate::worker::client::{self, BeginError, CallError};
use crate::worker::fence::fence;
use crate::worker::process;

/// Deleting a large tree.
const DELETE: Duration = Duration::from_secs(600);
/// A worker that was about to end when it was asked is not asked again: the next one is.
const WORKERS: u32 = 3;
/// How long a worker may be silent before it counts as hanging.
const LOOKING: Duration = Duration::from_secs(8);
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

impl Driver {
    /// Starts a session in its user's worker, and that one first where none lives.
    pub(in crate::driver) async fn launch_shared(
        self: &Arc<Self>,
        stored: &Stored,
        user: &UserId,
        config: WorkerConfig,
        pin: Option<&Pin>,
        secret: &SigningSecret,
        cancelled: &mut watch::Receiver<bool>,
    ) -> Result<(), ApiError> {
        let record = &stored.record;
        let linger = (record.terms.idle_ttl_ms / 1000).max(1);
        let (shared, session) = config.apart(user.clone(), linger);
        let cut = cancelled.clone();
        for _ in 0..WORKERS {
            let common = self.common(record, &shared, pin, cut.clone()).await?;
            // Before its first call with a key that it may not know.
            let told = Told::Common(record.slot.clone(), user.clone());
            let known = self.catch_up(&common.serving, &told, secret).await;
            known.map_err(|error| error.into_api())?;
            let process = common.process.clone();
            self.update(&record.id, move |record| record.launched(process)).await?;
            let progress = |what: &str| tracing::info!(session = %record.id, what, "starting");
            let token = self.own_token(&record.slot, user);
            let begun = tokio::select! {
                begun = client::begin(&common.serving, &token, &session, self.patience, progress) => begun,
                () = wanted(cancelled) => return Err(cut_short()),
            };
            match begun {
                Ok(()) => {
                    let (serving, ended) = (common.serving, common.ended);
                    self.update(&record.id, move |record| record.ready(serving)).await?;
                    let generation = record.generation;
                    lock(&self.live).insert(
                        record.id.clone(),
                        Live { generation, ended, seen: None, matrix: None, usage: None },
                    );
                    tracing::info!(session = %record.id, generation = %record.generation, "serving");
                    return Ok(());
                }
                // It had been without a session for too long, just now.
                Err(BeginError::Refused(Refusal::Ending)) => drop(await_end(common).await),
                Err(BeginError::Call(error)) if !process::is_alive(&common.process) => {
                    tracing::warn!(session = %record.id, %error, "its worker ended meanwhile");
                    await_end(common).await;
                }
                Err(error) => return Err(error.into_api()),
            }
        }
        Err(refuse(
            ErrorKind::WorkerFailed,
            "workers end as soon as they are started; their log says why",
        ))
    }

    /// Whether a session's processes live. Its worker's silence is no proof that they do not.
    pub(in crate::driver) async fn is_hosted(
        self: &Arc<Self>,
        stored: &Stored,
    ) -> Result<bool, ApiError> {
        let (record, Some(user)) = (&stored.record, &stored.plan.user) else { return Ok(false) };
        let Some(common) = self.entered(&record.slot).await?.clone() else { return Ok(false) };
        let token = self.own_token(&record.slot, user);
        match client::list(&common.serving, &token).await {
            Ok(list) => Ok(list.sessions.iter().any(|one| one.session == record.id)),
            Err(_) => Ok(common.is_alive()),
        }
    }

    /// Writes down that a session has ended by itself while its worker goes on.
    pub(in crate::driver) async fn mark_over(
        self: &Arc<Self>,
        record: &Record,
    ) -> Result<(), ApiError> {
        let words = "the session ended by itself: its agent is gone; the worker's log says more";
        self.write_lost(&record.id, record.generation, words.to_owned()).await
    }

    /// What is there of a session that shares its worker.
    pub(in crate::driver) async fn observe_shared(
        self: &Arc<Self>,
        stored: &Stored,
        user: &UserId,
    ) -> Result<Observed, ApiError> {
        let record = &stored.record;
        let nothing = Observed { process: false, lock: false, answer: None };
        let Some(common) = self.entered(&record.slot).await?.clone() else {
            // A worker that was told nothing, or whose first session never came to be served: nobody else's is in it.
            let alive =
                record.worker.as_ref().is_some_and(|worker| process::is_alive(&worker.process));
            return Ok(Observed { process: alive, ..nothing });
        };
        let deadline = Instant::now() + LOOKING;
        let mut seen = Observed { process: true, lock: true, answer: None };
        while common.is_alive() && Instant::now() < deadline {
            let token = self.own_token(&record.slot, user);
            if let Ok(list) = client::list(&common.serving, &token).await {
                if list.sessions.iter().all(|one| one.session != record.id) {
                    return Ok(nothing);
                }
                let token = self.token(record, Audience::Control);
                if let Ok(status) = client::status(&common.serving, &token).await {
                    seen.answer = Some(Answer { boot: status.boot, generation: status.generation });
                }
                // One that is being made, or another generation's, answers to no token of this record.
                if is_recorded(record, seen.answer.as_ref()) || record.phase == Phase::Starting {
                    return Ok(seen);
                }
            }
            sleep(BETWEEN_LOOKS).await;
        }
        Ok(if common.is_alive() { seen } else { nothing })
    }

    /// Adopts a session that its worker still hosts.
    pub(in crate::driver) async fn adopt_shared(
        self: &Arc<Self>,
        record: &Record,
    ) -> Result<(), ApiError> {
        let Some(common) = self.entered(&record.slot).await?.clone() else {
            return Err(refuse(ErrorKind::Unavailable, "the worker has just ended"));
        };
        let generation = record.generation;
        let live = Live { generation, ended: common.ended, seen: None, matrix: None, usage: None };
        lock(&self.live).entry(record.id.clone()).or_insert(live);
        Ok(())
    }

    /// Ends a session in its worker, and proves it gone. With `force`, a worker that does not answer at all is ended.
    pub(in crate::driver) async fn evict(
        self: &Arc<Self>,
        stored: &Stored,
        user: &UserId,
        reason: EndReason,
        force: bool,
    ) -> Result<(), ApiError> {
        let record = &stored.record;
        let slot_lock = self.home.slot_lock(&record.slot);
        let room = self.entered(&record.slot).await?;
        let Some(common) = room.clone() else {
            // Nobody serves there. Whoever holds the lock all the same was never given another's session.
            let process = record.worker.as_ref().map(|worker| &worker.process);
            return fence(process, &slot_lock, Duration::ZERO)
                .await
                .map_err(|error| error.into_api());
        };
        drop(room);
        // In its own words first, for its clients are told them. It may be gone, or not be served yet.
        let control = self.token(record, Audience::Control);
        if let Err(error) = client::stop(&common.serving, &control, Stop { reason }).await {
            tracing::debug!(session = %record.id, %error, "stop call");
        }
        let wanted = EndSession { generation: None, storage: Storage::Keep };
        let limit = Duration::from_secs(stored.plan.grace) + END_MARGIN;
        let token = self.own_token(&record.slot, user);
        match client::end(&common.serving, &token, &record.id, wanted, limit).await {
            Ok(()) => Ok(()),
            Err(_) if !common.is_alive() && await_end(common.clone()).await => Ok(()),
            Err(
                error @ (CallError::TimedOut(_)
                | CallError::Unreachable { .. }
                | CallError::NotTrusted { .. }),
            ) if force => {
                tracing::error!(slot = %record.slot, %error, "ending a worker that hangs, and all of its sessions with it");
                // Nobody starts the next one before this one is gone.
                let mut room = self.room(&record.slot).lock_owned().await;
                *room = None;
                fence(Some(&common.process), &slot_lock, Duration::ZERO)
                    .await
                    .map_err(|error| error.into_api())
            }
            Err(error) => Err(refuse(
                ErrorKind::Unavailable,
                format!("session {} was not ended in its worker: {error}", record.id),
            )),
        }
    }

    /// Deletes what a session has in the slot that it shares. With the last of them the slot goes, and its worker.
    pub(in crate::driver) async fn delete_shared(
        self: &Arc<Self>,
        stored: &Stored,
        user: &UserId,
    ) -> Result<(), ApiError> {
        let record = &stored.record;
        let mut room = self.entered(&record.slot).await?;
        let all = self.store.sessions().map_err(|error| error.into_api())?;
        // Whoever comes later is on record before it waits for this room.
        let others = all.iter().any(|other| {
            let other = &other.record;
            other.slot == record.slot && other.id != record.id && other.storage != Kept::Deleted
        });
        if !others {
            self.end_common(&record.slot, user, &mut room).await?;
            self.audit.set_aside(record.slot.as_str(), &record.slot);
            return self.remove(vec![self.home.slot(&record.slot)]).await;
        }
        if let Some(common) = room.clone() {
            // As long as it takes, others start beside it.
            drop(room);
            let wanted = EndSession { generation: None, storage: Storage::Delete };
            let token = self.own_token(&record.slot, user);
            return client::end(&common.serving, &token, &record.id, wanted, DELETE).await.map_err(
                |error| {
                    let message = format!("cannot delete what {} had: {error}", record.id);
                    refuse(ErrorKind::Unavailable, message)
                },
            );
        }
        // No worker runs in the slot, and none is started meanwhile: nobody changes the trees.
        let state = self.home.slot(&record.slot).join("state").join(record.id.as_str());
        let place = self.home.place(&record.slot, &record.id).map_err(|error| {
            let message = format!("cannot find where {} had its trees: {error}", record.id);
            refuse(ErrorKind::Unavailable, message)
        })?;
        self.remove(place.into_iter().chain([state]).collect()).await
    }
}

impl BeginError {
    fn into_api(self) -> ApiError {
        let start = match &self {
            Self::Start(error) => Some(error.clone()),
            Self::Refused(Refusal::Tier { wanted }) => {
                Some(StartError::Tier { wanted: *wanted, message: self.to_string() })
            }
            _ => None,
        };
        let kind = match &self {
            Self::Start(_) | Self::Stuck { .. } => ErrorKind::WorkerFailed,
            Self::Refused(Refusal::Full { .. } | Refusal::Ending | Refusal::Tier { .. })
            | Self::Call(_) => ErrorKind::Unavailable,
            Self::Refused(Refusal::OtherUser | Refusal::Hangs { .. } | Refusal::Storage { .. }) => {
                ErrorKind::Internal
            }
            Self::Refused(_) => ErrorKind::Conflict,
        };
        ApiError { start, ..refuse(kind, self) }
    }
}
