//! An end in two phases: the worker refuses new prompts and says what the worktree holds, which is written down; then it
//! goes, and with it, where the core says so, the storage.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use casemate_allocator_core::end::{self, EndDecision, Ending};
use casemate_allocator_core::record::{Record, Storage, WrongPhase};
use casemate_protocol::api::{ApiError, End, ErrorKind, SessionView};
use casemate_protocol::audit::Event;
use casemate_protocol::end::EndReason;
use casemate_protocol::ids::{Generation, SessionId};
use casemate_protocol::token::Audience;
use casemate_protocol::worker::{Quiesce, Stop};

use super::{Driver, Landing, lock, now};
use crate::delete;
use crate::refusal::{IntoApi as _, refuse};
use crate::store::Stored;
use crate::values;
use crate::worker::client;
use crate::worker::fence::fence;

/// Beyond the profile's grace, for a worker that has been told to stop.
const STOP_MARGIN: Duration = Duration::from_secs(10);

enum Step {
    Unknown,
    Nothing(Box<Record>),
    Invalid,
    /// In another generation than the one that was to end.
    Woken(Generation),
    Wait,
    Concluded(Box<Stored>),
    Fly(Box<Stored>, Landing),
}

impl Driver {
    /// `POST /v1/sessions/{id}/stop` and `/close`.
    pub(crate) async fn end(
        self: &Arc<Self>,
        id: SessionId,
        body: End,
        close: bool,
    ) -> Result<SessionView, ApiError> {
        let End { reason, discard, force, generation } = body;
        let ending = Ending { reason, close, discard, force, evidence: None };
        let record = self.end_of(&id, ending, None, generation).await?;
        Ok(self.view(&record, &[]))
    }

    /// Stops a worker that is of no use any more.
    pub(super) async fn stop_worker(
        self: &Arc<Self>,
        id: &SessionId,
        reason: EndReason,
        words: String,
    ) -> Result<(), ApiError> {
        let force = reason == EndReason::Failed;
        let ending = Ending { reason, close: false, discard: false, force, evidence: None };
        self.end_with(id, ending, Some(words)).await.map(|_| ())
    }

    /// Carries an end through, whatever state the session is in.
    pub(super) async fn end_with(
        self: &Arc<Self>,
        id: &SessionId,
        ending: Ending,
        words: Option<String>,
    ) -> Result<Record, ApiError> {
        self.end_of(id, ending, words, None).await
    }

    /// The same, of this generation alone.
    async fn end_of(
        self: &Arc<Self>,
        id: &SessionId,
        ending: Ending,
        words: Option<String>,
        only: Option<Generation>,
    ) -> Result<Record, ApiError> {
        loop {
            let (driver, id2, ending2, words2) =
                (Arc::clone(self), id.clone(), ending.clone(), words.clone());
            let step = self
                .change(move |book| {
                    let Some(mut stored) = book.session(&id2)? else { return Ok(Step::Unknown) };
                    let record = &mut stored.record;
                    if only.is_some_and(|only| only != record.generation) {
                        return Ok(Step::Woken(record.generation));
                    }
                    Ok(match end::end(&*record, &ending2) {
                        EndDecision::Nothing => Step::Nothing(Box::new(stored.record)),
                        EndDecision::Invalid => Step::Invalid,
                        EndDecision::Wait => Step::Wait,
                        EndDecision::Conclude => {
                            let words = words2.unwrap_or_else(|| "closed while asleep".to_owned());
                            if record.end_without_worker(ending2, words, now()).is_err() {
                                return Ok(Step::Wait);
                            }
                            book.put_session(&stored)?;
                            Step::Concluded(Box::new(stored))
                        }
                        EndDecision::Stop => {
                            if record.begin_end(ending2).is_err() {
                                return Ok(Step::Wait);
                            }
                            book.put_session(&stored)?;
                            let landing = driver.take_off(&stored.record.id);
                            Step::Fly(Box::new(stored), landing)
                        }
                    })
                })
                .await?;
            match step {
                Step::Unknown => {
                    return Err(refuse(ErrorKind::NotFound, format!("no session {id}")));
                }
                Step::Woken(now) => {
                    let message = format!("{id} was woken meanwhile: it is in generation {now}");
                    return Err(refuse(ErrorKind::Conflict, message));
                }
                Step::Invalid => {
                    let message = format!(
                        "{:?} is no reason for this call; close takes close, unused, retention and shutdown, stop takes the others but reset",
                        ending.reason
                    );
                    return Err(refuse(ErrorKind::Invalid, message));
                }
                Step::Nothing(record) => return Ok(*record),
                // Whatever became of it, the next look tells.
                Step::Wait => drop(self.wait(id, ending.force).await),
                Step::Concluded(record) => {
                    self.record_end(id, ending.reason, true);
                    if record.record.storage == Storage::Deleting {
                        self.delete_storage(&record).await?;
                    }
                    return self.record(id, record.record);
                }
                Step::Fly(stored, landing) => {
                    let before = stored.record.clone();
                    let driver = Arc::clone(self);
                    let mut done = landing.done.subscribe();
                    let words = words.clone();
                    tokio::spawn(async move {
                        let outcome = driver.carry_end(*stored, words).await;
                        driver.land(landing, outcome);
                    });
                    match done.wait_for(Option::is_some).await {
                        Ok(outcome) => outcome.clone().unwrap_or(Ok(()))?,
                        Err(_) => return Err(refuse(ErrorKind::Internal, "the end broke off")),
                    }
                    return self.record(id, before);
                }
            }
        }
    }

    pub(super) fn record_end(&self, id: &SessionId, reason: EndReason, closed: bool) {
        self.audit.record(if closed {
            Event::session_closed(id, reason)
        } else {
            Event::session_stopped(id, reason)
        });
    }

