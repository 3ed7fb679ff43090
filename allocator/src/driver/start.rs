//! A start, from a taken session to a watched worker or to a session without a half-made one.

use std::sync::Arc;
use std::time::Duration;

use casemate_allocator_core::record::Record;
use casemate_protocol::api::{ApiError, ErrorKind, Phase};
use casemate_protocol::audit::Event;
use casemate_protocol::end::EndReason;
use casemate_protocol::ids::{Generation, SessionId};
use casemate_protocol::worker::StartError;
use tokio::process::Child;
use tokio::sync::watch;

use super::keys::Told;
use super::{Driver, Landing, Live, lock, now};
use crate::refusal::{IntoApi as _, refuse};
use crate::store::Stored;
use crate::values;
use crate::worker::fence::{self, fence};
use crate::worker::launch::{self, LaunchError};
use crate::worker::process::Handle;

/// A dead launcher's namespace is gone within moments.
pub(super) const LOCK_AFTER_EXIT: Duration = Duration::from_secs(5);

impl Driver {
    /// Starts the worker of a session in phase `starting`, which the caller has taken.
    pub(super) async fn start(self: Arc<Self>, stored: Stored, landing: Landing) {
        let id = stored.record.id.clone();
        let mut cancelled = landing.cancelled.clone();
        let outcome = match self.try_start(&stored, &mut cancelled).await {
            Ok(()) => {
                let record = &stored.record;
                if !record.served {
                    let key = record.key.digest();
                    let made = Event::session_created(&id, record.incarnation, &key);
                    self.audit.record(made);
                }
                self.audit.record(Event::session_woken(&id, record.generation));
                Ok(())
            }
            Err(error) => {
                let kind = error.start.as_ref().map_or("other", StartError::kind);
                self.audit.record(Event::worker_not_started(&id, kind, &error.message));
                tracing::warn!(session = %id, %error, "start failed");
                self.after_failed_start(&stored, &error).await.and(Err(error))
            }
        };
        self.land(landing, outcome);
    }

    async fn try_start(
        self: &Arc<Self>,
        stored: &Stored,
        cancelled: &mut watch::Receiver<bool>,
    ) -> Result<(), ApiError> {
        let record = &stored.record;
        let uid = stored.plan.uid(record);
        let (home, slot) = (self.home.clone(), record.slot.clone());
        tokio::task::spawn_blocking(move || home.make_slot(&slot, uid))
            .await
            .map_err(|error| refuse(ErrorKind::Internal, error))?
            .map_err(|error| error.into_api())?;
        match self.launch(stored, cancelled).await {
            Err(ApiError { start: Some(StartError::SlotBusy { .. }), .. }) => {
                // A worker that nobody has on record: a stray of a crash. The record is the authority.
                let lock = self.home.slot_lock(&record.slot);
                fence(None, &lock, Duration::ZERO).await.map_err(|error| error.into_api())?;
                self.launch(stored, cancelled).await
            }
            outcome => outcome,
        }
    }

