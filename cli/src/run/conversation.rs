//! The client's side of one ACP conversation, which advertises nothing: no files, no terminals.

use casemate_protocol::acp::fault::Fault;
use casemate_protocol::codes::{exit, rpc};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::failure::Failure;
use crate::run::permission::Permission;
use crate::run::screen::Screen;
use crate::socket::Socket;

/// An open conversation.
pub(super) struct Conversation {
    socket: Socket,
    session: String,
    next_id: u64,
    permission: Permission,
    screen: Screen,
}

// === impl Conversation ===

impl Conversation {
    /// Says `initialize` and `session/new`.
    pub(super) async fn open(
        socket: Socket,
        permission: Permission,
        screen: Screen,
    ) -> Result<Self, Failure> {
        let mut this = Self { socket, session: String::new(), next_id: 0, permission, screen };
        let client = json!({"name": "casemate run", "version": env!("CARGO_PKG_VERSION")});
        let params = json!({"protocolVersion": 1, "clientCapabilities": {}, "clientInfo": client});
        this.call("initialize", params).await?;
        // The worker puts the worktree in the place of any cwd.
        let opened = this.call("session/new", json!({"cwd": "/", "mcpServers": []})).await?;
        let session = opened["sessionId"].as_str().ok_or_else(|| {
            Failure::new(exit::SOFTWARE, "the agent answered session/new without a session id")
        })?;
        this.session = session.to_owned();
        Ok(this)
    }

    /// One turn; the reason why it ended.
    pub(super) async fn prompt(&mut self, text: &str) -> Result<String, Failure> {
        let prompt = json!([{"type": "text", "text": text}]);
        let params = json!({"sessionId": self.session, "prompt": prompt});
        let answer = self.call("session/prompt", params).await?;
        self.screen.turn_ends();
        Ok(answer["stopReason"].as_str().unwrap_or("unknown").to_owned())
    }

    /// For what is not the agent's to say.
    pub(super) fn screen(&mut self) -> &mut Screen {
        &mut self.screen
    }

    /// Hangs up.
    pub(super) async fn close(mut self) {
        // The worker is about to be stopped anyway.
        let _ = self.socket.close(None).await;
    }

    async fn call(&mut self, method: &str, params: Value) -> Result<Value, Failure> {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await?;
        loop {
            let message = self.receive().await?;
            match (message["method"].as_str(), message.get("id")) {
                (Some(asked), Some(theirs)) => {
                    let theirs = theirs.clone();
                    self.answer(asked, theirs, &message["params"]).await?;
                }
                (Some("session/update"), None) => self.screen.update(&message["params"]["update"]),
                (Some(_), None) => {}
                (None, Some(answered)) if *answered == json!(id) => {
                    return outcome(method, message);
                }
                (None, _) => {}
            }
        }
    }

    async fn answer(&mut self, method: &str, id: Value, params: &Value) -> Result<(), Failure> {
        let answer = if method == "session/request_permission" {
            let outcome = self.permission.decide(params, &mut self.screen).await;
            json!({"jsonrpc": "2.0", "id": id, "result": {"outcome": outcome}})
        } else {
            let message =
                format!("{method} is not available: the agent works in an isolated session");
            let error = json!({"code": rpc::METHOD_NOT_FOUND, "message": message});
            json!({"jsonrpc": "2.0", "id": id, "error": error})
        };
        self.send(&answer).await
    }

    async fn send(&mut self, message: &Value) -> Result<(), Failure> {
        let sent = self.socket.send(Message::text(message.to_string())).await;
        sent.map_err(|error| Failure::because(exit::UNAVAILABLE, "the worker is gone", &error))
    }

    async fn receive(&mut self) -> Result<Value, Failure> {
        loop {
            match self.socket.next().await {
                Some(Ok(Message::Text(text))) => {
                    // The worker relays frames that it has parsed; anything else is not for us.
                    if let Ok(message) = serde_json::from_str(text.as_str()) {
                        return Ok(message);
                    }
                }
                Some(Ok(Message::Close(frame))) => {
                    let reason =
                        frame.map_or_else(String::new, |frame| format!(": {}", frame.reason));
                    return Err(Failure::new(
                        exit::UNAVAILABLE,
                        format!("the conversation was closed{reason}"),
                    ));
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    return Err(Failure::because(exit::UNAVAILABLE, "the worker is gone", &error));
                }
                None => return Err(Failure::new(exit::UNAVAILABLE, "the worker hung up")),
            }
        }
    }
}

fn outcome(method: &str, mut message: Value) -> Result<Value, Failure> {
    let Some(error) = message.get("error") else { return Ok(message["result"].take()) };
    let cause = Fault::of_error(&error.to_string()).and_then(|fault| fault.cause);
    let text = error["message"].as_str().unwrap_or("no reason given");
    // casemate's own words are for a client that can load the session again; this one is thrown away.
    let text = format!("{method}: {}", cause.as_deref().unwrap_or(text));
    Err(Failure::new(exit::FAILED, text))
}