    /// The record now; the last one known where it has been forgotten meanwhile.
    fn record(&self, id: &SessionId, last: Record) -> Result<Record, ApiError> {
        let stored = self.store.session(id).map_err(|error| error.into_api())?;
        Ok(stored.map_or(last, |stored| stored.record))
    }

    /// From `stopping` to the end. Whoever calls holds the session.
    pub(super) async fn carry_end(
        self: &Arc<Self>,
        stored: Stored,
        words: Option<String>,
    ) -> Result<(), ApiError> {
        let Stored { record, plan } = &stored;
        let ending = record
            .ending
            .clone()
            .ok_or_else(|| refuse(ErrorKind::Internal, "an end without a reason"))?;
        let serving = Self::serving(record)?.clone();
        let token = self.token(record, Audience::Control);
        let answer = client::quiesce(&serving, &token).await;
        let mut gone = self.living(record).is_none_or(|live| live.ended.borrow().is_some());
        if answer.is_err() && stored.shares() {
            gone = gone || !self.is_hosted(&stored).await?;
        }
        match answer {
            Ok(Quiesce::Quiesced { evidence }) => {
                self.update(&record.id, move |record| record.quiesced(evidence)).await?;
            }
            Ok(Quiesce::Busy) if ending.force => {}
            Ok(Quiesce::Busy) => {
                self.update(&record.id, Record::reopened).await?;
                let message = "a turn or a command of exec is running; wait for its end, or force";
                return Err(refuse(ErrorKind::Busy, message));
            }
            // Its end is known and told already; that it does not answer is no news.
            Err(_) if gone => {}
            Err(error) if ending.force => {
                tracing::warn!(session = %record.id, %error, "ending without evidence");
            }
            Err(error) => {
                self.update(&record.id, Record::reopened).await?;
                return Err(refuse(
                    ErrorKind::Unavailable,
                    format!("{error}; force ends it anyway"),
                ));
            }
        }
        let grace = Duration::from_secs(plan.grace);
        if let Some(user) = &plan.user {
            self.evict(&stored, user, ending.reason, ending.force).await?;
        } else {
            self.end_process(record, &serving, &token, ending.reason, grace).await?;
        }
        let detail = words.unwrap_or_else(|| format!("{:?}", ending.reason).to_lowercase());
        let after = self.update(&record.id, move |record| record.stopped(detail, now())).await?;
        lock(&self.live).remove(&record.id);
        self.audit.gone(stored.log_name(), &record.slot);
        self.record_end(&record.id, ending.reason, ending.close);
        tracing::info!(session = %record.id, phase = ?after.record.phase, "ended");
        if after.record.storage == Storage::Deleting {
            self.delete_storage(&after).await?;
        }
        Ok(())
    }

    /// Tells the worker to go, waits, and proves it gone.
    async fn end_process(
        &self,
        record: &Record,
        serving: &casemate_allocator_core::record::Serving,
        token: &str,
        reason: EndReason,
        grace: Duration,
    ) -> Result<(), ApiError> {
        if let Err(error) = client::stop(serving, token, Stop { reason }).await {
            // It may have gone while it answered; the fence below finds out.
            tracing::debug!(session = %record.id, %error, "stop call");
        } else if let Some(mut live) = self.living(record) {
            let ended = live.ended.wait_for(Option::is_some);
            let _ = tokio::time::timeout(grace + STOP_MARGIN, ended).await;
        }
        let process = record.worker.as_ref().map(|worker| &worker.process);
        let lock = self.home.slot_lock(&record.slot);
        fence(process, &lock, grace).await.map_err(|error| error.into_api())
    }

    /// Deletes what the core has decided to delete, and writes down that it is gone. A half-made session is forgotten.
    pub(super) async fn delete_storage(self: &Arc<Self>, stored: &Stored) -> Result<(), ApiError> {
        let _turn = self.deleting.lock().await;
        let record = &stored.record;
        if let Some(user) = &stored.plan.user {
            self.delete_shared(stored, user).await?;
        } else {
            self.audit.set_aside(stored.log_name(), &record.slot);
            self.remove(vec![self.home.slot(&record.slot)]).await?;
        }
        // The values were the caller's; nothing is left to hand them to.
        values::forget(&self.home, &record.id).map_err(|error| error.into_api())?;
        self.audit.record(Event::session_deleted(&record.id));
        let id = record.id.clone();
        self.change(move |book| {
            let Some(mut stored) = book.session(&id)? else { return Ok(Ok(())) };
            if stored.record.half_made() {
                book.remove_session(&id)?;
                return Ok(Ok::<(), WrongPhase>(()));
            }
            if stored.record.storage == Storage::Deleted {
                return Ok(Ok(()));
            }
            if let Err(error) = stored.record.deleted() {
                return Ok(Err(error));
            }
            book.put_session(&stored)?;
            Ok(Ok(()))
        })
        .await?
        .map_err(|error| error.into_api())
    }

    /// Removes trees, one after the other.
    pub(super) async fn remove(&self, trees: Vec<PathBuf>) -> Result<(), ApiError> {
        let shown = trees.first().cloned().unwrap_or_default();
        let removed = tokio::task::spawn_blocking(move || {
            trees.iter().map(PathBuf::as_path).try_for_each(delete::tree)
        });
        let removed = removed.await.map_err(|error| refuse(ErrorKind::Internal, error))?;
        removed.map_err(|error| undeleted(&shown, &error))
    }
}

/// Why a directory is still there, and what becomes of it.
fn undeleted(path: &Path, error: &std::io::Error) -> ApiError {
    let message = format!(
        "cannot delete {}: {error}; the allocator tries again at its next start",
        path.display()
    );
    refuse(ErrorKind::Unavailable, message)
}
