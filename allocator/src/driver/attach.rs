//! Allocate and resume: one loop that asks the core until the answer is a live worker or a refusal.

use std::sync::Arc;
use std::time::Duration;

use casemate_allocator_core::allocate::{self, Allocation, Refusal, Request, Seen};
use casemate_allocator_core::record::{Record, Storage};
use casemate_allocator_core::recover::{Answer, is_recorded};
use casemate_allocator_core::seat::{SEATS, Seat};
use casemate_protocol::api::{Allocate, ApiError, Attached, ErrorKind, Intent, Phase};
use casemate_protocol::audit::Event;
use casemate_protocol::end::EndReason;
use casemate_protocol::ids::{Incarnation, SessionId, SlotId};
use casemate_protocol::token::Audience;
use casemate_protocol::worker::{Activity, AgentState};
use sha2::{Digest as _, Sha256};

use super::{Driver, Landing, now};
use crate::plan::{self, Plan};
use crate::refusal::{IntoApi as _, refuse};
use crate::store::{Change, KeyRow, StoreError, Stored};
use crate::values;
use crate::worker::{client, process};

/// A worker that lives but does not answer gets so many looks, this far apart.
const LOOKS: u32 = 3;
const BETWEEN_LOOKS: Duration = Duration::from_millis(300);
/// Sessions of one caller may end as fast as they are woken (an agent that exits at once): not for ever.
const ROUNDS: u32 = 8;

/// The outcome of one round in the store.
enum Step {
    Plan,
    Start(Box<Stored>, Landing),
    Attach(Box<Stored>, bool),
    Wait(SessionId),
    Refuse(Refusal),
    Full,
}

/// What a look at a recorded worker found.
enum Look {
    Serves,
    /// Gone, or no longer of use; the record has been moved on.
    Moved,
}

impl Driver {
    /// `POST /v1/sessions`.
    pub(crate) async fn allocate(self: &Arc<Self>, body: Allocate) -> Result<Attached, ApiError> {
        check(&body)?;
        let digest = digest(&body)?;
        let mut plan = None;
        for _ in 0..ROUNDS {
            self.refuse_while_draining()?;
            let (driver, body2, digest2, plan2) =
                (Arc::clone(self), body.clone(), digest.clone(), plan.clone());
            let step = self
                .change(move |book| driver.allocate_step(book, &body2, &digest2, plan2))
                .await?;
            match step {
                Step::Plan => {
                    let (intent, home, tier) = (body.intent.clone(), self.home.clone(), self.tier);
                    let tenant = body.key.tenant.clone();
                    let profiles = self.profiles.clone();
                    let made = tokio::task::spawn_blocking(move || {
                        plan::make(&intent, &tenant, &home, &profiles, tier)
                    });
                    let made = made.await.map_err(|error| refuse(ErrorKind::Internal, error))??;
                    self.refuse_to_learn_together(&body.intent, &made.0)?;
                    plan = Some(made);
                }
                step => {
                    if let Some(attached) = self.carry_out(step, Audience::Attach).await? {
                        return Ok(attached);
                    }
                }
            }
        }
        Err(unstable())
    }

    /// `POST /v1/sessions/{id}/resume` and `/exec`, which differ in what the token opens.
    pub(crate) async fn resume(
        self: &Arc<Self>,
        id: SessionId,
        audience: Audience,
    ) -> Result<Attached, ApiError> {
        for _ in 0..ROUNDS {
            self.refuse_while_draining()?;
            let (driver, id) = (Arc::clone(self), id.clone());
            let step = self
                .change(move |book| {
                    let stored = book.session(&id)?;
                    let answer =
                        allocate::resume(stored.as_ref().map(|stored| (&stored.record).into()));
                    driver.enter(book, answer, None)
                })
                .await?;
            if let Some(attached) = self.carry_out(step, audience).await? {
                return Ok(attached);
            }
        }
        Err(unstable())
    }

    /// A worker of many sessions has no run with its walls open, so there would be nothing to learn.
    fn refuse_to_learn_together(&self, intent: &Intent, plan: &Plan) -> Result<(), ApiError> {
        if self.learn.is_none() || plan.user.is_none() {
            return Ok(());
        }
        let message = format!(
            "profile `{}` has its sessions share a worker (`sharing`), which none can learn in: name a profile without it, \
             with the same policy",
            intent.profile
        );
        Err(refuse(ErrorKind::Invalid, message))
    }

