//! The clockwork: looks at each living worker, and lets kept storage age. A look is what spends idleness; while nobody
//! looks, nothing is spent.

use std::sync::Arc;
use std::time::Duration;

use casemate_allocator_core::end::Ending;
use casemate_allocator_core::record::{Record, Storage};
use casemate_allocator_core::tick::{Observation, Tick, tick};
use casemate_protocol::api::{ApiError, ErrorKind, Phase};
use casemate_protocol::end::EndReason;
use casemate_protocol::token::Audience;
use tokio::time::{Instant, sleep};

use super::{Driver, lock};
use crate::refusal::IntoApi as _;
use crate::store::Stored;
use crate::worker::client;

/// Between looks: a tenth of the shortest TTL, within these.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);
/// How often ages are written down: a crash gives kept storage so much more time.
const AGE_STEP: Duration = Duration::from_secs(60);
/// Ended sessions without storage that stay listed.
const TOMBSTONES: usize = 200;

impl Driver {
    /// Runs until it is aborted.
    pub(crate) async fn clockwork(self: Arc<Self>) {
        let mut aged = Instant::now();
        loop {
            let all = match self.store.sessions() {
                Ok(all) => all,
                Err(error) => {
                    tracing::error!(%error, "cannot read the store");
                    Vec::new()
                }
            };
            let shortest = all
                .iter()
                .filter(|stored| stored.record.phase == Phase::Active)
                .map(|stored| stored.record.terms.idle_ttl_ms / 10)
                .min();
            let mut looks = tokio::task::JoinSet::new();
            for stored in &all {
                if stored.record.phase != Phase::Active {
                    continue;
                }
                let (driver, stored) = (Arc::clone(&self), stored.clone());
                looks.spawn(async move { driver.look_and_act(stored).await });
            }
            while looks.join_next().await.is_some() {}
            if aged.elapsed() >= AGE_STEP {
                // Whole steps only: a suspended machine's time is not on tokio's clock.
                self.age(&all, AGE_STEP.as_secs()).await;
                aged = Instant::now();
            }
            let audit = self.audit.clone();
            let _ = tokio::task::spawn_blocking(move || audit.flush()).await;
            let pause = shortest.map_or(LONGEST, Duration::from_millis).clamp(SHORTEST, LONGEST);
            sleep(pause).await;
        }
    }

    async fn look_and_act(self: Arc<Self>, stored: Stored) {
        let record = &stored.record;
        let Ok(serving) = Self::serving(record) else { return };
        let token = self.token(record, Audience::Control);
        // A worker that does not answer is not idle: nothing is spent. Its death is the watcher's to see; that of a session
        // whose worker goes on is seen here.
        let Ok(status) = client::status(serving, &token).await else {
            if stored.shares() && matches!(self.is_hosted(&stored).await, Ok(false)) {
                self.tell(record, self.mark_over(record).await);
            }
            return;
        };
        if status.boot != serving.boot || status.generation != record.generation {
            return;
        }
        self.audit.met(stored.log_name(), status.audit_head);
        let seen = Observation {
            activity: status.activity,
            agent: status.agent,
            attachments: status.attachments,
            used: status.prompted || status.commanded,
        };
        if let Some(live) = lock(&self.live).get_mut(&record.id)
            && live.generation == record.generation
        {
            live.seen = Some(seen.clone());
            live.matrix = status.matrix;
            live.usage = Some(status.usage);
        }
        if seen.used && !record.used {
            let written = self
                .update(&record.id, |record| {
                    record.used = true;
                    Ok::<(), std::convert::Infallible>(())
                })
                .await;
            if let Err(error) = written {
                tracing::warn!(session = %record.id, %error, "cannot note that it was used");
            }
        }
        let acted = match tick(record, &seen) {
            Tick::Nothing => Ok(()),
            Tick::Stop(reason, words) => self.stop_worker(&record.id, reason, words).await,
            Tick::Close(reason, words) => self.close_unused(record, reason, words).await,
        };
        self.tell(record, acted);
    }

    fn tell(&self, record: &Record, acted: Result<(), ApiError>) {
        match acted {
            Ok(()) => {}
            // A prompt came between the look and the end: it won.
            Err(error) if error.kind == ErrorKind::Busy => {}
            Err(error) => tracing::warn!(session = %record.id, %error, "not ended"),
        }
    }

    async fn close_unused(
        self: &Arc<Self>,
        record: &Record,
        reason: EndReason,
        words: String,
    ) -> Result<(), ApiError> {
        let ending = Ending { reason, close: true, discard: false, force: false, evidence: None };
        self.end_with(&record.id, ending, Some(words)).await.map(|_| ())
    }

    async fn age(self: &Arc<Self>, all: &[Stored], seconds: u64) {
        for stored in all {
            if let Err(error) = self.age_one(stored, seconds).await {
                tracing::warn!(session = %stored.record.id, %error, "cannot age kept storage");
            }
        }
        let gone = all.iter().filter(|stored| stored.record.storage == Storage::Deleted);
        for stored in gone.skip(TOMBSTONES) {
            let id = stored.record.id.clone();
            if let Err(error) = self.change(move |book| book.remove_session(&id)).await {
                tracing::warn!(%error, "cannot forget an ended session");
            }
        }
    }

    async fn age_one(self: &Arc<Self>, stored: &Stored, seconds: u64) -> Result<(), ApiError> {
        let record = &stored.record;
        let mut storage = record.storage;
        if let Storage::Retained { left: Some(_) } = storage {
            let aged = self
                .update(&record.id, move |record| {
                    record.age(seconds);
                    Ok::<(), std::convert::Infallible>(())
                })
                .await?;
            storage = aged.record.storage;
        }
        if storage == Storage::Deleting {
            let stored = self.store.session(&record.id).map_err(|error| error.into_api())?;
            if let Some(stored) = stored {
                self.delete_storage(&stored).await?;
            }
        }
        Ok(())
    }
}
