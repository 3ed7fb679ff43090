//! The endpoints of a worker of many sessions, for the holder of its own token.
//!
//! | call | answers |
//! |---|---|
//! | `POST /v1/sessions` | JSON lines of `StartEvent`: `progress`, then `ready` or `failed`; asked again in the same words, the same |
//! | `GET /v1/sessions` | `SessionList` |
//! | `DELETE /v1/sessions/{id}?storage=keep&generation=N` | `SessionEnded`, when the session's last process is gone |
//! | `GET /v1/status` | `SharedStatus` |
//! | `GET /metrics` | Prometheus text: sums over all sessions, none by name |
//! | `POST /v1/keys` | 204; tokens are checked with these keys from now on |
//! | `POST /v1/stop` | 202; every session is ended, then the worker |
//!
//! A refusal is a `sharing::Refusal` in JSON, with its status. A session's token opens none of these.

use std::rc::Rc;

use casemate_protocol::ids::SessionId;
use casemate_protocol::sharing::{EndSession, Refusal as NotTaken, SessionConfig, SessionList};
use casemate_protocol::token::TokenError;
use casemate_protocol::worker::Stop;
use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};

use super::answer::{self, Answer, empty, json, lines, prometheus, text};
use super::app::{App, other_method};
use super::auth::{Gate, Refusal};
use super::{metrics, session};
use crate::shared::Shared;

/// As a worker's whole configuration.
const BODY: usize = 4 * 1024 * 1024;

const SESSIONS: &str = "/v1/sessions";

/// Whether a call is for the worker itself, and from whoever may call it.
///
/// # Errors
/// [`Refusal`]: of a worker's own token that is another's, and of a session's token where only the worker's own will do.
pub(super) fn is_meant(
    gate: &Gate,
    shared: &Shared,
    request: &Request<Incoming>,
    now: u64,
) -> Result<bool, Refusal> {
    let is_workers = gate.is_workers(request.headers(), &shared.config.user, now)?;
    if !is_workers && request.uri().path().starts_with(SESSIONS) {
        // Whose it is decides what it is told: nothing to whoever has no good token.
        gate.claims(request.headers(), now)?;
        return Err(TokenError::Mismatch("audience").into());
    }
    Ok(is_workers)
}

/// Answers a call that [`is_meant`].
pub(super) async fn call(app: &App, shared: &Rc<Shared>, request: Request<Incoming>) -> Answer {
    let path = request.uri().path().to_owned();
    let below = path.strip_prefix(SESSIONS).and_then(|rest| rest.strip_prefix('/'));
    match (request.method(), path.as_str(), below) {
        (&Method::POST, SESSIONS, _) => begin(shared, request).await,
        (&Method::GET, SESSIONS, _) => json(&SessionList { sessions: shared.list().await }),
        (&Method::DELETE, _, Some(session)) => end(shared, session, request.uri().query()).await,
        (&Method::GET, "/v1/status", _) => json(&shared.status().await),
        (&Method::GET, "/metrics", _) => {
            let list = shared.list().await;
            let live = shared.registry.all();
            let live = live.iter().map(|hosted| &*hosted.metrics);
            let sum = metrics::Metrics::default();
            live.chain([&shared.counted]).for_each(|counted| sum.absorb(counted));
            let (orphans, uptime) = (app.reaper.orphans(), app.uptime_ms());
            let text = sum.render_shared(&list, app.refused.get(), orphans, uptime);
            prometheus(text + &metrics::audit_lost(app.audit.lost()))
        }
        (&Method::POST, "/v1/keys", _) => session::keys(app, request).await,
        (&Method::POST, "/v1/stop", _) => match answer::body::<Stop>(request, BODY).await {
            Ok(_) => {
                shared.stop();
                empty(StatusCode::ACCEPTED)
            }
            Err(answer) => answer,
        },
        (_, SESSIONS | "/v1/status" | "/metrics" | "/v1/keys" | "/v1/stop", _)
        | (_, _, Some(_)) => other_method(),
        _ => text(StatusCode::NOT_FOUND, "no such endpoint for the worker's own token"),
    }
}

async fn begin(shared: &Rc<Shared>, request: Request<Incoming>) -> Answer {
    let asked: SessionConfig = match answer::body(request, BODY).await {
        Ok(asked) => asked,
        Err(answer) => return answer,
    };
    match shared.begin(asked) {
        Ok(transcript) => lines(transcript.lines()),
        Err(refusal) => refused(&refusal),
    }
}

async fn end(shared: &Rc<Shared>, session: &str, query: Option<&str>) -> Answer {
    let session: SessionId = match session.parse() {
        Ok(session) => session,
        Err(error) => return text(StatusCode::BAD_REQUEST, &format!("{error}")),
    };
    let wanted = match EndSession::from_query(query.unwrap_or_default()) {
        Ok(wanted) => wanted,
        Err(error) => return text(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    match shared.end(&session, wanted).await {
        Ok(ended) => json(&ended),
        Err(refusal) => refused(&refusal),
    }
}

fn refused(refusal: &NotTaken) -> Answer {
    let mut answer = json(refusal);
    *answer.status_mut() =
        StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer
}