    async fn carry_out(
        self: &Arc<Self>,
        step: Step,
        audience: Audience,
    ) -> Result<Option<Attached>, ApiError> {
        match step {
            Step::Plan => Err(refuse(ErrorKind::Internal, "a plan was asked for twice")),
            Step::Refuse(refusal) => Err(refusal.into_api()),
            Step::Full => Err(refuse(
                ErrorKind::Unavailable,
                format!(
                    "all {SEATS} slots of this machine are in use; close or discard some sessions"
                ),
            )),
            Step::Wait(id) => self.wait(&id, false).await.map(|()| None),
            Step::Start(stored, landing) => {
                let id = stored.record.id.clone();
                // A task of its own: a caller that hangs up does not cut the start off.
                let driver = Arc::clone(self);
                let mut done = landing.done.subscribe();
                tokio::spawn(async move { driver.start(*stored, landing).await });
                match done.wait_for(Option::is_some).await {
                    Ok(outcome) => outcome.clone().unwrap_or(Ok(())).map(|()| None),
                    Err(_) => {
                        Err(refuse(ErrorKind::Internal, format!("the start of {id} broke off")))
                    }
                }
            }
            Step::Attach(stored, created) => match self.look(&stored).await? {
                Look::Moved => Ok(None),
                Look::Serves => {
                    let record = &stored.record;
                    let opens = if audience == Audience::Exec { "exec" } else { "attach" };
                    let event = Event::authorized(&record.id, record.generation, opens);
                    self.audit.record(event);
                    Ok(Some(Attached {
                        session: self.whole_view(&stored),
                        created,
                        address: Self::serving(record)?.address,
                        pin: Self::serving(record)?.pin.clone(),
                        token: self.token(record, audience),
                    }))
                }
            },
        }
    }

