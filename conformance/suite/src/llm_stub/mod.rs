//! A model server on loopback whose answers follow from the prompt's text ([`plan`]).
//!
//! Speaks OpenAI chat completions and Responses, Anthropic Messages and Gemini. Remembers every request, so that a test can see what an
//! agent told its model: above all whether a restored conversation is really there.

mod chat;
mod event;
mod gemini;
mod messages;
pub mod plan;
mod responses;

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};

use crate::background::Background;
use event::Event;
use plan::{Answer, Conversation};

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The name of the one model that is served.
pub const MODEL: &str = "stub-model";

/// A running stub.
#[derive(Debug)]
pub struct LlmStub {
    server: Background,
    seen: Arc<Mutex<Vec<Conversation>>>,
}

// === impl LlmStub ===

impl LlmStub {
    /// Starts one on loopback.
    ///
    /// # Errors
    /// Where no port or thread is to be had.
    pub fn start() -> io::Result<Self> {
        Self::start_at(Ipv4Addr::LOCALHOST.into())
    }

    /// Starts one that listens on another address, in the network of the calling thread.
    ///
    /// # Errors
    /// Where the address is none of this network's, and no port or thread is to be had.
    pub fn start_at(address: IpAddr) -> io::Result<Self> {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&seen);
        let server = Background::start_at(address, "llm-stub", move |stream| {
            let record = Arc::clone(&record);
            async move {
                let service = service_fn(move |request| respond(request, Arc::clone(&record)));
                // A client that cancels a turn drops the connection: that is its right.
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await
                    .ok();
            }
        })?;
        Ok(Self { server, seen })
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.server.port()
    }

    /// Where it is, without a path, as Anthropic's clients want it.
    #[must_use]
    pub fn origin(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// The base URL for OpenAI-compatible clients.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("{}/v1", self.origin())
    }

    /// Every conversation that was sent, oldest first.
    #[must_use]
    pub fn seen(&self) -> Vec<Conversation> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many requests that offer tools brought this as their newest user text: one for each time that a prompt
    /// reached the model. (Those that ask for a title of the conversation offer none.)
    #[must_use]
    pub fn asked(&self, text: &str) -> usize {
        let newest = |seen: &Conversation| seen.user.last().is_some_and(|last| last.contains(text));
        let prompt = |seen: &Conversation| !seen.tools.is_empty() && seen.tool_result.is_none();
        self.seen().iter().filter(|seen| prompt(seen) && newest(seen)).count()
    }

    /// How many requests offered tools and did not carry a tool's result: one for each prompt of a user. Requests
    /// for a conversation's title offer none.
    #[must_use]
    pub fn prompts(&self) -> usize {
        self.seen()
            .iter()
            .filter(|seen| !seen.tools.is_empty() && seen.tool_result.is_none())
            .count()
    }
}

async fn respond(
    request: Request<Incoming>,
    record: Arc<Mutex<Vec<Conversation>>>,
) -> Result<Response<Body>, Infallible> {
    let path = request.uri().path().to_owned();
    if path.ends_with("/models") {
        return Ok(one(
            200,
            &json!({"object": "list", "data": [{"id": MODEL, "object": "model"}]}),
        ));
    }
    // Agents ask whether it is there at all.
    if request.method() == hyper::Method::HEAD {
        return Ok(one(200, &json!({})));
    }
    let Some(format) = Format::of(&path) else {
        return Ok(one(
            404,
            &json!({"error": {"message": format!("the stub does not serve {path}")}}),
        ));
    };
    let Ok(body) = request.into_body().collect().await else {
        return Ok(one(400, &json!({"error": {"message": "the body was cut"}})));
    };
    let Ok(body) = serde_json::from_slice::<Value>(&body.to_bytes()) else {
        return Ok(one(400, &json!({"error": {"message": "the body is not JSON"}})));
    };
    let conversation = match format {
        Format::Chat => chat::conversation(&body),
        Format::Messages => messages::conversation(&body),
        Format::Responses => responses::conversation(&body),
        Format::Gemini { .. } => gemini::conversation(&body),
        Format::Tokens => return Ok(one(200, &json!({"input_tokens": 10, "totalTokens": 10}))),
    };
    let answer = match gemini::schema(&body) {
        Some(schema) => {
            Answer::Text(vec![plan::arguments(schema, &[]).to_string()], Duration::ZERO)
        }
        None => plan::answer(&conversation),
    };
    record.lock().unwrap_or_else(PoisonError::into_inner).push(conversation);
    let (model, stream) = (&body["model"], body["stream"] == true);
    let pause = if let Answer::Text(_, pause) = &answer { *pause } else { Duration::ZERO };
    Ok(match (format, &answer) {
        (_, Answer::Fail(status)) => {
            one(*status, &json!({"error": {"message": "the stub was told to fail"}}))
        }
        (Format::Chat, _) if !stream => one(200, &chat::whole(model, &answer)),
        (Format::Messages, _) if !stream => one(200, &messages::whole(model, &answer)),
        (Format::Gemini { streams: false }, _) => one(200, &gemini::whole(&answer)),
        (Format::Gemini { .. }, _) => streamed(gemini::events(&answer), pause),
        (Format::Chat, _) => streamed(chat::events(model, &answer), pause),
        (Format::Messages, _) => streamed(messages::events(model, &answer), pause),
        (Format::Responses | Format::Tokens, _) => {
            streamed(responses::events(model, &answer), pause)
        }
    })
}

/// Whose format a request is in.
#[derive(Debug, Clone, Copy)]
enum Format {
    Chat,
    Messages,
    Responses,
    /// The path says it, not the body.
    Gemini {
        streams: bool,
    },
    Tokens,
}

// === impl Format ===

impl Format {
    fn of(path: &str) -> Option<Self> {
        let ends = [
            ("/chat/completions", Self::Chat),
            ("/messages", Self::Messages),
            ("/messages/count_tokens", Self::Tokens),
            ("/responses", Self::Responses),
            (":streamGenerateContent", Self::Gemini { streams: true }),
            (":generateContent", Self::Gemini { streams: false }),
            (":countTokens", Self::Tokens),
        ];
        ends.into_iter().find(|(end, _)| path.ends_with(end)).map(|(_, format)| format)
    }
}

fn one(status: u16, value: &Value) -> Response<Body> {
    let body = Full::new(Bytes::from(value.to_string())).boxed_unsync();
    Response::builder()
        .status(status)
        .header(CONTENT_TYPE, "application/json")
        .body(body)
        .expect("a fixed header is valid")
}

/// Server-sent events, each followed by the pause where it asks for one.
fn streamed(events: Vec<Event>, pause: Duration) -> Response<Body> {
    let events = stream::iter(events).then(move |event| async move {
        if event.pauses && !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        event.on_the_wire()
    });
    let frames = events.map(|text| Ok(Frame::data(Bytes::from(text))));
    Response::builder()
        .header(CONTENT_TYPE, "text/event-stream")
        .body(BodyExt::boxed_unsync(StreamBody::new(frames)))
        .expect("a fixed header is valid")
}
