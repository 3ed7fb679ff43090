//! The lines that the bridge writes by itself.

use std::fmt::Display;

use serde_json::{Value, json};

use crate::acp::bridge::edit::quote;
use crate::codes::{Delivery, rpc};
use crate::ids::SessionId;

/// An answer. `id` and `result` are raw JSON.
pub(crate) fn result(id: &str, result: &str) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#).into_bytes()
}

/// A refusal. `id` is raw JSON.
pub(crate) fn error(id: &str, code: i64, message: &str) -> Vec<u8> {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{}}}}}"#,
        quote(message)
    )
    .into_bytes()
}

/// A refusal of a host's request that goes no further.
pub(crate) fn unsent(id: &str, code: i64, message: &str) -> Vec<u8> {
    lost(id, code, message, Delivery::NotDelivered, None)
}

/// The answer to a request that was cancelled before a worker saw it: for a prompt what ACP asks for.
pub(crate) fn cancelled(id: &str, prompt: bool) -> Vec<u8> {
    if prompt {
        result(id, r#"{"stopReason":"cancelled"}"#)
    } else {
        unsent(id, rpc::CANCELLED, "cancelled before it was sent")
    }
}

/// A refusal of a request that wanted a worker.
pub(crate) fn lost(
    id: &str,
    code: i64,
    message: &str,
    delivery: Delivery,
    session: Option<&SessionId>,
) -> Vec<u8> {
    let mut casemate = json!({"delivery": delivery});
    if let Some(session) = session {
        casemate["session"] = session.as_str().into();
    }
    let data = json!({"casemate": casemate});
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{},"data":{data}}}}}"#,
        quote(message)
    )
    .into_bytes()
}

/// A request of the bridge itself to a worker. `params` is raw JSON.
pub(crate) fn request(id: &str, method: &str, params: &str) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{},"params":{params}}}"#, quote(method))
        .into_bytes()
}

/// The refusal of a method that an agent may not call.
pub(crate) fn refused(id: &str, method: &str) -> Vec<u8> {
    let message = format!("{method} is not available: the agent works in an isolated session");
    error(id, rpc::METHOD_NOT_FOUND, &message)
}

/// How a step that the host shows stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Running,
    Done,
    Failed,
}

/// Shows a step of the bridge inside the turn, as a tool call named `id`.
pub(crate) fn step(session: &SessionId, id: &str, title: &str, step: Step) -> Vec<u8> {
    let status = match step {
        Step::Running => "in_progress",
        Step::Done => "completed",
        Step::Failed => "failed",
    };
    let update = if step == Step::Running {
        json!({"sessionUpdate": "tool_call", "toolCallId": id, "title": title, "kind": "other", "status": status})
    } else {
        json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "title": title, "status": status})
    };
    update_line(session, &update)
}

/// Tells the user something inside the turn.
pub(crate) fn notice(session: &SessionId, id: &str, text: &dyn Display) -> Vec<u8> {
    let text = text.to_string();
    let update = json!({"sessionUpdate": "tool_call", "toolCallId": id, "title": text, "kind": "other",
        "status": "completed",
        "content": [{"type": "content", "content": {"type": "text", "text": text}}]});
    update_line(session, &update)
}

fn update_line(session: &SessionId, update: &Value) -> Vec<u8> {
    json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": session, "update": update}})
        .to_string()
        .into_bytes()
}