    /// Whether the recorded worker still serves, so that nobody is sent to a dead one.
    async fn look(self: &Arc<Self>, stored: &Stored) -> Result<Look, ApiError> {
        let record = &stored.record;
        let serving = Self::serving(record)?;
        let token = self.token(record, Audience::Control);
        let mut last = String::new();
        for _ in 0..LOOKS {
            match client::status(serving, &token).await {
                Ok(status) => {
                    let answer =
                        Answer { boot: status.boot.clone(), generation: status.generation };
                    if !is_recorded(record, Some(&answer)) {
                        last = "another worker answers at its address".to_owned();
                        continue;
                    }
                    let (reason, words) = match (&status.agent, status.activity) {
                        (AgentState::Exited { cause }, _) => (EndReason::Failed, cause.clone()),
                        (_, Activity::Quiesced) => (EndReason::Idle, "was quiesced".to_owned()),
                        _ => return Ok(Look::Serves),
                    };
                    self.stop_worker(&record.id, reason, words).await?;
                    return Ok(Look::Moved);
                }
                Err(error) => last = error.to_string(),
            }
            let alive =
                record.worker.as_ref().is_some_and(|worker| process::is_alive(&worker.process));
            if alive && stored.shares() && !self.is_hosted(stored).await? {
                self.mark_over(record).await?;
                return Ok(Look::Moved);
            }
            if !alive {
                self.mark_lost(&record.id, record.generation).await?;
                return Ok(Look::Moved);
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
        let message = format!(
            "session {} has a worker that does not answer ({last}); stop it with force, then try again",
            record.id
        );
        Err(refuse(ErrorKind::Unavailable, message))
    }

    fn allocate_step(
        &self,
        book: &Change<'_>,
        body: &Allocate,
        digest: &str,
        plan: Option<(Plan, casemate_allocator_core::record::Terms)>,
    ) -> Result<Step, StoreError> {
        let key = body.key.digest();
        let request = book.request(&body.request_id)?;
        let named = match &request {
            Some(request) => book.session(&request.session)?,
            None => None,
        };
        let row = book.key(&key)?;
        let newest = match &row {
            Some(row) => book.session(&row.newest)?,
            None => None,
        };
        let seen = Seen {
            request: request
                .as_ref()
                .map(|request| (request, named.as_ref().map(|stored| (&stored.record).into()))),
            newest: newest.as_ref().map(|stored| (&stored.record).into()),
            incarnation: row.as_ref().map_or(Incarnation::ZERO, |row| row.incarnation),
        };
        let answer = allocate::allocate(seen, digest);
        if let Allocation::Create(incarnation) = answer {
            let Some(plan) = plan else { return Ok(Step::Plan) };
            return self.create(book, body, digest, incarnation, plan);
        }
        let created = request.as_ref().is_some_and(|request| request.created);
        let fresh = request.is_none().then_some((body, digest));
        let step = self.enter(book, answer, fresh)?;
        Ok(match step {
            Step::Attach(stored, _) => Step::Attach(stored, created),
            step => step,
        })
    }

    fn create(
        &self,
        book: &Change<'_>,
        body: &Allocate,
        digest: &str,
        incarnation: Incarnation,
        (plan, terms): (Plan, casemate_allocator_core::record::Terms),
    ) -> Result<Step, StoreError> {
        let all = book.sessions()?;
        let place = beside(&all, &plan).or_else(|| {
            let free = Record::free_seat(all.iter().map(|stored| &stored.record));
            free.map(|seat| (SlotId::random(), seat))
        });
        let Some(place) = place else { return Ok(Step::Full) };
        let id = SessionId::random();
        let mut intent = body.intent.clone();
        // Durable before the row that needs it.
        values::keep(&self.home, &id, &mut intent.env).map_err(StoreError::Values)?;
        let record =
            Record::new(id.clone(), (body.key.clone(), incarnation), intent, place, terms, now());
        let stored = Stored { record, plan };
        book.put_session(&stored)?;
        book.put_key(&body.key.digest(), &KeyRow { incarnation, newest: id.clone() })?;
        let request = Request { digest: digest.to_owned(), session: id.clone(), created: true };
        book.put_request(&body.request_id, &request)?;
        Ok(Step::Start(Box::new(stored), self.take_off(&id)))
    }

    /// Writes down what a resume or attach changes.
    fn enter(
        &self,
        book: &Change<'_>,
        answer: Allocation,
        request: Option<(&Allocate, &str)>,
    ) -> Result<Step, StoreError> {
        let id = match answer {
            Allocation::Wait(id) => return Ok(Step::Wait(id)),
            Allocation::Refuse(refusal) => return Ok(Step::Refuse(refusal)),
            Allocation::Create(_) => return Ok(Step::Plan),
            Allocation::Resume(id) | Allocation::Attach(id) => id,
        };
        if let Some((body, digest)) = request {
            let request =
                Request { digest: digest.to_owned(), session: id.clone(), created: false };
            book.put_request(&body.request_id, &request)?;
        }
        let Some(mut stored) = book.session(&id)? else {
            return Ok(Step::Refuse(Refusal::Unknown));
        };
        if stored.record.phase == Phase::Active {
            return Ok(Step::Attach(Box::new(stored), false));
        }
        if stored.record.wake().is_err() {
            return Ok(Step::Wait(id));
        }
        book.put_session(&stored)?;
        Ok(Step::Start(Box::new(stored), self.take_off(&id)))
    }
}

/// The slot that a session of this plan shares, where its user has one already.
fn beside(all: &[Stored], plan: &Plan) -> Option<(SlotId, Seat)> {
    let user = plan.user.as_ref()?;
    let other = all.iter().find(|other| {
        other.plan.user.as_ref() == Some(user) && other.record.storage != Storage::Deleted
    })?;
    Some((other.record.slot.clone(), other.record.seat))
}

fn unstable() -> ApiError {
    let message = "the session's worker ends as soon as it is started; its log says why";
    refuse(ErrorKind::WorkerFailed, message)
}

fn check(body: &Allocate) -> Result<(), ApiError> {
    let key = &body.key;
    let fields = [
        ("request_id", &body.request_id),
        ("key.tenant", &key.tenant),
        ("key.agent", &key.agent),
        ("key.platform", &key.platform),
        ("key.thread", &key.thread),
    ];
    for (name, value) in fields {
        if value.is_empty() || value.len() > 512 || value.contains(char::is_control) {
            let message = format!("`{name}` must be 1 to 512 bytes without control characters");
            return Err(refuse(ErrorKind::Invalid, message));
        }
    }
    Ok(())
}

/// Digest of the whole body: maps are ordered, so equal bodies have equal texts. Hashed, because it holds the variables.
fn digest(body: &Allocate) -> Result<String, ApiError> {
    let text = serde_json::to_vec(body).map_err(|error| refuse(ErrorKind::Internal, error))?;
    Ok(Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect())
}
