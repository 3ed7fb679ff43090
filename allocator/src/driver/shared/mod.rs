//! Workers that the sessions of one user share (`sharing = "user"`).
//!
//! Owns, in memory only, which of them serve: a [`Room`] a slot, whose lock is held while a worker is started in it or the slot
//! goes. What is in memory is found again from the records of the slot's sessions. Such a worker is started by the first session
//! that needs it, ends by itself when it has had none for a while, and is ended with its slot's last storage.
//!
//! Invariants: a slot's sessions are one user's; what ends one of them ends no other and not the worker. (Unless the worker itself
//! answers nothing any more and the end is forced: then all of its sessions lose it, and go on in the next one.)

mod session;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use casemate_allocator_core::record::{Process, Record, Serving, Storage as Kept};
use casemate_protocol::api::{ApiError, ErrorKind, Phase};
use casemate_protocol::end::EndReason;
use casemate_protocol::ids::SlotId;
use casemate_protocol::sharing::{SharedWorkerConfig, UserId, WorkerClaims};
use casemate_protocol::tls::Pin;
use casemate_protocol::token::SigningSecret;
use casemate_protocol::worker::Stop;
use tokio::sync::{Mutex, OwnedMutexGuard, watch};
use tokio::time::timeout;

use super::start::{LOCK_AFTER_EXIT, words};
use super::{CONTROL_TOKEN, Driver, lock, now};
use crate::refusal::{IntoApi as _, refuse};
use crate::store::Stored;
use crate::worker::client;
use crate::worker::fence::{self, fence};
use crate::worker::launch::{self, LaunchError};
use crate::worker::process::{self, Handle};

/// A worker that was told to end ends its sessions first: each may take 20 s beyond its grace.
const END_MARGIN: Duration = Duration::from_secs(30);

/// The worker in a slot, if one serves.
pub(super) type Room = Arc<Mutex<Option<Common>>>;

/// A worker that sessions share.
#[derive(Debug, Clone)]
pub(super) struct Common {
    process: Process,
    serving: Serving,
    /// The words of its end, once it has ended and nothing of it is left.
    ended: watch::Receiver<Option<String>>,
}

impl Common {
    fn is_alive(&self) -> bool {
        self.ended.borrow().is_none() && process::is_alive(&self.process)
    }
}

impl Driver {
    fn room(&self, slot: &SlotId) -> Room {
        Arc::clone(lock(&self.rooms).entry(slot.clone()).or_default())
    }

    fn own_token(&self, slot: &SlotId, user: &UserId) -> String {
        own_token(&self.secret(), slot, user)
    }

    /// The room of a slot, with its worker in it where one lives: known, or found by what its sessions have on record.
    async fn entered(
        self: &Arc<Self>,
        slot: &SlotId,
    ) -> Result<OwnedMutexGuard<Option<Common>>, ApiError> {
        let mut room = self.room(slot).lock_owned().await;
        if let Some(known) = &*room {
            if known.is_alive() {
                return Ok(room);
            }
            // What is left of it goes within moments.
            await_end(known.clone()).await;
            *room = None;
        }
        let all = self.store.sessions().map_err(|error| error.into_api())?;
        let workers = all.into_iter().filter(|stored| stored.record.slot == *slot);
        for worker in workers.filter_map(|stored| stored.record.worker) {
            let Some(serving) = worker.serving else { continue };
            let open = Handle::open(&worker.process);
            let open = open.map_err(|error| refuse(ErrorKind::Internal, error))?;
            let Some(handle) = open else { continue };
            let log = self.home.slot_log(slot);
            let exit = async move {
                handle.exited().await;
                words("exit status unknown: an earlier allocator had started it", &log)
            };
            *room = Some(self.watch_common(slot, worker.process, serving, exit));
            break;
        }
        Ok(room)
    }

    /// Watches a worker; when it and all that it left are gone, its sessions have lost it.
    fn watch_common(
        self: &Arc<Self>,
        slot: &SlotId,
        process: Process,
        serving: Serving,
        exit: impl Future<Output = String> + Send + 'static,
    ) -> Common {
        let (sender, ended) = watch::channel(None);
        let (driver, slot, gone) = (Arc::clone(self), slot.clone(), process.clone());
        tokio::spawn(async move {
            let words = exit.await;
            let slot_lock = driver.home.slot_lock(&slot);
            if !fence::released(&slot_lock, LOCK_AFTER_EXIT).await
                && let Err(error) = fence(Some(&gone), &slot_lock, Duration::ZERO).await
            {
                tracing::error!(%slot, %error, "a dead worker has left something alive");
                return;
            }
            sender.send_replace(Some(words));
            let all = driver.store.sessions().unwrap_or_default();
            let its = |record: &Record| {
                record.phase == Phase::Active
                    && record.worker.as_ref().is_some_and(|worker| worker.process == gone)
            };
            for Stored { record, .. } in all.into_iter().filter(|stored| its(&stored.record)) {
                if let Err(error) = driver.mark_lost(&record.id, record.generation).await {
                    tracing::error!(session = %record.id, %error, "cannot write down the end of a worker");
                }
            }
        });
        Common { process, serving, ended }
    }

