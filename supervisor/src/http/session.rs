//! The endpoints of one session: each call asked of its relay.

use std::rc::Rc;

use casemate_protocol::audit::Event;
use casemate_protocol::codes::close;
use casemate_protocol::end::EndReason;
use casemate_protocol::token::{Audience, TokenError};
use casemate_protocol::worker::{Activity, Keys, Stop};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, UPGRADE};
use hyper::{Method, Request, StatusCode};

use super::answer::{self, Answer, empty, json, patch, prometheus, refused, text};
use super::app::App;
use super::auth::Refusal;
use super::metrics::{add, audit_lost};
use super::{attach, upgrade};
use crate::exec;
use crate::hosted::live::Hosted;
use crate::relay::driver::Order;

/// Bodies are one small object.
const BODY: usize = 4096;

const ATTACH: &[Audience] = &[Audience::Attach];
const CONTROL: &[Audience] = &[Audience::Control];
const EXEC: &[Audience] = &[Audience::Exec];
const EITHER: &[Audience] = &[Audience::Attach, Audience::Control];

/// Who may call this, and how; `None` where there is no such endpoint.
pub(super) fn wanted(path: &str) -> Option<(Method, &'static [Audience])> {
    Some(match path {
        "/acp" => (Method::GET, ATTACH),
        "/v1/exec" => (Method::GET, EXEC),
        "/v1/status" | "/v1/patch" | "/v1/learned" => (Method::GET, EITHER),
        "/metrics" => (Method::GET, CONTROL),
        "/v1/quiesce" | "/v1/reopen" | "/v1/stop" | "/v1/keys" => (Method::POST, CONTROL),
        _ => return None,
    })
}

/// Answers a call that may be made; `None` where the session's generation is over.
pub(super) async fn call(
    app: &Rc<App>,
    hosted: &Rc<Hosted>,
    request: Request<Incoming>,
) -> Option<Answer> {
    match request.uri().path() {
        "/acp" => Some(attach::attach(app, hosted, request)),
        "/v1/exec" => exec(hosted, request).await,
        "/v1/status" => hosted.status().await.map(|status| json(&status)),
        "/v1/patch" => hosted.ask(Order::Patch).await.map(patch),
        "/v1/learned" => Some(learned(hosted)),
        "/metrics" => metrics(app, hosted).await,
        "/v1/quiesce" => hosted.ask(Order::Quiesce).await.map(|outcome| json(&outcome)),
        "/v1/reopen" => hosted.ask(Order::Reopen).await.map(|()| empty(StatusCode::NO_CONTENT)),
        "/v1/keys" if app.is_shared() => {
            Some(refused(Refusal::Token(TokenError::Mismatch("audience"))))
        }
        "/v1/keys" => Some(keys(app, request).await),
        _ => stop(hosted, request).await,
    }
}

/// Takes other keys to check tokens with.
pub(super) async fn keys(app: &App, request: Request<Incoming>) -> Answer {
    let keys: Keys = match answer::body(request, BODY).await {
        Ok(keys) => keys,
        Err(answer) => return answer,
    };
    if keys.accept.is_empty() || keys.accept.len() > Keys::MOST {
        let words = format!("accept holds one to {} keys", Keys::MOST);
        return text(StatusCode::BAD_REQUEST, &words);
    }
    if app.gate.accepts(&keys.accept) {
        return empty(StatusCode::NO_CONTENT);
    }
    if let Some(answer) = app.too_many_changes("/v1/keys") {
        return answer;
    }
    let names: Vec<String> = keys.accept.iter().map(|key| String::from(*key)).collect();
    app.audit.record(Event::keys_in_force(&names));
    app.gate.accept(keys.accept);
    empty(StatusCode::NO_CONTENT)
}

/// The policy that would have let the session do what it did so far.
fn learned(hosted: &Hosted) -> Answer {
    match hosted.learner.as_ref().map(|learner| learner.proposal()) {
        None => text(StatusCode::NOT_FOUND, "this session is not learned from"),
        Some(Err(why)) => text(StatusCode::INTERNAL_SERVER_ERROR, &why),
        Some(Ok((policy, _))) => text(StatusCode::OK, &policy),
    }
}

async fn metrics(app: &App, hosted: &Hosted) -> Option<Answer> {
    let status = hosted.status().await?;
    let rendered =
        hosted.metrics.render(&status, app.refused.get(), app.reaper.orphans(), app.uptime_ms());
    Some(prometheus(rendered + &audit_lost(hosted.audit.lost())))
}

async fn stop(hosted: &Hosted, request: Request<Incoming>) -> Option<Answer> {
    let stop: Stop = match answer::body(request, BODY).await {
        Ok(stop) => stop,
        Err(answer) => return Some(answer),
    };
    let (code, words) = close_for(stop.reason);
    hosted.orders.send(Order::Stop(code, words.to_owned())).await.ok()?;
    Some(empty(StatusCode::ACCEPTED))
}

/// A command beside the agent. Held before the look: a quiesce either came first and is seen, or finds it running.
async fn exec(hosted: &Hosted, mut request: Request<Incoming>) -> Option<Answer> {
    let accept = match upgrade::accept(request.headers()) {
        Ok(accept) => accept,
        Err(error) => return Some(no_upgrade(error)),
    };
    let Some(hold) = hosted.exec.running.enter() else {
        return Some(text(StatusCode::TOO_MANY_REQUESTS, "too many commands run: try again"));
    };
    if hosted.ask(Order::Look).await?.activity == Activity::Quiesced {
        return Some(text(StatusCode::SERVICE_UNAVAILABLE, "quiesced: resume the session"));
    }
    add(&hosted.metrics.execs, 1);
    let door = Rc::clone(&hosted.exec);
    tokio::task::spawn_local(async move {
        match hyper::upgrade::on(&mut request).await {
            Ok(stream) => exec::serve::serve(stream, door, hold).await,
            Err(error) => tracing::debug!(%error, "no upgrade"),
        }
    });
    Some(switching(&accept))
}

/// The answer to a handshake, with the value of [`upgrade::accept`].
pub(super) fn switching(accept: &str) -> Answer {
    let mut answer = empty(StatusCode::SWITCHING_PROTOCOLS);
    let headers = answer.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(value) = HeaderValue::from_str(accept) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, value);
    }
    answer
}

pub(super) fn no_upgrade(error: upgrade::NoUpgrade) -> Answer {
    if error == upgrade::NoUpgrade::Key {
        return text(StatusCode::BAD_REQUEST, &error.to_string());
    }
    let mut answer = text(StatusCode::UPGRADE_REQUIRED, &error.to_string());
    answer.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
    answer.headers_mut().insert("sec-websocket-version", HeaderValue::from_static("13"));
    answer
}

/// What clients are told when the worker is stopped.
pub(super) fn close_for(reason: EndReason) -> (u16, &'static str) {
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
