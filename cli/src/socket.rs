//! A WebSocket to a worker's `/acp` or `/v1/exec` without subprotocols and extensions, or to the resumable door of `/acp`.

use std::net::SocketAddr;
use std::time::Duration;

use casemate_protocol::acp::frame::MAX_LINE;
use casemate_protocol::api::Attached;
use casemate_protocol::codes::exit;
use casemate_protocol::relay::ticket::Refused;
use casemate_protocol::relay::{PIECE, REFUSAL_HEADER, SUBPROTOCOL, TICKET_HEADER};
use casemate_tls::client::{NotConnected, Stream, secure};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use crate::cookies::Cookies;
use crate::failure::Failure;
use crate::heard::Heard;

/// An open connection.
pub(crate) type Socket = WebSocketStream<Heard<Stream>>;

/// What is behind the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    /// The agent.
    Acp,
    /// A command.
    Exec,
}

impl Door {
    fn path(self) -> &'static str {
        match self {
            Self::Acp => "/acp",
            Self::Exec => "/v1/exec",
        }
    }
}

/// How long the handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// What a frame has besides a piece's content is less than this.
const FRAME: usize = PIECE + 1024;

/// How one gets in.
#[derive(Debug, Clone, Copy)]
enum Entry<'a> {
    Plain { token: &'a str, door: Door },
    Resumable { token: &'a str },
    Again { ticket: &'a str },
}

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum NotOpened {
    /// The worker's word about a ticket.
    Refused(Refused),
    /// Anything else.
    Failed(Failure),
}

/// Connects and upgrades, without a subprotocol.
pub(crate) async fn open(attached: &Attached, door: Door) -> Result<Socket, Failure> {
    let mut cookies = Cookies::default();
    let token = &attached.token;
    let opened = connect(attached, Entry::Plain { token, door }, &mut cookies).await;
    opened.map_err(NotOpened::into_failure)
}

/// Connects to the resumable door, for a new attachment, whose cookies begin here.
pub(crate) async fn open_resumable(attached: &Attached) -> Result<(Socket, Cookies), Failure> {
    let mut cookies = Cookies::default();
    let token = &attached.token;
    let opened = connect(attached, Entry::Resumable { token }, &mut cookies).await;
    Ok((opened.map_err(NotOpened::into_failure)?, cookies))
}

/// Connects to the resumable door, for an attachment that is there, with its cookies.
pub(crate) async fn open_again(
    attached: &Attached,
    ticket: &str,
    cookies: &mut Cookies,
) -> Result<Socket, NotOpened> {
    connect(attached, Entry::Again { ticket }, cookies).await
}

async fn connect(
    attached: &Attached,
    entry: Entry<'_>,
    cookies: &mut Cookies,
) -> Result<Socket, NotOpened> {
    let (address, is_secure) = (attached.address, attached.pin.is_some());
    let failed = |error: &dyn std::error::Error| {
        NotOpened::Failed(Failure::because(
            exit::UNAVAILABLE,
            format!("cannot attach to the worker at {address}"),
            error,
        ))
    };
    let path = match entry {
        Entry::Plain { door, .. } => door.path(),
        Entry::Resumable { .. } | Entry::Again { .. } => Door::Acp.path(),
    };
    let mut request =
        format!("ws://{address}{path}").into_client_request().map_err(|error| failed(&error))?;
    let (name, secret) = match entry {
        Entry::Plain { token, .. } | Entry::Resumable { token } => {
            (AUTHORIZATION, format!("Bearer {token}"))
        }
        Entry::Again { ticket } => (HeaderName::from_static(TICKET_HEADER), ticket.to_owned()),
    };
    let mut secret = HeaderValue::from_str(&secret).map_err(|error| failed(&error))?;
    secret.set_sensitive(true);
    request.headers_mut().insert(name, secret);
    cookies.give(request.headers_mut());
    // Lines of exactly the limit pass; what is longer is the worker's mistake and ends the connection.
    let longest = match entry {
        Entry::Plain { .. } => MAX_LINE,
        Entry::Resumable { .. } | Entry::Again { .. } => {
            let name = HeaderValue::from_static(SUBPROTOCOL);
            request.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, name);
            FRAME
        }
    };
    let config =
        WebSocketConfig::default().max_message_size(Some(longest)).max_frame_size(Some(longest));
    let handshake = async {
        let stream = Heard::new(secure(dial(address).await?, attached.pin.as_ref()).await?);
        Ok(tokio_tungstenite::client_async_with_config(request, stream, Some(config)).await)
    };
    let opened = match timeout(HANDSHAKE, handshake).await {
        Ok(Ok(opened)) => Ok(opened),
        Ok(Err(NotConnected::Io(error))) => Ok(Err(Error::Io(error))),
        Ok(Err(error @ NotConnected::NotTrusted(_))) => {
            return Err(NotOpened::Failed(not_trusted(address, &error)));
        }
        Err(late) => Err(late),
    };
    match opened {
        Ok(Ok((socket, answer))) => {
            cookies.take(answer.headers(), is_secure);
            Ok(socket)
        }
        Ok(Err(Error::Http(response))) => {
            cookies.take(response.headers(), is_secure);
            let word = response.headers().get(REFUSAL_HEADER).and_then(|word| word.to_str().ok());
            if let (Entry::Again { .. }, Some(refused)) = (entry, word.and_then(Refused::parse)) {
                return Err(NotOpened::Refused(refused));
            }
            let status = response.status();
            Err(NotOpened::Failed(Failure::new(
                exit::DENIED,
                format!("the worker at {address} refused the connection with {status}"),
            )))
        }
        Ok(Err(Error::Protocol(ProtocolError::SecWebSocketSubProtocolError(_)))) => {
            Err(NotOpened::Failed(Failure::new(
                exit::UNAVAILABLE,
                format!(
                    "the worker at {address} is of an older casemate: stop its session, and the next message starts a new \
                     worker"
                ),
            )))
        }
        Ok(Err(error)) => Err(failed(&error)),
        Err(_) => Err(NotOpened::Failed(Failure::new(
            exit::UNAVAILABLE,
            format!("the worker at {address} does not answer"),
        ))),
    }
}

/// Lines are small and each one is waited for: none waits for more to send (RFC 9293 section 3.7.4).
async fn dial(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Whoever answers at a worker's address is not the worker.
pub(crate) fn not_trusted(address: SocketAddr, error: &NotConnected) -> Failure {
    Failure::new(exit::DENIED, format!("nothing was sent to {address}: {error}"))
}

// === impl NotOpened ===

impl NotOpened {
    fn into_failure(self) -> Failure {
        match self {
            Self::Failed(failure) => failure,
            Self::Refused(refused) => Failure::new(
                exit::DENIED,
                format!("the worker refused the connection: {}", refused.as_str()),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_do_not_wait_for_more_to_send() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            assert!(dial(listener.local_addr().unwrap()).await.unwrap().nodelay().unwrap());
        });
    }
}
