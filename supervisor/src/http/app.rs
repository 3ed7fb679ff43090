//! Routes: each call checked, then asked of the relay.
//!
//! Owns nothing that changes but the count of connections; what goes on is the relay's to say.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use casemate_protocol::acp::server::Conn;
use casemate_protocol::codes::close;
use casemate_protocol::end::EndReason;
use casemate_protocol::ids::Epoch;
use casemate_protocol::token::Audience;
use casemate_protocol::worker::{Activity, AgentState, Stop, WorkerStatus};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    CONNECTION, CONTENT_TYPE, HeaderValue, SEC_WEBSOCKET_ACCEPT, UPGRADE, WWW_AUTHENTICATE,
};
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

use super::auth::{Gate, Refusal};
use super::metrics::{Metrics, add};
use super::{socket, upgrade};
use crate::patch::PatchError;
use crate::process::reaper::Reaper;
use crate::relay::driver::{FromClient, Order};
use crate::relay::outbox::Outbox;
use crate::relay::view::View;
use crate::words::chain;

type Answer = Response<Full<Bytes>>;

/// Bodies are one small object.
const BODY: usize = 4096;
const BODY_WITHIN: Duration = Duration::from_secs(10);

const ATTACH: &[Audience] = &[Audience::Attach];
const CONTROL: &[Audience] = &[Audience::Control];
const EITHER: &[Audience] = &[Audience::Attach, Audience::Control];

/// The endpoints of a worker.
#[derive(Debug)]
pub struct App {
    /// Who may call.
    pub gate: Gate,
    /// The part of the status that does not change.
    pub fixed: WorkerStatus,
    /// To the relay.
    pub clients: mpsc::Sender<FromClient>,
    /// To the relay.
    pub orders: mpsc::Sender<Order>,
    /// Counters.
    pub metrics: Rc<Metrics>,
    /// Shared by all outboxes.
    pub drained: Rc<Notify>,
    /// For its count of orphans.
    pub reaper: Rc<Reaper>,
    /// When serving began.
    pub since: Instant,
    /// Connections ever made.
    pub connections: Cell<u64>,
}

// === impl App ===

impl App {
    /// Answers one call.
    pub async fn call(self: &Rc<Self>, request: Request<Incoming>) -> Answer {
        let method = request.method().clone();
        let path = request.uri().path().to_owned();
        let wanted = match path.as_str() {
            "/healthz" | "/readyz" => None,
            "/acp" => Some(ATTACH),
            "/v1/status" | "/v1/patch" => Some(EITHER),
            "/metrics" | "/v1/quiesce" | "/v1/reopen" | "/v1/stop" => Some(CONTROL),
            _ => return text(StatusCode::NOT_FOUND, "no such endpoint"),
        };
        if let Err(refusal) = self.admit(&request, wanted) {
            add(&self.metrics.refused, 1);
            return refused(refusal);
        }
        let post = matches!(path.as_str(), "/v1/quiesce" | "/v1/reopen" | "/v1/stop");
        if method != if post { Method::POST } else { Method::GET } {
            return text(StatusCode::METHOD_NOT_ALLOWED, "this endpoint has another method");
        }
        let answer = match path.as_str() {
            "/healthz" => Some(text(StatusCode::OK, "ok")),
            "/readyz" => self.readyz().await,
            "/acp" => Some(self.attach(request)),
            "/v1/status" => self.status().await.map(|status| json(&status)),
            "/v1/patch" => self.ask(Order::Patch).await.map(patch),
            "/metrics" => self.metrics().await,
            "/v1/quiesce" => self.ask(Order::Quiesce).await.map(|outcome| json(&outcome)),
            "/v1/reopen" => self.ask(Order::Reopen).await.map(|()| empty(StatusCode::NO_CONTENT)),
            _ => self.stop(request).await,
        };
        answer.unwrap_or_else(|| text(StatusCode::SERVICE_UNAVAILABLE, "the worker is ending"))
    }

    fn admit(
        &self,
        request: &Request<Incoming>,
        wanted: Option<&[Audience]>,
    ) -> Result<(), Refusal> {
        Gate::check_origin(request.headers())?;
        match wanted {
            Some(wanted) => self.gate.check(request.headers(), wanted, unix_seconds()),
            None => Ok(()),
        }
    }

