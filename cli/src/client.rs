//! Speaks with the allocator and with a worker's status door: one HTTP/1.1 connection a call, all on loopback.
//! A worker with a certificate is spoken with over TLS, and only where it is the one that its pin names.
//!
//! A call to the allocator first asks, on its own connection, for the proof that it is the one of the discovery file
//! (`casemate_protocol::proof`). Whoever answers anything else gets nothing more: no token, no key of a conversation.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use casemate_protocol::api::{
    Allocate, ApiError, Attached, End, Endpoint, ErrorKind, Health, Rotated, SessionList,
    SessionView,
};
use casemate_protocol::codes::exit;
use casemate_protocol::ids::SessionId;
use casemate_protocol::proof::Nonce;
use casemate_protocol::tls::Pin;
use casemate_protocol::worker::WorkerStatus;
use casemate_tls::client::{NotConnected, NotTrusted, secure};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;

use crate::failure::Failure;

/// The largest answer that is read: a list of many sessions, or a patch.
const MAX_ANSWER: usize = 256 * 1024 * 1024;
/// How long a health check may take.
const HEALTH: Duration = Duration::from_secs(2);
const MAX_HEALTH: usize = 4096;

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// Nothing serves there.
    #[error("cannot reach {address}")]
    Unreachable {
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The connection broke.
    #[error("the connection to {address} broke")]
    Broken {
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A refusal.
    #[error(transparent)]
    Refused(ApiError),
    /// Somebody else than the allocator answers there.
    #[error(
        "whoever listens at {address} does not prove to be this home's allocator, so nothing was sent to it; see who it is \
         (`ss -ltnp`), then stop `casemate up` and start it again"
    )]
    NotProven {
        /// Where.
        address: SocketAddr,
    },
    /// Somebody else than the worker answers there.
    #[error("nothing was sent to {address}: whoever answers there is not the worker: {why}")]
    NotTrusted {
        /// Where.
        address: SocketAddr,
        /// Why.
        why: NotTrusted,
    },
    /// Not what was to be expected from this version.
    #[error(
        "{address} answered {status} and something else than asked for; are both of one version?"
    )]
    Strange {
        /// Where.
        address: SocketAddr,
        /// What status.
        status: StatusCode,
    },
}

/// One server and the token that opens it.
#[derive(Clone)]
pub(crate) struct Client {
    address: SocketAddr,
    bearer: HeaderValue,
    /// The token that the server must know; `None` for a worker, whose port no agent can get.
    proof: Option<Arc<str>>,
    /// Whom to believe, where the door is encrypted.
    pin: Option<Arc<Pin>>,
}

// === impl CallError ===

impl CallError {
    /// True where another try may meet a live server.
    pub(crate) fn is_connection(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Broken { .. })
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Refused(refused) => refused.into(),
            CallError::Strange { .. } => Self::new(exit::SOFTWARE, error.to_string()),
            CallError::NotProven { .. } | CallError::NotTrusted { .. } => {
                Self::new(exit::DENIED, error.to_string())
            }
            other => Self::because(exit::UNAVAILABLE, "no answer", &other),
        }
    }
}

// === impl Client ===

impl Client {
    /// For the allocator behind a published endpoint.
    ///
    /// # Errors
    /// A token that no HTTP header can carry.
    pub(crate) fn new(endpoint: &Endpoint) -> Result<Self, Failure> {
        let client = Self::with(endpoint.address, &endpoint.token)?;
        Ok(Self { proof: Some(endpoint.token.as_str().into()), ..client })
    }

    /// For a worker's door.
    pub(crate) fn of(attached: &Attached) -> Result<Self, Failure> {
        let client = Self::with(attached.address, &attached.token)?;
        Ok(Self { pin: attached.pin.clone().map(Arc::new), ..client })
    }