    /// The worker of a session's slot, started where none lives.
    async fn common(
        self: &Arc<Self>,
        record: &Record,
        shared: &SharedWorkerConfig,
        pin: Option<&Pin>,
        mut cut: watch::Receiver<bool>,
    ) -> Result<Common, ApiError> {
        let mut room = tokio::select! {
            room = self.entered(&record.slot) => room?,
            () = wanted(&mut cut) => return Err(cut_short()),
        };
        if let Some(common) = &*room {
            return Ok(common.clone());
        }
        let log = self.home.slot_log(&record.slot);
        let launched = launch::spawn(&self.supervisor, &log).map_err(|error| error.into_api())?;
        let process = launched.process().clone();
        let told = process.clone();
        // As with any worker: durable before it is told anything.
        if let Err(error) = self.update(&record.id, move |record| record.launched(told)).await {
            launched.discard().await;
            return Err(error);
        }
        let progress = |what: &str| tracing::info!(slot = %record.slot, what, "starting");
        let started = launched.start(shared, self.patience, wanted(&mut cut), progress).await;
        let (mut child, mut serving) = started.map_err(|error| match error {
            LaunchError::Cancelled => cut_short(),
            error => error.into_api(),
        })?;
        serving.pin = pin.cloned();
        let exit = async move {
            let status = child.wait().await;
            let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            words(&status, &log)
        };
        let common = self.watch_common(&record.slot, process, serving, exit);
        tracing::info!(slot = %record.slot, address = %common.serving.address, "a worker for one user's sessions serves");
        *room = Some(common.clone());
        Ok(common)
    }

    /// Ends a slot's worker, whatever it hosts, and proves it gone.
    async fn end_common(
        &self,
        slot: &SlotId,
        user: &UserId,
        room: &mut Option<Common>,
    ) -> Result<(), ApiError> {
        let slot_lock = self.home.slot_lock(slot);
        let process = match room.take() {
            Some(mut common) => {
                let token = self.own_token(slot, user);
                let stop = Stop { reason: EndReason::Shutdown };
                if client::stop(&common.serving, &token, stop).await.is_ok() {
                    let ended = common.ended.wait_for(Option::is_some);
                    let _ = timeout(END_MARGIN, ended).await;
                }
                Some(common.process)
            }
            None => None,
        };
        let grace = Duration::from_secs(1);
        fence(process.as_ref(), &slot_lock, grace).await.map_err(|error| error.into_api())
    }

    /// Ends all of them, when every session has ended; also one that nobody here has spoken with.
    pub(super) async fn end_commons(self: &Arc<Self>) -> Result<(), ApiError> {
        let all = self.store.sessions().map_err(|error| error.into_api())?;
        let kept = all.into_iter().filter(|stored| stored.record.storage != Kept::Deleted);
        let slots: BTreeMap<String, (SlotId, UserId)> = kept
            .filter_map(|Stored { record, plan }| {
                Some((record.slot.to_string(), (record.slot, plan.user?)))
            })
            .collect();
        for (slot, user) in slots.into_values() {
            let mut room = self.entered(&slot).await?;
            self.end_common(&slot, &user, &mut room).await?;
        }
        Ok(())
    }
}

/// What opens a worker that sessions share, and none of them, signed with `secret`.
pub(super) fn own_token(secret: &SigningSecret, slot: &SlotId, user: &UserId) -> String {
    let expires = now() + CONTROL_TOKEN.as_secs();
    secret.sign_worker(&WorkerClaims { slot: slot.clone(), user: user.clone(), expires })
}

/// Waits for the end of a worker that is ending; false where it does not come.
async fn await_end(mut common: Common) -> bool {
    timeout(LOCK_AFTER_EXIT * 2, common.ended.wait_for(Option::is_some)).await.is_ok()
}

/// Completes when the start is to be cut short.
async fn wanted(cut: &mut watch::Receiver<bool>) {
    if cut.wait_for(|cut| *cut).await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn cut_short() -> ApiError {
    refuse(ErrorKind::Conflict, "the start was cut short by a stop")
}