    /// Asks the relay; `None` where it has ended.
    async fn ask<T>(&self, order: impl FnOnce(oneshot::Sender<T>) -> Order) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.orders.send(order(answer)).await.ok()?;
        answered.await.ok()
    }

    async fn readyz(&self) -> Option<Answer> {
        let view = self.ask(Order::Look).await?;
        let ended = matches!(view.agent, AgentState::Exited { .. });
        Some(match view.activity {
            Activity::Quiesced => text(StatusCode::SERVICE_UNAVAILABLE, "quiesced"),
            _ if ended => text(StatusCode::SERVICE_UNAVAILABLE, "the agent ended"),
            _ => text(StatusCode::OK, "ready"),
        })
    }

    async fn status(&self) -> Option<WorkerStatus> {
        let View { agent, activity, epoch, attachments, saved, evidence } =
            self.ask(Order::Look).await?;
        Some(WorkerStatus {
            agent,
            activity,
            epoch: Epoch(epoch),
            attachments,
            acp_session: saved.acp_session,
            prompted: saved.prompted,
            evidence,
            ..self.fixed.clone()
        })
    }

    async fn metrics(&self) -> Option<Answer> {
        let status = self.status().await?;
        let uptime = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let rendered = self.metrics.render(&status, self.reaper.orphans(), uptime);
        let mut answer = Response::new(Full::from(rendered));
        let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        answer.headers_mut().insert(CONTENT_TYPE, kind);
        Some(answer)
    }

    async fn stop(&self, request: Request<Incoming>) -> Option<Answer> {
        let body =
            tokio::time::timeout(BODY_WITHIN, Limited::new(request.into_body(), BODY).collect());
        let Ok(Ok(body)) = body.await else {
            return Some(text(StatusCode::BAD_REQUEST, "the body is too long or did not come"));
        };
        let stop: Stop = match serde_json::from_slice(&body.to_bytes()) {
            Ok(stop) => stop,
            Err(error) => return Some(text(StatusCode::BAD_REQUEST, &error.to_string())),
        };
        let (code, words) = close_for(stop.reason);
        self.orders.send(Order::Stop(code, words.to_owned())).await.ok()?;
        Some(empty(StatusCode::ACCEPTED))
    }

    fn attach(self: &Rc<Self>, mut request: Request<Incoming>) -> Answer {
        let accept = match upgrade::accept(request.headers()) {
            Ok(accept) => accept,
            Err(error @ upgrade::NoUpgrade::Key) => {
                return text(StatusCode::BAD_REQUEST, &error.to_string());
            }
            Err(error) => {
                let mut answer = text(StatusCode::UPGRADE_REQUIRED, &error.to_string());
                answer.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
                answer
                    .headers_mut()
                    .insert("sec-websocket-version", HeaderValue::from_static("13"));
                return answer;
            }
        };
        let number = self.connections.get() + 1;
        self.connections.set(number);
        let app = Rc::clone(self);
        tokio::task::spawn_local(async move {
            match hyper::upgrade::on(&mut request).await {
                Ok(stream) => {
                    let outbox = Outbox::new(Rc::clone(&app.drained));
                    socket::serve(stream, Conn(number), outbox, app.clients.clone()).await;
                }
                Err(error) => tracing::debug!(%error, "no upgrade"),
            }
        });
        let mut answer = empty(StatusCode::SWITCHING_PROTOCOLS);
        let headers = answer.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        let texts =
            [(SEC_WEBSOCKET_ACCEPT, accept), (ACP_CONNECTION_ID, self.connection_id(number))];
        for (name, value) in texts {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(name, value);
            }
        }
        answer
    }

    fn connection_id(&self, number: u64) -> String {
        format!("{}-{number}", self.fixed.boot)
    }
}

const ACP_CONNECTION_ID: hyper::header::HeaderName =
    hyper::header::HeaderName::from_static("acp-connection-id");

/// What clients are told when the worker is stopped.
#[must_use]
pub fn close_for(reason: EndReason) -> (u16, &'static str) {
    match reason {
        EndReason::Idle => {
            (close::IDLE, "stopped for being idle: attach again with the next prompt")
        }
        EndReason::Capacity => {
            (close::IDLE, "stopped to make room: attach again with the next prompt")
        }
        EndReason::Close => (close::GOING_AWAY, "the session was closed"),
        EndReason::Reset => (close::GOING_AWAY, "the session was reset"),
        EndReason::Hung => (close::GOING_AWAY, "the agent did not obey and was stopped"),
        _ => (close::GOING_AWAY, "the worker was stopped"),
    }
}

fn unix_seconds() -> u64 {
    // Before 1970 every token would be valid for ever; the far future refuses all.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(u64::MAX, |since| since.as_secs())
}

fn refused(refusal: Refusal) -> Answer {
    let status = StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::FORBIDDEN);
    let mut answer = text(status, &refusal.to_string());
    if status == StatusCode::UNAUTHORIZED {
        answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    answer
}

fn text(status: StatusCode, words: &str) -> Answer {
    let mut answer = Response::new(Full::from(format!("{words}\n")));
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}

fn patch(made: Result<Vec<u8>, PatchError>) -> Answer {
    match made {
        Ok(bytes) => {
            let mut answer = Response::new(Full::from(bytes));
            answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/x-patch"));
            answer
        }
        Err(error @ PatchError::TooLong) => text(StatusCode::PAYLOAD_TOO_LARGE, &error.to_string()),
        Err(error) => text(StatusCode::UNPROCESSABLE_ENTITY, &chain(&error)),
    }
}

fn empty(status: StatusCode) -> Answer {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = status;
    answer
}

fn json(value: &impl serde::Serialize) -> Answer {
    match serde_json::to_vec(value) {
        Ok(bytes) => {
            let mut answer = Response::new(Full::from(bytes));
            answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            answer
        }
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}
