//! The endpoints of a worker that waits for its session: the bind, and what the holder of the slot's own token may ask.
//!
//! A bind carries its own proof: its body is signed, and no header adds to it. A session's token opens none of these, the slot's own
//! nothing of a session.

use std::rc::Rc;

use casemate_protocol::audit::Event;
use casemate_protocol::slot::{BIND, BindRefusal};
use casemate_protocol::worker::Stop;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};

use super::answer::{self, Answer, empty, json, lines, text};
use super::app::{App, other_method, unix_seconds};
use super::{caller, session};
use crate::slot::Slot;

/// A bind holds a command line, its environment and a URL; in base64.
const BODY: usize = 256 * 1024;

/// Whether a call is for the slot; its session's are not.
///
/// # Errors
/// [`super::auth::Refusal`] of a slot's own token that is another's.
pub(super) fn is_meant(
    app: &App,
    request: &Request<Incoming>,
) -> Result<bool, super::auth::Refusal> {
    Ok(request.uri().path() == BIND || app.gate.is_slots(request.headers(), unix_seconds())?)
}

/// Answers a call that [`is_meant`].
pub(super) async fn call(app: &App, slot: &Rc<Slot>, request: Request<Incoming>) -> Answer {
    match (request.method(), request.uri().path()) {
        (&Method::POST, BIND) => bind(app, slot, request).await,
        (&Method::GET, "/v1/status") => json(&slot.status()),
        (&Method::POST, "/v1/keys") => session::keys(app, request).await,
        (&Method::POST, "/v1/stop") => match answer::body::<Stop>(request, BODY).await {
            Ok(_) => {
                slot.ask_to_stop();
                empty(StatusCode::ACCEPTED)
            }
            Err(answer) => answer,
        },
        (_, BIND | "/v1/status" | "/v1/keys" | "/v1/stop") => other_method(),
        _ => text(StatusCode::NOT_FOUND, "no such endpoint for a slot's own token"),
    }
}

async fn bind(app: &App, slot: &Rc<Slot>, request: Request<Incoming>) -> Answer {
    let from = caller(&request);
    let body = Limited::new(request.into_body(), BODY).collect();
    let Ok(Ok(body)) = tokio::time::timeout(answer::BODY_WITHIN, body).await else {
        return text(StatusCode::BAD_REQUEST, "the body is too long or did not come");
    };
    let body = body.to_bytes();
    let signed = std::str::from_utf8(&body).map_err(|_| BindRefusal::Malformed);
    let bound = signed
        .and_then(|signed| Ok(app.gate.bind(signed.trim(), unix_seconds())?))
        .and_then(|bind| slot.bind(bind, from));
    match bound {
        Ok(told) => lines(told.lines()),
        Err(refusal) => {
            app.count_refused();
            app.audit.record(Event::turned_away(BIND, &refusal.to_string()));
            let mut answer = json(&refusal);
            *answer.status_mut() =
                StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::FORBIDDEN);
            answer
        }
    }
}
