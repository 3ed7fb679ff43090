//! Routes: whose call it is, by its token, and what it asks for.
//!
//! Owns nothing that changes but counters; what goes on is the sessions' to say.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use casemate_protocol::audit::{Event, Limiter};
use casemate_protocol::ids::BootId;
use casemate_protocol::origin::PLAIN;
use casemate_protocol::slot::SlotPhase;
use casemate_protocol::token::{Audience, Claims, TokenError};
use casemate_protocol::worker::{Activity, AgentState};
use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use tokio::time::Instant;

use super::answer::{Answer, refused, text};
use super::auth::{self, Gate, Refusal};
use super::metrics::add;
use super::upgrade::Subprotocol;
use super::{attach, session, sessions, slot};
use crate::audit::Audit;
use crate::hosted::live::Hosted;
use crate::hosted::registry::Registry;
use crate::process::reaper::Reaper;
use crate::relay::driver::Order;
use crate::shared::Shared;
use crate::slot::Slot;

/// The endpoints of a worker.
#[derive(Debug)]
pub struct App {
    /// Whose tokens are looked at.
    pub gate: Gate,
    /// Whom they may name.
    pub registry: Rc<Registry>,
    /// For its count of orphans.
    pub reaper: Rc<Reaper>,
    /// This start.
    pub boot: BootId,
    /// Calls refused for their token or origin.
    pub refused: Cell<u64>,
    /// Where sessions come and go.
    shared: Option<Rc<Shared>>,
    /// Where the one session is waited for.
    slot: Option<Rc<Slot>>,
    /// The worker's log.
    pub audit: Audit,
    /// What was changed by callers.
    changes: RefCell<Limiter>,
    since: Instant,
    connections: Cell<u64>,
}

// === impl App ===

impl App {
    /// The endpoints of the sessions in `registry`.
    #[must_use]
    pub fn new(
        gate: Gate,
        registry: Rc<Registry>,
        reaper: Rc<Reaper>,
        boot: BootId,
        audit: Audit,
    ) -> Self {
        Self {
            gate,
            registry,
            reaper,
            boot,
            refused: Cell::new(0),
            shared: None,
            slot: None,
            audit,
            changes: RefCell::default(),
            since: Instant::now(),
            connections: Cell::new(0),
        }
    }

    /// And those of a worker in which sessions come and go.
    #[must_use]
    pub fn sharing(self, shared: Rc<Shared>) -> Self {
        Self { shared: Some(shared), ..self }
    }

    /// And those of a worker that waits for its session.
    #[must_use]
    pub fn waiting(self, slot: Rc<Slot>) -> Self {
        Self { slot: Some(slot), ..self }
    }

    /// Answers one call.
    pub async fn call(self: &Rc<Self>, mut request: Request<Incoming>) -> Answer {
        match auth::origin(request.headers()) {
            Ok(None) => {}
            Ok(Some(_)) => return self.page(request),
            Err(refusal) => return self.refuse(request.uri().path(), refusal),
        }
        let path = request.uri().path();
        if matches!(path, "/healthz" | "/readyz") {
            return match (request.method(), path) {
                (&Method::GET, "/healthz") => text(StatusCode::OK, "ok"),
                (&Method::GET, _) => self.readyz().await.unwrap_or_else(ending),
                _ => other_method(),
            };
        }
        if let Some(shared) = &self.shared {
            match sessions::is_meant(&self.gate, shared, &request, unix_seconds()) {
                Ok(true) => return sessions::call(self, shared, request).await,
                Ok(false) => {}
                Err(refusal) => return self.refuse(path, refusal),
            }
        }
        if let Some(slot) = &self.slot {
            match slot::is_meant(self, &request) {
                Ok(true) => return slot::call(self, slot, request).await,
                Ok(false) => {}
                Err(refusal) => return self.refuse(path, refusal),
            }
        }
        if let Some(answer) = attach::reattach(self, &mut request) {
            return answer;
        }
        let Some((method, audiences)) = session::wanted(request.uri().path()) else {
            return text(StatusCode::NOT_FOUND, "no such endpoint");
        };
        let hosted = match self.admit(&request, audiences) {
            Ok(hosted) => hosted,
            Err(refusal) => return self.refuse(request.uri().path(), refusal),
        };
        if *request.method() != method {
            return other_method();
        }
        session::call(self, &hosted, request).await.unwrap_or_else(ending)
    }

    /// A page of a browser, or whoever says to be one: the plain door or the resumable one, and nothing else.
    fn page(&self, request: Request<Incoming>) -> Answer {
        let hosted = match self.admit_page(&request) {
            Ok(hosted) => hosted,
            Err(refusal) => return self.refuse(request.uri().path(), refusal),
        };
        if *request.method() != Method::GET {
            return other_method();
        }
        if Subprotocol::chosen(request.headers()).is_none() {
            let words =
                format!("offer {PLAIN} besides the token: a browser hangs up where none is chosen");
            return text(StatusCode::BAD_REQUEST, &words);
        }
        attach::attach(self, &hosted, request)
    }

