//! A plain ACP client over a WebSocket, blocking, for tests.

use std::net::SocketAddr;
use std::time::Duration;

use casemate_protocol::tls::Pin;
use casemate_tls::client::{Stream, secure};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::harness::LONG;

pub(crate) struct Client {
    runtime: Runtime,
    socket: WebSocketStream<Stream>,
    next: u64,
    pub(crate) connection_id: String,
    /// The subprotocol that the worker answered with.
    pub(crate) chosen: Option<String>,
}

/// What came instead of a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    With(u16, String),
    Without,
}

// === impl Client ===

impl Client {
    /// Attaches; the HTTP status where that is refused.
    pub(crate) fn attach(address: SocketAddr, token: &str) -> Result<Self, u16> {
        let client = Self::attach_with(address, &[("authorization", &format!("Bearer {token}"))])?;
        assert_eq!(client.chosen, None, "nothing was offered");
        Ok(client)
    }

    pub(crate) fn attach_with(address: SocketAddr, headers: &[(&str, &str)]) -> Result<Self, u16> {
        Self::attach_to(address, None, headers)
    }

    /// As [`Client::attach_with`], believing whom the pin says.
    pub(crate) fn attach_to(
        address: SocketAddr,
        pin: Option<&Pin>,
        headers: &[(&str, &str)],
    ) -> Result<Self, u16> {
        Self::attach_by(address, pin, headers, None)
    }

    /// One that takes no frame of more bytes than these.
    pub(crate) fn attach_narrow(
        address: SocketAddr,
        headers: &[(&str, &str)],
        frame: usize,
    ) -> Self {
        let config = WebSocketConfig::default().max_frame_size(Some(frame));
        Self::attach_by(address, None, headers, Some(config)).unwrap()
    }

    fn attach_by(
        address: SocketAddr,
        pin: Option<&Pin>,
        headers: &[(&str, &str)],
        config: Option<WebSocketConfig>,
    ) -> Result<Self, u16> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let connected = runtime.block_on(async {
            let stream = TcpStream::connect(address).await.unwrap();
            let stream = secure(stream, pin).await.unwrap();
            let mut request = format!("ws://{address}/acp").into_client_request().unwrap();
            for (name, value) in headers {
                let name: hyper::header::HeaderName = name.parse().unwrap();
                request.headers_mut().insert(name, value.parse().unwrap());
            }
            tokio_tungstenite::client_async_with_config(request, stream, config).await
        });
        match connected {
            Ok((socket, response)) => {
                let header = response.headers().get("acp-connection-id");
                let connection_id = header.unwrap().to_str().unwrap().to_owned();
                let chosen = response.headers().get("sec-websocket-protocol");
                let chosen = chosen.map(|chosen| chosen.to_str().unwrap().to_owned());
                assert!(response.headers().get("sec-websocket-extensions").is_none());
                Ok(Self { runtime, socket, next: 0, connection_id, chosen })
            }
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) fn send_text(&mut self, text: &str) {
        self.runtime.block_on(self.socket.send(Message::text(text.to_owned()))).unwrap();
    }

    pub(crate) fn send_binary(&mut self, bytes: &[u8]) {
        let message = Message::binary(bytes.to_vec());
        self.runtime.block_on(self.socket.send(message)).unwrap();
    }

    /// The next message, or how the connection ended.
    pub(crate) fn receive(&mut self) -> Result<Value, Closed> {
        let socket = &mut self.socket;
        // One deadline for all: pings come for ever.
        let until = tokio::time::Instant::now() + LONG;
        self.runtime.block_on(async {
            loop {
                let message = tokio::time::timeout_at(until, socket.next()).await;
                let message = message.expect("no message");
                match message {
                    Some(Ok(Message::Text(text))) => {
                        return Ok(serde_json::from_str(&text).unwrap());
                    }
                    Some(Ok(Message::Close(frame))) => {
                        return Err(frame.map_or(Closed::Without, |frame| {
                            Closed::With(frame.code.into(), frame.reason.to_string())
                        }));
                    }
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return Err(Closed::Without),
                }
            }
        })
    }

    /// Closes the connection in order; how the worker answered.
    pub(crate) fn leave(mut self) -> Closed {
        let close = CloseFrame { code: 1000.into(), reason: "".into() };
        self.runtime.block_on(self.socket.send(Message::Close(Some(close)))).unwrap();
        self.receive().unwrap_err()
    }

    /// Whether nothing comes for a while.
    pub(crate) fn is_quiet(&mut self, time: Duration) -> bool {
        let socket = &mut self.socket;
        self.runtime.block_on(async { tokio::time::timeout(time, socket.next()).await.is_err() })
    }

    pub(crate) fn request(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let line = json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params});
        self.send_text(&line.to_string());
        self.next
    }

    /// Reads up to the answer of a request; the answer and what came before it.
    pub(crate) fn answer(&mut self, id: u64) -> (Value, Vec<Value>) {
        let mut before = Vec::new();
        loop {
            let message = self.receive().expect("an answer");
            if message["id"] == id && message.get("method").is_none() {
                return (message, before);
            }
            before.push(message);
        }
    }

    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params);
        self.answer(id).0
    }

    pub(crate) fn initialize(&mut self) -> Value {
        self.call("initialize", json!({"protocolVersion": 1, "clientCapabilities": {}}))
    }

    pub(crate) fn new_session(&mut self) -> String {
        let answer = self.call("session/new", json!({"cwd": "/host/path", "mcpServers": []}));
        answer["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    pub(crate) fn prompt(&mut self, session: &str, text: &str) -> u64 {
        let prompt = json!([{"type": "text", "text": text}]);
        self.request("session/prompt", json!({"sessionId": session, "prompt": prompt}))
    }

    /// A turn: its stop reason and all text of the agent.
    pub(crate) fn turn(&mut self, session: &str, text: &str) -> (String, String) {
        let id = self.prompt(session, text);
        let (answer, updates) = self.answer(id);
        let reason = answer["result"]["stopReason"].as_str().unwrap_or("none").to_owned();
        (reason, text_of(&updates))
    }

    /// What a shell command in the session prints.
    pub(crate) fn shell(&mut self, session: &str, command: &str) -> String {
        self.turn(session, &format!("!sh {command}")).1
    }
}

/// All text in agent message chunks.
pub(crate) fn text_of(updates: &[Value]) -> String {
    updates
        .iter()
        .filter(|message| message["params"]["update"]["sessionUpdate"] == "agent_message_chunk")
        .filter_map(|message| message["params"]["update"]["content"]["text"].as_str())
        .collect()
}
