//! The few calls that the allocator makes to a worker: status, quiesce, stop; and to one that sessions share: begin, list, end.
//! One connection a call, each bounded.

use std::net::SocketAddr;
use std::time::Duration;

use casemate_allocator_core::record::Serving;
use casemate_protocol::ids::SessionId;
use casemate_protocol::sharing::{self, EndSession, SessionConfig, SessionList};
use casemate_protocol::worker::{Keys, Quiesce, StartError, StartEvent, Stop, WorkerStatus};
use casemate_tls::client::{NotConnected, NotTrusted, secure};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const STATUS: Duration = Duration::from_secs(3);
/// Reads the worktree: `git status` of a large repository.
const QUIESCE: Duration = Duration::from_secs(120);
const STOP: Duration = Duration::from_secs(10);
const BODY_LIMIT: usize = 1024 * 1024;

/// A worker did not answer as it should.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// Not reached, or cut off.
    #[error("the worker at {address} is not to be reached: {why}")]
    Unreachable { address: SocketAddr, why: String },
    /// Somebody else is there. It was told nothing.
    #[error("whoever answers at {address} is not the worker: {why}")]
    NotTrusted { address: SocketAddr, why: NotTrusted },
    /// Silent.
    #[error("the worker at {0} does not answer")]
    TimedOut(SocketAddr),
    /// Refused.
    #[error("the worker at {address} answered {status}")]
    Refused { address: SocketAddr, status: u16, body: Bytes },
    /// Not in the agreed form.
    #[error("the worker at {address} answered something else: {why}")]
    Garbled { address: SocketAddr, why: String },
}

/// A session was not taken in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BeginError {
    /// The worker's word on whom it takes.
    #[error("{0}")]
    Refused(sharing::Refusal),
    /// It was begun and failed.
    #[error("{0}")]
    Start(StartError),
    /// Nothing moved for too long.
    #[error("the session made no progress for {seconds} s (last: {last})")]
    Stuck { seconds: u64, last: String },
    /// The call itself.
    #[error(transparent)]
    Call(#[from] CallError),
}

pub(crate) async fn status(worker: &Serving, token: &str) -> Result<WorkerStatus, CallError> {
    parse(
        worker.address,
        &call(worker, Method::GET, "/v1/status", token, Bytes::new(), STATUS).await?,
    )
}

pub(crate) async fn quiesce(worker: &Serving, token: &str) -> Result<Quiesce, CallError> {
    parse(
        worker.address,
        &call(worker, Method::POST, "/v1/quiesce", token, Bytes::new(), QUIESCE).await?,
    )
}

pub(crate) async fn stop(worker: &Serving, token: &str, stop: Stop) -> Result<(), CallError> {
    let body = serde_json::to_vec(&stop).expect("a reason is plain data").into();
    call(worker, Method::POST, "/v1/stop", token, body, STOP).await.map(|_| ())
}

/// Tells a worker what keys to check tokens with.
pub(crate) async fn keys(worker: &Serving, token: &str, keys: &Keys) -> Result<(), CallError> {
    let body = serde_json::to_vec(keys).expect("keys are plain data").into();
    call(worker, Method::POST, "/v1/keys", token, body, STOP).await.map(|_| ())
}

/// Asks a worker that sessions share for one more. `patience` is the longest time without a sign of progress.
pub(crate) async fn begin(
    worker: &Serving,
    token: &str,
    session: &SessionConfig,
    patience: Duration,
    progress: impl Fn(&str),
) -> Result<(), BeginError> {
    let body = serde_json::to_vec(session).expect("a configuration is plain data").into();
    let address = worker.address;
    let head = timeout(patience, send(worker, Method::POST, "/v1/sessions", token, body));
    let head = head.await.map_err(|_| CallError::TimedOut(address))?;
    let (answer, _connection) = head?;
    if !answer.status().is_success() {
        let status = answer.status().as_u16();
        let body = timeout(STATUS, collect(address, answer.into_body()))
            .await
            .map_err(|_| CallError::TimedOut(address))??;
        return Err(match serde_json::from_slice(&body) {
            Ok(refusal) => BeginError::Refused(refusal),
            Err(_) => CallError::Refused { address, status, body }.into(),
        });
    }
    let mut lines = answer.into_body();
    let (mut text, mut last) = (Vec::new(), "nothing".to_owned());
    loop {
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            match serde_json::from_slice(&line) {
                Ok(StartEvent::Progress { what }) => {
                    progress(&what);
                    last = what;
                }
                Ok(StartEvent::Ready { .. }) => return Ok(()),
                Ok(StartEvent::Failed { error }) => return Err(BeginError::Start(error)),
                Err(error) => {
                    return Err(CallError::Garbled { address, why: error.to_string() }.into());
                }
            }
        }
        let frame = timeout(patience, lines.frame()).await;
        let frame = frame
            .map_err(|_| BeginError::Stuck { seconds: patience.as_secs(), last: last.clone() })?;
        let unreachable = |why: String| CallError::Unreachable { address, why };
        let frame = frame.ok_or_else(|| unreachable("it broke off".to_owned()))?;
        let frame = frame.map_err(|error| unreachable(error.to_string()))?;
        if let Ok(data) = frame.into_data() {
            text.extend_from_slice(&data);
        }
        if text.len() > BODY_LIMIT {
            return Err(CallError::Garbled { address, why: "a line without an end".into() }.into());
        }
    }
}

