//! A proxy before the API server that counts what changes something and lets it go wrong.
//!
//! It listens on loopback without TLS, for one client that is under test, and asks the real server by TLS in that client's
//! name: whatever credential comes with a request goes on. It speaks HTTP/1.1 and knows watches by their query; exec, attach and
//! logs that are followed do not go through it.
//!
//! Owns a thread, which ends with it.

mod fault;
#[cfg(test)]
mod tests;
mod upstream;
mod watch;

pub use fault::{Armed, Fault, Mutation, Watches};

use std::convert::Infallible;
use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::sync::{mpsc, oneshot};

use crate::Cluster;
use fault::{is_safe, status_body};
use upstream::{Error, Upstream};
use watch::Events;

/// Longer than any client waits.
const FOREVER: Duration = Duration::from_secs(3600);

type Body = BoxBody<Bytes, Error>;
/// Ends the client under test, at once and for good.
type Kill = Box<dyn FnMut() + Send>;

/// The proxy.
pub struct ApiProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    mutations: Vec<Mutation>,
    /// The count when the fault was armed.
    since: u64,
    armed: Option<Armed>,
    struck: u64,
    watches: Watches,
    kill: Option<Kill>,
}

// === impl ApiProxy ===

impl ApiProxy {
    /// Before this cluster's API server, at first without faults.
    ///
    /// # Panics
    /// Where there is no port, no kubeconfig, or no way into the cluster's network.
    #[must_use]
    pub fn start(cluster: &Cluster) -> Self {
        let upstream =
            Upstream::of(cluster).expect("a kubeconfig with an address and an authority");
        Self::before(upstream, cluster.network().map(ToOwned::to_owned))
    }

    fn before(upstream: Upstream, network: Option<OsString>) -> Self {
        // Bound here, in the network of the tests; the thread then goes where the server is.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared::default());
        let (stop, stopped) = oneshot::channel();
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            if let Some(network) = network {
                upstream::enter(&network).expect("the cluster's network");
            }
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                tokio::select! {
                    () = serve(listener, upstream, of_thread) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { address, shared, stop: Some(stop), thread: Some(thread) }
    }

    /// Where it listens: `http://` and this.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What has asked for a change so far, in order.
    #[must_use]
    pub fn mutations(&self) -> Vec<Mutation> {
        self.shared.state().mutations.clone()
    }

    /// Lets one request go wrong. The count begins anew.
    pub fn arm(&self, armed: Armed) {
        let mut state = self.shared.state();
        state.since = state.mutations.len() as u64;
        state.armed = Some(armed);
    }

    /// How many requests have gone wrong.
    #[must_use]
    pub fn struck(&self) -> u64 {
        self.shared.state().struck
    }

    /// Events of watches, those under way as well.
    pub fn watches(&self, watches: Watches) {
        self.shared.state().watches = watches;
    }

    /// How the client under test is ended: it returns when the client is gone.
    pub fn kills_by(&self, kill: impl FnMut() + Send + 'static) {
        self.shared.state().kill = Some(Box::new(kill));
    }
}

impl Drop for ApiProxy {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

impl std::fmt::Debug for ApiProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiProxy").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request; what is to happen to it.
    fn counted(&self, mutation: Mutation) -> Option<Fault> {
        let mut state = self.state();
        state.mutations.push(mutation);
        let number = state.mutations.len() as u64 - state.since;
        let armed = state.armed.filter(|armed| armed.nth == number)?;
        state.armed = None;
        state.struck += 1;
        Some(armed.fault)
    }

    fn kill(&self) {
        if let Some(kill) = &mut self.state().kill {
            kill();
        }
    }
}

async fn serve(listener: TcpListener, upstream: Upstream, shared: Arc<Shared>) {
    let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
    while let Ok((stream, _)) = listener.accept().await {
        let (upstream, shared) = (upstream.clone(), Arc::clone(&shared));
        tokio::spawn(async move {
            let service =
                service_fn(|request| answer(request, upstream.clone(), Arc::clone(&shared)));
            // A connection that ends with an error ends as it was meant to.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

/// An error ends the connection without a word.
async fn answer(
    request: Request<Incoming>,
    upstream: Upstream,
    shared: Arc<Shared>,
) -> Result<Response<Body>, Error> {
    let is_watch = request.uri().query().is_some_and(|query| {
        query.split('&').any(|pair| pair == "watch=true" || pair == "watch=1")
    });
    let fault = if is_safe(request.method().as_str()) {
        None
    } else {
        shared.counted(Mutation {
            method: request.method().to_string(),
            path: request.uri().to_string(),
        })
    };
    match fault {
        Some(Fault::KillBeforeSend) => {
            shared.kill();
            return Err("the caller is dead".into());
        }
        Some(Fault::Answer(code)) => return Ok(refused(code)),
        _ => {}
    }
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let mut sent = Request::from_parts(head, Full::new(body));
    sent.headers_mut().remove(hyper::header::HOST);
    let host = upstream.host().parse()?;
    sent.headers_mut().insert(hyper::header::HOST, host);
    let (mut head, body) = upstream.send(sent).await?.into_parts();
    if is_watch {
        // What is left out is not there.
        head.headers.remove(hyper::header::CONTENT_LENGTH);
        return Ok(Response::from_parts(head, events(body, shared)));
    }
    let body = body.collect().await?.to_bytes();
    match fault {
        Some(Fault::KillAfterEffect) => {
            shared.kill();
            Err("the caller is dead".into())
        }
        Some(Fault::LostAnswer) => Err("the answer is lost".into()),
        Some(Fault::TimeOut) => {
            tokio::time::sleep(FOREVER).await;
            Err("too late".into())
        }
        _ => Ok(Response::from_parts(head, whole(body))),
    }
}

fn refused(code: u16) -> Response<Body> {
    let mut response = Response::new(whole(Bytes::from(status_body(code))));
    *response.status_mut() = StatusCode::from_u16(code).expect("a status");
    let headers = response.headers_mut();
    let json = hyper::header::HeaderValue::from_static("application/json");
    headers.insert(hyper::header::CONTENT_TYPE, json);
    if code == 429 {
        headers.insert(hyper::header::RETRY_AFTER, 1.into());
    }
    response
}

fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never: Infallible| match never {}).boxed()
}

/// The events of a watch, each as late as it shall be.
fn events(mut body: Incoming, shared: Arc<Shared>) -> Body {
    let (sender, receiver) = mpsc::channel::<Result<Frame<Bytes>, Error>>(16);
    tokio::spawn(async move {
        let mut events = Events::default();
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(bytes) = frame.into_data() else { continue };
            let watches = shared.state().watches;
            tokio::time::sleep(watches.delay).await;
            let kept = events.take(&bytes, watches);
            if !kept.is_empty() && sender.send(Ok(Frame::data(kept.into()))).await.is_err() {
                return;
            }
        }
    });
    let stream = futures_util::stream::unfold(receiver, |mut receiver| async move {
        Some((receiver.recv().await?, receiver))
    });
    StreamBody::new(stream).boxed()
}
