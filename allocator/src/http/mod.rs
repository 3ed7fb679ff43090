//! The HTTP door, on loopback only: who may speak at all ([`guard`]) and which call it is ([`route`]).
//!
//! Owns the connections; a call's work goes on when its connection breaks, because the driver runs it in a task of its
//! own.

mod guard;
mod route;

use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::driver::Driver;
pub(crate) use guard::Guard;

/// Clients at once; further ones wait in the kernel's queue.
const CONNECTIONS: usize = 512;
/// How long a caller may take for a request's head, and be silent between two requests.
const HEADERS: Duration = Duration::from_secs(5);

/// Serves until it is aborted.
pub(crate) async fn serve(listener: TcpListener, driver: Arc<Driver>, guard: Guard) {
    let guard = Arc::new(guard);
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    // Dropped with this future: an aborted server leaves no connection behind.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            // Small answers: waiting for an acknowledgement costs 40 ms each.
            Ok((stream, _)) => stream.set_nodelay(true).map_or_else(|_| None, |()| Some(stream)),
            Err(error) => {
                // Out of descriptors: give others a moment instead of spinning.
                tracing::warn!(%error, "accept");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some(stream) = stream else { continue };
        let (driver, guard) = (Arc::clone(&driver), Arc::clone(&guard));
        connections.spawn(async move {
            let service = service_fn(move |request| {
                let (driver, guard) = (Arc::clone(&driver), Arc::clone(&guard));
                async move {
                    Ok::<_, std::convert::Infallible>(route::answer(&driver, &guard, request).await)
                }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADERS)
                .serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection");
            }
            drop(permit);
        });
    }
}