/// What a worker that sessions share hosts.
pub(crate) async fn list(worker: &Serving, token: &str) -> Result<SessionList, CallError> {
    let none = Bytes::new();
    parse(worker.address, &call(worker, Method::GET, "/v1/sessions", token, none, STATUS).await?)
}

/// Ends one session of a worker that sessions share, and nothing else; returns when its last process is gone. One that it neither
/// hosts nor stores is ended already.
pub(crate) async fn end(
    worker: &Serving,
    token: &str,
    session: &SessionId,
    wanted: EndSession,
    limit: Duration,
) -> Result<(), CallError> {
    let path = format!("/v1/sessions/{session}?{}", wanted.to_query());
    match call(worker, Method::DELETE, &path, token, Bytes::new(), limit).await {
        Err(CallError::Refused { status: 404, .. }) => Ok(()),
        outcome => outcome.map(|_| ()),
    }
}

fn parse<T: DeserializeOwned>(address: SocketAddr, body: &Bytes) -> Result<T, CallError> {
    serde_json::from_slice(body)
        .map_err(|error| CallError::Garbled { address, why: error.to_string() })
}

async fn call(
    worker: &Serving,
    method: Method,
    path: &str,
    token: &str,
    body: Bytes,
    limit: Duration,
) -> Result<Bytes, CallError> {
    let exchange = exchange(worker, method, path, token, body);
    timeout(limit, exchange).await.map_err(|_| CallError::TimedOut(worker.address))?
}

async fn exchange(
    worker: &Serving,
    method: Method,
    path: &str,
    token: &str,
    body: Bytes,
) -> Result<Bytes, CallError> {
    let (answer, _connection) = send(worker, method, path, token, body).await?;
    let address = worker.address;
    let status = answer.status();
    let body = collect(address, answer.into_body()).await?;
    if status.is_success() {
        Ok(body)
    } else {
        Err(CallError::Refused { address, status: status.as_u16(), body })
    }
}

async fn collect(address: SocketAddr, body: Incoming) -> Result<Bytes, CallError> {
    let whole = Limited::new(body, BODY_LIMIT).collect().await;
    let whole =
        whole.map_err(|error| CallError::Unreachable { address, why: error.to_string() })?;
    Ok(whole.to_bytes())
}

/// The connection of a call: it ends with it.
struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends a request; the answer's head, and what has to be kept while its body is read.
async fn send(
    worker: &Serving,
    method: Method,
    path: &str,
    token: &str,
    body: Bytes,
) -> Result<(Response<Incoming>, Connection), CallError> {
    let address = worker.address;
    let unreachable = |why: String| CallError::Unreachable { address, why };
    let stream = tokio::net::TcpStream::connect(address)
        .await
        .and_then(|stream| stream.set_nodelay(true).map(|()| stream))
        .map_err(|error| unreachable(error.to_string()))?;
    let stream = secure(stream, worker.pin.as_ref()).await.map_err(|error| match error {
        NotConnected::Io(error) => unreachable(error.to_string()),
        NotConnected::NotTrusted(why) => CallError::NotTrusted { address, why },
    })?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| unreachable(error.to_string()))?;
    let connection = Connection(tokio::spawn(async move {
        if let Err(error) = connection.await {
            // Whoever waits for the answer hears of it as well.
            tracing::debug!(%error, "a connection to a worker");
        }
    }));
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, address.to_string())
        .header(AUTHORIZATION, format!("Bearer {token}"))
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(body))
        .expect("constant parts and a base64 token");
    let answer = sender.send_request(request).await;
    Ok((answer.map_err(|error| unreachable(error.to_string()))?, connection))
}
