//! The few calls that the allocator makes to a worker: status, quiesce, stop. One connection a call, each bounded.

use std::net::SocketAddr;
use std::time::Duration;

use casemate_protocol::worker::{Quiesce, Stop, WorkerStatus};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;

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
    /// Silent.
    #[error("the worker at {0} does not answer")]
    TimedOut(SocketAddr),
    /// Refused.
    #[error("the worker at {address} answered {status}")]
    Refused { address: SocketAddr, status: u16 },
    /// Not in the agreed form.
    #[error("the worker at {address} answered something else: {why}")]
    Garbled { address: SocketAddr, why: String },
}

pub(crate) async fn status(address: SocketAddr, token: &str) -> Result<WorkerStatus, CallError> {
    parse(address, &call(address, Method::GET, "/v1/status", token, Bytes::new(), STATUS).await?)
}

pub(crate) async fn quiesce(address: SocketAddr, token: &str) -> Result<Quiesce, CallError> {
    parse(address, &call(address, Method::POST, "/v1/quiesce", token, Bytes::new(), QUIESCE).await?)
}

pub(crate) async fn stop(address: SocketAddr, token: &str, stop: Stop) -> Result<(), CallError> {
    let body = serde_json::to_vec(&stop).expect("a reason is plain data").into();
    call(address, Method::POST, "/v1/stop", token, body, STOP).await.map(|_| ())
}

fn parse<T: DeserializeOwned>(address: SocketAddr, body: &Bytes) -> Result<T, CallError> {
    serde_json::from_slice(body)
        .map_err(|error| CallError::Garbled { address, why: error.to_string() })
}

async fn call(
    address: SocketAddr,
    method: Method,
    path: &str,
    token: &str,
    body: Bytes,
    limit: Duration,
) -> Result<Bytes, CallError> {
    let exchange = exchange(address, method, path, token, body);
    tokio::time::timeout(limit, exchange).await.map_err(|_| CallError::TimedOut(address))?
}

async fn exchange(
    address: SocketAddr,
    method: Method,
    path: &str,
    token: &str,
    body: Bytes,
) -> Result<Bytes, CallError> {
    let unreachable = |why: String| CallError::Unreachable { address, why };
    let stream = tokio::net::TcpStream::connect(address)
        .await
        .and_then(|stream| stream.set_nodelay(true).map(|()| stream))
        .map_err(|error| unreachable(error.to_string()))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| unreachable(error.to_string()))?;
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, address.to_string())
        .header(AUTHORIZATION, format!("Bearer {token}"))
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(body))
        .expect("constant parts and a base64 token");
    // Driven here and not by a task of its own: it ends with this call.
    let answer = async {
        let response =
            sender.send_request(request).await.map_err(|error| unreachable(error.to_string()))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), BODY_LIMIT)
            .collect()
            .await
            .map_err(|error| unreachable(error.to_string()))?
            .to_bytes();
        if status.is_success() {
            Ok(body)
        } else {
            Err(CallError::Refused { address, status: status.as_u16() })
        }
    };
    tokio::pin!(connection, answer);
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        ended = &mut connection => match ended {
            // The peer has closed after its last byte: the answer is already in the channel.
            Ok(()) => answer.await,
            Err(error) => Err(unreachable(error.to_string())),
        },
    }
}
