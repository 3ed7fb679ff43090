//! The end of the allocator itself: leave the workers to the next one, or end them all.

use std::sync::Arc;
use std::time::Duration;

use casemate_allocator_core::end::Ending;
use casemate_allocator_core::record::Storage;
use casemate_protocol::api::{ApiError, Phase};
use casemate_protocol::end::EndReason;

use super::{Driver, lock};
use crate::refusal::IntoApi as _;

/// What is being started or ended may finish for so long when the workers stay.
const DRAIN: Duration = Duration::from_secs(10);

impl Driver {
    /// Takes no new work and lets what is under way finish. A start that does not is found, and ended, by the next
    /// allocator.
    pub(crate) async fn drain(self: &Arc<Self>) {
        self.draining.send_replace(true);
        let landed = async {
            loop {
                let flight = lock(&self.flights).values().next().cloned();
                let Some(mut flight) = flight else { return };
                let _ = flight.done.wait_for(Option::is_some).await;
            }
        };
        if tokio::time::timeout(DRAIN, landed).await.is_err() {
            tracing::warn!("leaving while a worker is starting or ending");
        }
    }

    /// Ends all workers; with `delete`, closes all sessions and deletes what they had, unpushed work included.
    pub(crate) async fn stop_all(self: &Arc<Self>, delete: bool) -> Result<(), ApiError> {
        self.draining.send_replace(true);
        for flight in lock(&self.flights).values() {
            let _ = flight.cancel.send(true);
        }
        let all = self.store.sessions().map_err(|error| error.into_api())?;
        let mut tasks = tokio::task::JoinSet::new();
        for stored in all {
            let record = stored.record;
            let kept = matches!(record.storage, Storage::Live | Storage::Retained { .. });
            if record.phase == Phase::Ended && !(delete && kept) {
                continue;
            }
            let driver = Arc::clone(self);
            tasks.spawn(async move {
                let ending = Ending {
                    reason: EndReason::Shutdown,
                    close: delete,
                    discard: delete,
                    force: true,
                    evidence: None,
                };
                driver.end_with(&record.id, ending, Some("the allocator shuts down".into())).await
            });
        }
        let mut outcome = Ok(());
        while let Some(ended) = tasks.join_next().await {
            match ended {
                Ok(Ok(_)) => {}
                // A half-made session that went with its start.
                Ok(Err(error)) if error.kind == casemate_protocol::api::ErrorKind::NotFound => {}
                Ok(Err(error)) => outcome = Err(error),
                Err(error) => tracing::error!(%error, "an end panicked"),
            }
        }
        let ended = self.end_commons().await;
        outcome.and(ended)
    }
}