    fn with(address: SocketAddr, token: &str) -> Result<Self, Failure> {
        let mut bearer = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| {
            Failure::new(exit::DATA, "the stored token is damaged; restart `casemate up`")
        })?;
        bearer.set_sensitive(true);
        Ok(Self { address, bearer, proof: None, pin: None })
    }

    /// True where the allocator serves, false where nobody does.
    ///
    /// # Errors
    /// [`CallError::NotProven`]: somebody else does.
    pub(crate) async fn is_healthy(&self) -> Result<bool, CallError> {
        let call = self.call(Method::GET, "/healthz", None);
        match tokio::time::timeout(HEALTH, call).await {
            Ok(Ok((status, _))) => Ok(status == StatusCode::OK),
            Ok(Err(error @ CallError::NotProven { .. })) => Err(error),
            Ok(Err(_)) | Err(_) => Ok(false),
        }
    }

    pub(crate) async fn allocate(&self, body: &Allocate) -> Result<Attached, CallError> {
        self.json(Method::POST, "/v1/sessions", Some(encode(body))).await
    }

    pub(crate) async fn list(&self) -> Result<SessionList, CallError> {
        self.json(Method::GET, "/v1/sessions", None).await
    }

    pub(crate) async fn show(&self, id: &SessionId) -> Result<SessionView, CallError> {
        self.json(Method::GET, &format!("/v1/sessions/{id}"), None).await
    }

    pub(crate) async fn resume(&self, id: &SessionId) -> Result<Attached, CallError> {
        self.json(Method::POST, &format!("/v1/sessions/{id}/resume"), None).await
    }

    /// As resume, for a command in it.
    pub(crate) async fn exec(&self, id: &SessionId) -> Result<Attached, CallError> {
        self.json(Method::POST, &format!("/v1/sessions/{id}/exec"), None).await
    }

    pub(crate) async fn stop(&self, id: &SessionId, end: &End) -> Result<SessionView, CallError> {
        self.json(Method::POST, &format!("/v1/sessions/{id}/stop"), Some(encode(end))).await
    }

    pub(crate) async fn close(&self, id: &SessionId, end: &End) -> Result<SessionView, CallError> {
        self.json(Method::POST, &format!("/v1/sessions/{id}/close"), Some(encode(end))).await
    }

    /// The stored answer to `initialize`, raw JSON.
    pub(crate) async fn rotate_key(&self) -> Result<Rotated, CallError> {
        self.json(Method::POST, "/v1/keys/rotate", None).await
    }

    pub(crate) async fn handshake(&self, key: &str) -> Result<Option<String>, CallError> {
        let (status, body) = self.call(Method::GET, &format!("/v1/handshakes/{key}"), None).await?;
        match status {
            StatusCode::OK => Ok(String::from_utf8(body.to_vec()).ok()),
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(self.refusal(status, &body)),
        }
    }

    /// Stores an answer to `initialize`, raw JSON.
    pub(crate) async fn store_handshake(&self, key: &str, raw: String) -> Result<(), CallError> {
        let path = format!("/v1/handshakes/{key}");
        let (status, body) = self.call(Method::PUT, &path, Some(raw.into())).await?;
        if status.is_success() { Ok(()) } else { Err(self.refusal(status, &body)) }
    }

    /// A worker's status.
    pub(crate) async fn status(&self) -> Result<WorkerStatus, CallError> {
        self.json(Method::GET, "/v1/status", None).await
    }

    async fn json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<T, CallError> {
        let (status, body) = self.call(method, path, body).await?;
        if !status.is_success() {
            return Err(self.refusal(status, &body));
        }
        serde_json::from_slice(&body)
            .map_err(|_| CallError::Strange { address: self.address, status })
    }

    fn refusal(&self, status: StatusCode, body: &[u8]) -> CallError {
        match serde_json::from_slice::<ApiError>(body) {
            Ok(error) => CallError::Refused(error),
            Err(_) if status == StatusCode::UNAUTHORIZED => CallError::Refused(ApiError {
                kind: ErrorKind::Unauthorized,
                message: "the token was refused; it may belong to an earlier start".into(),
                start: None,
            }),
            Err(_) => CallError::Strange { address: self.address, status },
        }
    }

    /// One call; the status and the whole body.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<(StatusCode, Bytes), CallError> {
        let address = self.address;
        let broken = |source: Box<dyn std::error::Error + Send + Sync>| CallError::Broken {
            address,
            source,
        };
        let stream = TcpStream::connect(address)
            .await
            .map_err(|source| CallError::Unreachable { address, source })?;
        let stream = secure(stream, self.pin.as_deref()).await.map_err(|error| match error {
            NotConnected::Io(source) => CallError::Unreachable { address, source },
            NotConnected::NotTrusted(why) => CallError::NotTrusted { address, why },
        })?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| broken(error.into()))?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, address.to_string())
            .header(AUTHORIZATION, self.bearer.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body.unwrap_or_default()))
            .map_err(|error| broken(error.into()))?;
        let exchange = async {
            if let Some(token) = &self.proof {
                self.demand_proof(&mut sender, token).await?;
                // A server that closes after its proof is one that restarts: another connection may meet the next.
                sender.ready().await.map_err(|error| broken(error.into()))?;
            }
            let response = sender.send_request(request).await.map_err(|e| broken(e.into()))?;
            let status = response.status();
            let body =
                Limited::new(response.into_body(), MAX_ANSWER).collect().await.map_err(broken)?;
            Ok((status, body.to_bytes()))
        };
        // The connection is driven beside the exchange and dropped with it.
        tokio::pin!(exchange, connection);
        tokio::select! {
            biased;
            answer = &mut exchange => answer,
            ended = &mut connection => match ended {
                // Everything has arrived already; what is left to do is to read it.
                Ok(()) => exchange.await,
                Err(error) => Err(broken(error.into())),
            },
        }
    }
}

/// The start of a connection to the allocator.
type Sender = hyper::client::conn::http1::SendRequest<Full<Bytes>>;

impl Client {
    /// Asks before anything secret is said. Whatever is not the proof is a refusal, an older allocator's answer included.
    async fn demand_proof(&self, sender: &mut Sender, token: &str) -> Result<(), CallError> {
        let address = self.address;
        let broken = |source: hyper::Error| CallError::Broken { address, source: source.into() };
        let nonce = Nonce::random();
        let request = Request::builder()
            .uri(format!("/healthz?nonce={nonce}"))
            .header(HOST, address.to_string())
            .body(Full::default())
            .map_err(|error| CallError::Broken { address, source: error.into() })?;
        let exchange = async {
            let answer = match sender.send_request(request).await {
                // What is no HTTP at all is no allocator either.
                Err(error) if error.is_parse() => return Err(CallError::NotProven { address }),
                answer => answer.map_err(broken)?,
            };
            let body = Limited::new(answer.into_body(), MAX_HEALTH).collect().await;
            let body = body.map_err(|_| CallError::NotProven { address })?.to_bytes();
            let proof =
                serde_json::from_slice::<Health>(&body).ok().and_then(|health| health.proof);
            match proof {
                Some(proof) if nonce.is_proven(token, address, &proof) => Ok(()),
                _ => Err(CallError::NotProven { address }),
            }
        };
        let silent = || std::io::Error::from(std::io::ErrorKind::TimedOut);
        tokio::time::timeout(HEALTH, exchange)
            .await
            .map_err(|_| CallError::Unreachable { address, source: silent() })?
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client({})", self.address)
    }
}

fn encode<T: serde::Serialize>(body: &T) -> Bytes {
    serde_json::to_vec(body).expect("API types are plain data").into()
}
