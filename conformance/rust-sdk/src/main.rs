//! One whole conversation with the scripted agent at a worker's plain door, through the official Rust library. Our argument is the
//! door's address; the token is on stdin, for it is a secret. Prints what was seen as one line of JSON;
//! conformance/suite/tests/plain_door.rs judges it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    CancelNotification, ClientCapabilities, ContentBlock, FileSystemCapabilities,
    InitializeRequest, NewSessionRequest, PermissionOptionKind, PromptRequest, ReadTextFileRequest,
    ReadTextFileResponse, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, SelectedPermissionOutcome, SessionNotification, SessionUpdate,
    TextContent,
};
use agent_client_protocol::{Agent, Client, Error};
use agent_client_protocol_http::HttpClient;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use serde::Serialize;
use serde_json::{Value, json};

#[derive(Default)]
struct Seen {
    text: String,
    asked: Vec<&'static str>,
}

const PROMPTS: [&str; 3] = [
    "!sh echo from $((6 * 7))",
    "!perm",
    r#"!ask fs/read_text_file {"sessionId": "x", "path": "/etc/hostname"}"#,
];

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let address = std::env::args().nth(1).expect("the door's address");
    let token = std::io::read_to_string(std::io::stdin()).expect("the token on stdin");
    let client = HttpClient::builder(format!("ws://{address}"))
        .configure_http(|http| {
            let mut bearer = HeaderValue::from_str(&format!("Bearer {token}")).expect("a token");
            bearer.set_sensitive(true);
            http.no_proxy().default_headers(HeaderMap::from_iter([(AUTHORIZATION, bearer)]))
        })
        .build()
        .expect("a client");
    let seen = Arc::new(Mutex::new(Seen::default()));
    let (record, permissions, files) = (Arc::clone(&seen), Arc::clone(&seen), Arc::clone(&seen));
    let outcome = Client
        .v1()
        .on_receive_notification(
            async move |update: SessionNotification, _| {
                if let SessionUpdate::AgentMessageChunk(chunk) = update.update
                    && let ContentBlock::Text(text) = chunk.content
                {
                    record.lock().expect("nobody panicked").text.push_str(&text.text);
                }
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: RequestPermissionRequest, responder, _| {
                permissions
                    .lock()
                    .expect("nobody panicked")
                    .asked
                    .push("session/request_permission");
                let allow = request
                    .options
                    .iter()
                    .find(|option| option.kind == PermissionOptionKind::AllowOnce);
                let outcome = allow.map_or(RequestPermissionOutcome::Cancelled, |option| {
                    RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(
                        option.option_id.clone(),
                    ))
                });
                responder.respond(RequestPermissionResponse::new(outcome))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |_: ReadTextFileRequest, responder, _| {
                files.lock().expect("nobody panicked").asked.push("fs/read_text_file");
                responder.respond(ReadTextFileResponse::new("the host's own file"))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_with(client, async move |agent: ConnectionTo<Agent>| converse(&agent).await)
        .await;
    let (protocol, stops) = outcome.expect("a whole conversation");
    let seen = seen.lock().expect("nobody panicked");
    println!(
        "{}",
        json!({"protocol": protocol, "stops": stops, "text": seen.text, "asked": seen.asked})
    );
}

/// A value of the library's as it is written in JSON.
fn word(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("a word of the protocol")
}

async fn converse(agent: &ConnectionTo<Agent>) -> Result<(Value, Vec<Value>), Error> {
    let files = FileSystemCapabilities::new().read_text_file(true).write_text_file(true);
    let capabilities = ClientCapabilities::new().fs(files).terminal(true);
    let request = InitializeRequest::new(ProtocolVersion::V1).client_capabilities(capabilities);
    let hello = agent.send_request(request).block_task().await?;
    let session = agent.send_request(NewSessionRequest::new("/")).block_task().await?.session_id;
    let prompt = |text: &str| {
        PromptRequest::new(session.clone(), vec![ContentBlock::Text(TextContent::new(text))])
    };
    let mut stops = Vec::new();
    for text in PROMPTS {
        stops.push(word(&agent.send_request(prompt(text)).block_task().await?.stop_reason));
    }
    let slow = agent.send_request(prompt("!sleep 60"));
    let cancel = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        agent.send_notification(CancelNotification::new(session.clone()))
    };
    let (slow, cancelled) = tokio::join!(slow.block_task(), cancel);
    cancelled?;
    stops.push(word(&slow?.stop_reason));
    Ok((word(&hello.protocol_version), stops))
}