    async fn launch(
        self: &Arc<Self>,
        stored: &Stored,
        cancelled: &mut watch::Receiver<bool>,
    ) -> Result<(), ApiError> {
        let record = &stored.record;
        let log = self.home.slot_log(&record.slot);
        let values = values::recall(&self.home, &record.id, &record.intent.env)
            .map_err(|error| error.into_api())?;
        let secret = self.secret();
        let owner = self.owned.then(std::process::id);
        let mut config = stored.plan.config(
            record,
            values,
            &self.home,
            secret.public(),
            owner,
            self.learn.clone(),
        );
        let pin = if stored.plan.tls {
            let (certificate, pin) = casemate_tls::issue::issue(record.slot.as_str())
                .map_err(|error| refuse(ErrorKind::Internal, error))?;
            config.tls = Some(certificate);
            Some(pin)
        } else {
            None
        };
        let granted = &stored.plan.programs;
        tracing::info!(session = %record.id, ?granted, "the agent may read and run");
        if let Some(user) = &stored.plan.user {
            return self
                .launch_shared(stored, user, config, pin.as_ref(), &secret, cancelled)
                .await;
        }
        let launched = launch::spawn(&self.supervisor, &log).map_err(|error| error.into_api())?;
        let process = launched.process().clone();
        // Durable before the worker is told anything: whatever happens now, it can be found and ended.
        if let Err(error) = self.update(&record.id, move |record| record.launched(process)).await {
            launched.discard().await;
            return Err(error);
        }
        let progress = |what: &str| tracing::info!(session = %record.id, what, "starting");
        let cut = async {
            if cancelled.wait_for(|cut| *cut).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let (child, mut serving) =
            launched.start(&config, self.patience, cut, progress).await.map_err(|error| {
                if let LaunchError::Cancelled = error {
                    refuse(ErrorKind::Conflict, "the start was cut short by a stop")
                } else {
                    error.into_api()
                }
            })?;
        serving.pin = pin;
        let known = serving.clone();
        match self.update(&record.id, move |record| record.ready(serving)).await {
            Ok(stored) => {
                self.watch_child(&stored.record, child);
                let told = Told::Own(Box::new(stored.record));
                self.catch_up(&known, &told, &secret).await.map_err(|error| error.into_api())?;
            }
            Err(error) => {
                end_child(child).await;
                return Err(error);
            }
        }
        tracing::info!(session = %record.id, generation = %record.generation, "serving");
        Ok(())
    }

    /// Leaves no half-made session: one that never served goes with its directory, another one sleeps on.
    async fn after_failed_start(
        self: &Arc<Self>,
        stored: &Stored,
        error: &ApiError,
    ) -> Result<(), ApiError> {
        let record = &stored.record;
        // `launch` has collected its child; what it left behind in a namespace holds the lock a moment longer.
        let lock = self.home.slot_lock(&record.slot);
        let now_known = self.store.session(&record.id).map_err(|error| error.into_api())?;
        let now_known = now_known.unwrap_or_else(|| stored.clone());
        if let Some(user) = &stored.plan.user {
            self.evict(&now_known, user, EndReason::Failed, false).await?;
        } else {
            let worker = now_known.record.worker.map(|worker| worker.process);
            fence(worker.as_ref(), &lock, Duration::ZERO)
                .await
                .map_err(|error| error.into_api())?;
        }
        let detail = error.message.clone();
        let after =
            self.update(&record.id, move |record| record.start_failed(detail, now())).await?;
        if after.record.half_made() {
            self.delete_storage(&after).await?;
        }
        Ok(())
    }

    /// Watches a worker that this process started.
    pub(super) fn watch_child(self: &Arc<Self>, record: &Record, mut child: Child) {
        let log = self.home.slot_log(&record.slot);
        self.watch(record, async move {
            let status = child.wait().await;
            let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            words(&status, &log)
        });
    }

    /// Watches a worker that an earlier allocator started.
    pub(super) fn watch_adopted(self: &Arc<Self>, record: &Record, handle: Handle) {
        let log = self.home.slot_log(&record.slot);
        self.watch(record, async move {
            handle.exited().await;
            words("exit status unknown: an earlier allocator had started it", &log)
        });
    }

    fn watch(
        self: &Arc<Self>,
        record: &Record,
        exit: impl Future<Output = String> + Send + 'static,
    ) {
        let (sender, ended) = watch::channel(None);
        let generation = record.generation;
        lock(&self.live).insert(
            record.id.clone(),
            Live { generation, ended, seen: None, matrix: None, usage: None },
        );
        let (driver, id) = (Arc::clone(self), record.id.clone());
        let slot_lock = self.home.slot_lock(&record.slot);
        let process = record.worker.as_ref().map(|worker| worker.process.clone());
        tokio::spawn(async move {
            let words = exit.await;
            if !fence::released(&slot_lock, LOCK_AFTER_EXIT).await
                && let Err(error) = fence(process.as_ref(), &slot_lock, Duration::ZERO).await
            {
                // Unknown counts as alive: the record keeps its worker, a forced stop tries again.
                tracing::error!(session = %id, %error, "a dead worker has left something alive");
                return;
            }
            sender.send_replace(Some(words));
            if let Err(error) = driver.mark_lost(&id, generation).await {
                tracing::error!(session = %id, %error, "cannot write down the end of a worker");
            }
        });
    }

    pub(super) fn record_lost(&self, id: &SessionId, generation: Generation) {
        // First where its log ends: whoever reads of the loss can rely upon that.
        if let Ok(Some(stored)) = self.store.session(id) {
            self.audit.gone(stored.log_name(), &stored.record.slot);
        }
        self.audit.record(Event::worker_lost(id, generation));
    }

    /// Worker `generation` has ended by itself: writes that down unless someone is ending it anyway.
    pub(super) async fn mark_lost(
        self: &Arc<Self>,
        id: &SessionId,
        generation: Generation,
    ) -> Result<(), ApiError> {
        let live = lock(&self.live).get(id).cloned();
        let words = match live.filter(|live| live.generation == generation) {
            Some(mut live) => {
                let ended = live.ended.wait_for(Option::is_some);
                // Seen dead by number before the watcher saw it: its words are worth a moment.
                match tokio::time::timeout(LOCK_AFTER_EXIT * 2, ended).await {
                    Ok(Ok(words)) => words.clone().unwrap_or_default(),
                    _ => return Err(refuse(ErrorKind::Unavailable, "its worker is just ending")),
                }
            }
            None => "the worker is gone".to_owned(),
        };
        self.write_lost(id, generation, words).await
    }

    /// The part of it that the store and the audit log see.
    pub(super) async fn write_lost(
        self: &Arc<Self>,
        id: &SessionId,
        generation: Generation,
        words: String,
    ) -> Result<(), ApiError> {
        let changed = words.clone();
        let outcome = self
            .change({
                let id = id.clone();
                move |book| {
                    let Some(mut stored) = book.session(&id)? else { return Ok(false) };
                    let lost = stored.record.phase == Phase::Active
                        && stored.record.lost(generation, changed, now()).is_ok();
                    if lost {
                        book.put_session(&stored)?;
                    }
                    Ok(lost)
                }
            })
            .await?;
        if outcome {
            tracing::warn!(session = %id, %words, "worker lost");
            self.record_lost(id, generation);
        }
        let mut live = lock(&self.live);
        if live.get(id).is_some_and(|live| live.generation == generation) && outcome {
            live.remove(id);
        }
        Ok(())
    }
}

async fn end_child(mut child: Child) {
    let _ = child.start_kill();
    let _ = child.wait().await;
}

pub(super) fn words(status: &str, log: &std::path::Path) -> String {
    match launch::last_words(log) {
        Some(line) => format!("the worker ended by itself ({status}); its last log line: {line}"),
        None => format!("the worker ended by itself ({status})"),
    }
}
