//! A WebSocket to a worker's `/acp` or `/v1/exec`, without subprotocols and extensions.

use std::net::SocketAddr;
use std::time::Duration;

use casemate_protocol::acp::frame::MAX_LINE;
use casemate_protocol::codes::exit;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use crate::failure::Failure;

/// An open connection.
pub(crate) type Socket = WebSocketStream<TcpStream>;

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

/// Connects and upgrades.
pub(crate) async fn open(address: SocketAddr, token: &str, door: Door) -> Result<Socket, Failure> {
    let failed = |error: &dyn std::error::Error| {
        Failure::because(
            exit::UNAVAILABLE,
            format!("cannot attach to the worker at {address}"),
            error,
        )
    };
    let mut request = format!("ws://{address}{}", door.path())
        .into_client_request()
        .map_err(|error| failed(&error))?;
    let mut bearer =
        HeaderValue::from_str(&format!("Bearer {token}")).map_err(|error| failed(&error))?;
    bearer.set_sensitive(true);
    request.headers_mut().insert("authorization", bearer);
    // Lines of exactly the limit pass; what is longer is the worker's mistake and ends the connection.
    let config =
        WebSocketConfig::default().max_message_size(Some(MAX_LINE)).max_frame_size(Some(MAX_LINE));
    let handshake = async {
        let stream = TcpStream::connect(address).await.map_err(Error::Io)?;
        // Lines are small and each one is waited for.
        stream.set_nodelay(true).map_err(Error::Io)?;
        tokio_tungstenite::client_async_with_config(request, stream, Some(config)).await
    };
    match timeout(HANDSHAKE, handshake).await {
        Ok(Ok((socket, _))) => Ok(socket),
        Ok(Err(Error::Http(response))) => Err(Failure::new(
            exit::DENIED,
            format!("the worker at {address} refused the connection with {}", response.status()),
        )),
        Ok(Err(error)) => Err(failed(&error)),
        Err(_) => {
            Err(Failure::new(exit::UNAVAILABLE, format!("the worker at {address} does not answer")))
        }
    }
}
