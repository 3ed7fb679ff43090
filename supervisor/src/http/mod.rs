//! The worker's HTTP endpoints, HTTP/1.1 on one address, behind TLS where the worker was given a certificate.
//!
//! | call | token | answers |
//! |---|---|---|
//! | `GET /healthz` | none | 200 while the process serves |
//! | `GET /readyz` | none | 200 while prompts are taken, else 503 |
//! | `GET /acp` | Attach, or a ticket | 101 and the WebSocket of [`socket`] or [`resumable`] |
//! | `GET /v1/exec` | Exec | 101 and a command of [`crate::exec`] |
//! | `GET /v1/status` | Attach or Control | `WorkerStatus` |
//! | `GET /metrics` | Control | Prometheus text |
//! | `POST /v1/quiesce` | Control | `Quiesce` |
//! | `POST /v1/reopen` | Control | 204 |
//! | `POST /v1/stop` | Control | 202; then the worker ends with code 0 |
//!
//! A worker of many sessions has more ([`sessions`]), for the holder of its own token; so has one that waits for its session
//! ([`slot`]).

mod answer;
pub mod app;
mod attach;
pub mod auth;
mod brought;
pub mod echo;
pub mod metrics;
pub mod pulse;
mod resumable;
mod sender;
mod session;
mod sessions;
mod slot;
pub mod socket;
pub mod upgrade;

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use casemate_tls::server::Acceptor;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use app::App;

/// How long a caller may take for its request's head.
const HEAD: Duration = Duration::from_secs(5);
/// How long to wait after accept(2) failed (out of descriptors): the next try would fail at once again.
const PAUSE: Duration = Duration::from_millis(100);
/// Connections at a time: one client, an allocator, a scraper, and room; of many sessions, as much for each.
const MOST: usize = 64;
const MOST_SHARED: usize = 512;

/// Serves for ever, encrypted where there is a certificate.
pub async fn serve(listener: TcpListener, tls: Option<Acceptor>, app: Rc<App>) {
    let room = Arc::new(Semaphore::new(if app.is_shared() { MOST_SHARED } else { MOST }));
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        let (stream, caller) = match accept(&listener).await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "no connection accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let (app, tls) = (Rc::clone(&app), tls.clone());
        tokio::task::spawn_local(async move {
            let _place = place;
            let Some(tls) = tls else { return answer_calls(stream, caller, app).await };
            match tls.accept(stream, HEAD).await {
                Ok(stream) => answer_calls(stream, caller, app).await,
                Err(error) => tracing::debug!(%error, "no TLS"),
            }
        });
    }
}

/// Whence a connection came.
#[derive(Debug, Clone, Copy)]
struct Caller(IpAddr);

/// Whence a request came.
fn caller(request: &Request<Incoming>) -> IpAddr {
    // Each has it: a request without would be from nobody.
    request.extensions().get().map_or(Ipv6Addr::UNSPECIFIED.into(), |Caller(address)| *address)
}

/// The calls of one connection.
async fn answer_calls(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    caller: Caller,
    app: Rc<App>,
) {
    let service = service_fn(move |mut request: Request<Incoming>| {
        let app = Rc::clone(&app);
        request.extensions_mut().insert(caller);
        async move { Ok::<_, std::convert::Infallible>(app.call(request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "connection ended");
    }
}

/// ACP is small messages in both directions: waiting for more (RFC 9293 section 3.7.4) would only add latency.
async fn accept(listener: &TcpListener) -> io::Result<(TcpStream, Caller)> {
    let (stream, from) = listener.accept().await?;
    let _ = stream.set_nodelay(true);
    Ok((stream, Caller(from.ip())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_do_not_wait_for_more_to_send() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            assert!(accept(&listener).await.unwrap().0.nodelay().unwrap());
        });
    }
}
