//! Method and path to call, result to status and JSON.

use std::sync::Arc;
use std::time::Duration;

use casemate_protocol::api::{Allocate, ApiError, End, ErrorKind, Health};
use casemate_protocol::audit::Event;
use casemate_protocol::ids::SessionId;
use casemate_protocol::proof::Nonce;
use casemate_protocol::token::Audience;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE};
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::guard::{Denied, Guard};
use crate::driver::Driver;
use crate::refusal::{IntoApi as _, refuse};

/// An intent is small; a stored handshake lists an agent's models and commands.
const BODY_LIMIT: usize = 1024 * 1024;
const BODY_WITHIN: Duration = Duration::from_secs(10);

/// Answers one request.
pub(crate) async fn answer(
    driver: &Arc<Driver>,
    guard: &Guard,
    request: Request<Incoming>,
) -> Response<Full<Bytes>> {
    if let Err(denied) = Guard::check_origin(request.headers()) {
        return deny(driver, denied);
    }
    if request.uri().path() == "/healthz" && request.method() == Method::GET {
        return health(guard, request.uri().query());
    }
    if let Err(denied) = guard.check_token(request.headers()) {
        return deny(driver, denied);
    }
    match route(driver, request).await {
        Ok((status, body)) => reply(status, body),
        Err(error) => {
            let status = StatusCode::from_u16(error.kind.status())
                .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            reply(status, json(&error))
        }
    }
}

/// Whoever asks with a nonce learns that this is the allocator of the file that he read: `casemate_protocol::proof`.
fn health(guard: &Guard, query: Option<&str>) -> Response<Full<Bytes>> {
    let Some(nonce) = query.and_then(|query| query.strip_prefix("nonce=")) else {
        return reply(StatusCode::OK, json(&Health { ok: true, proof: None }));
    };
    match nonce.parse::<Nonce>() {
        Ok(nonce) => {
            let proof = Some(guard.prove(nonce));
            reply(StatusCode::OK, json(&Health { ok: true, proof }))
        }
        Err(error) => reply(StatusCode::BAD_REQUEST, json(&refuse(ErrorKind::Invalid, error))),
    }
}

async fn route(
    driver: &Arc<Driver>,
    request: Request<Incoming>,
) -> Result<(StatusCode, Bytes), ApiError> {
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let ok = StatusCode::OK;
    match (&method, parts.as_slice()) {
        (&Method::POST, ["v1", "sessions"]) => {
            let body: Allocate = read(request).await?;
            let attached = driver.allocate(body).await?;
            Ok((if attached.created { StatusCode::CREATED } else { ok }, json(&attached)))
        }
        (&Method::GET, ["v1", "sessions"]) => Ok((ok, json(&driver.list()?))),
        (&Method::GET, ["v1", "sessions", id]) => Ok((ok, json(&driver.show(&session(id)?)?))),
        (&Method::POST, ["v1", "sessions", id, "resume"]) => {
            Ok((ok, json(&driver.resume(session(id)?, Audience::Attach).await?)))
        }
        (&Method::POST, ["v1", "sessions", id, "exec"]) => {
            Ok((ok, json(&driver.resume(session(id)?, Audience::Exec).await?)))
        }
        (&Method::POST, ["v1", "sessions", id, "stop"]) => {
            let id = session(id)?;
            let body: End = read(request).await?;
            Ok((ok, json(&driver.end(id, body, false).await?)))
        }
        (&Method::POST, ["v1", "sessions", id, "close"]) => {
            let id = session(id)?;
            let body: End = read(request).await?;
            Ok((ok, json(&driver.end(id, body, true).await?)))
        }
        (&Method::POST, ["v1", "keys", "rotate"]) => Ok((ok, json(&driver.rotate_key().await?))),
        (&Method::GET, ["v1", "handshakes", key]) => {
            let key = handshake_key(key)?;
            let found = driver.store().handshake(key).map_err(|error| error.into_api())?;
            found
                .map(|value| (ok, Bytes::from(value)))
                .ok_or_else(|| refuse(ErrorKind::NotFound, "no handshake is stored under this key"))
        }
        (&Method::PUT, ["v1", "handshakes", key]) => {
            let key = handshake_key(key)?.to_owned();
            let value = bytes(request).await?;
            serde_json::from_slice::<&serde_json::value::RawValue>(&value)
                .map_err(|error| refuse(ErrorKind::Invalid, format!("not JSON: {error}")))?;
            let store = Arc::clone(driver.store());
            tokio::task::spawn_blocking(move || store.put_handshake(&key, &value))
                .await
                .map_err(|error| refuse(ErrorKind::Internal, error))?
                .map_err(|error| error.into_api())?;
            Ok((StatusCode::NO_CONTENT, Bytes::new()))
        }
        _ => Err(refuse(ErrorKind::NotFound, format!("no call {method} {path}"))),
    }
}

fn session(text: &str) -> Result<SessionId, ApiError> {
    text.parse().map_err(|error| refuse(ErrorKind::Invalid, error))
}

fn handshake_key(key: &str) -> Result<&str, ApiError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if key.is_empty() || key.len() > 128 || !key.bytes().all(plain) {
        let message = "a handshake key is 1 to 128 letters, digits, `-`, `_` and `.`";
        return Err(refuse(ErrorKind::Invalid, message));
    }
    Ok(key)
}

async fn bytes(request: Request<Incoming>) -> Result<Bytes, ApiError> {
    let body = Limited::new(request.into_body(), BODY_LIMIT).collect();
    let body = tokio::time::timeout(BODY_WITHIN, body).await.map_err(|_| {
        let message = format!("the body did not come within {} s", BODY_WITHIN.as_secs());
        refuse(ErrorKind::Invalid, message)
    })?;
    let body = body.map_err(|error| {
        refuse(ErrorKind::Invalid, format!("the body could not be read (at most 1 MiB): {error}"))
    })?;
    Ok(body.to_bytes())
}

async fn read<T: DeserializeOwned>(request: Request<Incoming>) -> Result<T, ApiError> {
    let body = bytes(request).await?;
    serde_json::from_slice(&body)
        .map_err(|error| refuse(ErrorKind::Invalid, format!("the body is wrong: {error}")))
}

fn json(value: &impl Serialize) -> Bytes {
    Bytes::from(serde_json::to_vec(value).expect("answers are plain data"))
}

fn deny(driver: &Driver, denied: Denied) -> Response<Full<Bytes>> {
    let (status, message) = match denied {
        Denied::Origin => (StatusCode::FORBIDDEN, "web pages may not call the allocator"),
        Denied::Host => (StatusCode::FORBIDDEN, "the Host header must name loopback"),
        Denied::Token => {
            (StatusCode::UNAUTHORIZED, "wrong or no bearer token; read it from run/allocator.json")
        }
    };
    driver.audit().record(Event::turned_away("allocator", message));
    reply(status, json(&refuse(ErrorKind::Unauthorized, message)))
}

fn reply(status: StatusCode, body: Bytes) -> Response<Full<Bytes>> {
    Response::builder()
        .status(status)
        .header(CONTENT_TYPE, "application/json")
        // Tokens travel in answers.
        .header(CACHE_CONTROL, "no-store")
        .body(Full::new(body))
        .expect("constant headers")
}
