//! Finds again what outlived an earlier allocator, and finishes what it had begun.

use std::sync::Arc;
use std::time::Duration;

use casemate_allocator_core::record::Record;
use casemate_allocator_core::recover::{Answer, Observed, Recovery, is_recorded, recover};
use casemate_protocol::api::{ApiError, ErrorKind};
use casemate_protocol::end::EndReason;
use casemate_protocol::ids::SessionId;
use casemate_protocol::token::Audience;
use tokio::time::Instant;

use super::{Driver, now};
use crate::refusal::{IntoApi as _, refuse};
use crate::store::Stored;
use crate::values;
use crate::worker::fence::fence;
use crate::worker::process::{self, Handle};
use crate::worker::{client, lock};

/// A worker on a loaded machine may be slow to answer; it is killed only after so long.
const LOOKING: Duration = Duration::from_secs(8);
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);
/// Kill, mark, delete, done: no record needs more.
const ROUNDS: u32 = 6;

impl Driver {
    /// All records, before anything is served. One that cannot be recovered does not keep the others from it.
    pub(crate) async fn recover_all(self: &Arc<Self>) -> Result<(), ApiError> {
        let all = self.store.sessions().map_err(|error| error.into_api())?;
        let known = all.iter().map(|stored| stored.record.id.clone()).collect();
        values::sweep(&self.home, &known).map_err(|error| error.into_api())?;
        let mut tasks = tokio::task::JoinSet::new();
        for stored in all {
            let driver = Arc::clone(self);
            tasks.spawn(async move {
                let id = stored.record.id;
                if let Err(error) = driver.recover(&id).await {
                    tracing::error!(session = %id, %error, "not recovered");
                }
            });
        }
        while tasks.join_next().await.is_some() {}
        Ok(())
    }

    /// One record that nobody in this process owns.
    pub(super) async fn recover(self: &Arc<Self>, id: &SessionId) -> Result<(), ApiError> {
        for _ in 0..ROUNDS {
            let stored = self.store.session(id).map_err(|error| error.into_api())?;
            let Some(stored) = stored else { return Ok(()) };
            if self.recover_once(stored).await? {
                return Ok(());
            }
        }
        Err(refuse(ErrorKind::Internal, format!("session {id} does not settle")))
    }

    /// True when this was the last step.
    async fn recover_once(self: &Arc<Self>, stored: Stored) -> Result<bool, ApiError> {
        let record = &stored.record;
        let seen = match &stored.plan.user {
            Some(user) => self.observe_shared(&stored, user).await?,
            None => self.observe(record).await?,
        };
        let decision = recover(record, &seen);
        if decision != Recovery::Nothing {
            tracing::info!(session = %record.id, phase = ?record.phase, ?seen, ?decision, "recovering");
        }
        let recorded = record.worker.as_ref().map(|worker| worker.process.clone());
        match decision {
            Recovery::Nothing => return Ok(true),
            Recovery::Adopt => return self.adopt(&stored).await.map(|()| true),
            Recovery::Kill => match &stored.plan.user {
                Some(user) => self.evict(&stored, user, EndReason::Failed, true).await?,
                None => {
                    let lock = self.home.slot_lock(&record.slot);
                    let grace = Duration::from_secs(stored.plan.grace);
                    fence(recorded.as_ref(), &lock, grace)
                        .await
                        .map_err(|error| error.into_api())?;
                }
            },
            Recovery::MarkLost => {
                let generation = record.generation;
                self.update(&record.id, move |record| record.gone_unseen(generation, now()))
                    .await?;
                self.record_lost(&record.id, generation);
            }
            Recovery::FailStart => {
                let generation = record.generation;
                self.update(&record.id, move |record| record.gone_unseen(generation, now()))
                    .await?;
            }
            Recovery::FinishEnd => {
                self.adopt(&stored).await?;
                // Busy again: then it is reopened, and that is settled too.
                if let Err(error) = self.carry_end(stored.clone(), None).await {
                    tracing::warn!(session = %record.id, %error, "an end was not carried through");
                }
            }
            Recovery::Conclude => {
                let generation = record.generation;
                self.update(&record.id, move |record| record.gone_unseen(generation, now()))
                    .await?;
                self.audit.gone(stored.log_name(), &record.slot);
                if let Some(ending) = &record.ending {
                    self.record_end(&record.id, ending.reason, ending.close);
                }
            }
            Recovery::Delete => self.delete_storage(&stored).await?,
        }
        Ok(false)
    }

    async fn adopt(self: &Arc<Self>, stored: &Stored) -> Result<(), ApiError> {
        let record = &stored.record;
        if self.living(record).is_some() {
            return Ok(());
        }
        if stored.shares() {
            return self.adopt_shared(record).await;
        }
        let Some(worker) = &record.worker else { return Ok(()) };
        let handle =
            Handle::open(&worker.process).map_err(|error| refuse(ErrorKind::Internal, error))?;
        match handle {
            Some(handle) => {
                self.watch_adopted(record, handle);
                Ok(())
            }
            None => Err(refuse(ErrorKind::Unavailable, "the worker has just ended")),
        }
    }

    async fn observe(&self, record: &Record) -> Result<Observed, ApiError> {
        let slot_lock = self.home.slot_lock(&record.slot);
        let mut seen = self.look_at(record, &slot_lock)?;
        let Ok(serving) = Self::serving(record) else { return Ok(seen) };
        let token = self.token(record, Audience::Control);
        let deadline = Instant::now() + LOOKING;
        while (seen.lock || seen.process) && Instant::now() < deadline {
            if let Ok(status) = client::status(serving, &token).await {
                let answer = Answer { boot: status.boot, generation: status.generation };
                let known = is_recorded(record, Some(&answer));
                seen.answer = Some(answer);
                if known {
                    break;
                }
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
            let answer = seen.answer.take();
            seen = Observed { answer, ..self.look_at(record, &slot_lock)? };
        }
        Ok(seen)
    }

    fn look_at(&self, record: &Record, slot_lock: &std::path::Path) -> Result<Observed, ApiError> {
        let held = lock::is_held(slot_lock).map_err(|error| {
            refuse(ErrorKind::Unavailable, format!("cannot read {}: {error}", slot_lock.display()))
        })?;
        let alive = record.worker.as_ref().is_some_and(|worker| process::is_alive(&worker.process));
        Ok(Observed { process: alive, lock: held, answer: None })
    }
}