    /// The session that a page's token opens. What it is told of its token depends on its origin, not the other way round.
    fn admit_page(&self, request: &Request<Incoming>) -> Result<Rc<Hosted>, Refusal> {
        let headers = request.headers();
        let origin = auth::origin(headers)?.ok_or(Refusal::Origin)?;
        let known = self.registry.all().iter().any(|hosted| hosted.takes(origin));
        if !known || request.uri().path() != "/acp" {
            return Err(Refusal::Origin);
        }
        let claims = self.gate.claims_of_page(headers, unix_seconds())?;
        let hosted = self.hosted(&claims, &[Audience::Attach])?;
        if hosted.takes(origin) { Ok(hosted) } else { Err(Refusal::Origin) }
    }

    /// The session that a token names and opens.
    fn admit(
        &self,
        request: &Request<Incoming>,
        audiences: &[Audience],
    ) -> Result<Rc<Hosted>, Refusal> {
        let claims = self.gate.claims(request.headers(), unix_seconds())?;
        Ok(self.hosted(&claims, audiences)?)
    }

    fn hosted(&self, claims: &Claims, audiences: &[Audience]) -> Result<Rc<Hosted>, TokenError> {
        let hosted = self.registry.get(&claims.session).ok_or(TokenError::Mismatch("session"))?;
        hosted.check(claims, audiences)?;
        Ok(hosted)
    }

    /// The session that a ticket is of, and its epoch.
    pub(super) fn ticket(&self, ticket: &str) -> Option<(Rc<Hosted>, u64)> {
        self.registry
            .all()
            .into_iter()
            .find_map(|hosted| hosted.attachments.epoch(ticket).map(|epoch| (hosted, epoch)))
    }

    fn refuse(&self, endpoint: &str, refusal: Refusal) -> Answer {
        self.count_refused();
        // What else may stand in a path is the caller's.
        let endpoint = if session::wanted(endpoint).is_some() { endpoint } else { "other" };
        self.audit.record(Event::turned_away(endpoint, &refusal.to_string()));
        refused(refusal)
    }

    pub(super) fn count_refused(&self) {
        add(&self.refused, 1);
    }

    /// Where something is changed more often than is written down, the answer to that: whoever has a token could else push everything else out
    /// of the audit log.
    pub(super) fn too_many_changes(&self, endpoint: &'static str) -> Option<Answer> {
        if self.changes.borrow_mut().admit(endpoint, self.uptime_ms()).is_some() {
            return None;
        }
        self.count_refused();
        self.audit.record(Event::turned_away(endpoint, "changed too often"));
        Some(text(StatusCode::TOO_MANY_REQUESTS, "changed too often: try again in a minute"))
    }

    /// A worker of one session is as ready as that session; one of many, as long as it takes sessions in; one that waits, as long as it
    /// does.
    async fn readyz(&self) -> Option<Answer> {
        if let Some(shared) = &self.shared {
            return shared.is_ready().then(|| text(StatusCode::OK, "ready"));
        }
        if let Some(slot) = &self.slot {
            match slot.phase() {
                SlotPhase::Waiting => return Some(text(StatusCode::OK, "waits for a session")),
                SlotPhase::Starting(_) => {
                    return Some(text(StatusCode::SERVICE_UNAVAILABLE, "the session starts"));
                }
                SlotPhase::Ending => return None,
                SlotPhase::Serving(_) => {}
            }
        }
        let hosted = self.registry.all().into_iter().next()?;
        let view = hosted.ask(Order::Look).await?;
        let ended = matches!(view.agent, AgentState::Exited { .. });
        Some(match view.activity {
            Activity::Quiesced => text(StatusCode::SERVICE_UNAVAILABLE, "quiesced"),
            _ if ended => text(StatusCode::SERVICE_UNAVAILABLE, "the agent ended"),
            _ => text(StatusCode::OK, "ready"),
        })
    }

    /// Whether sessions come and go here.
    pub(super) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Numbers connections over all sessions.
    pub(super) fn next_connection(&self) -> u64 {
        let number = self.connections.get() + 1;
        self.connections.set(number);
        number
    }

    /// For how long the worker has served.
    pub(super) fn uptime_ms(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

fn ending() -> Answer {
    text(StatusCode::SERVICE_UNAVAILABLE, "the worker is ending")
}

pub(super) fn other_method() -> Answer {
    text(StatusCode::METHOD_NOT_ALLOWED, "this endpoint has another method")
}

pub(super) fn unix_seconds() -> u64 {
    // Before 1970 every token would be valid for ever; the far future refuses all.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(u64::MAX, |since| since.as_secs())
}
