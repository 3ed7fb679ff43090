//! Lines that the server writes itself. Raw JSON parts are put in as they are.

use crate::acp::fault::error_line;
use crate::acp::frame::{MAX_LINE, Outline, Owed};
use crate::codes::rpc;

/// A successful response; `id` and `result` are raw JSON.
pub(super) fn result(id: &str, result: &str) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#).into_bytes()
}

/// A `session/update` notification; `session` and `update` are raw JSON.
pub(super) fn update(session: &str, update: &str) -> Vec<u8> {
    format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":{session},"update":{update}}}}}"#
    )
    .into_bytes()
}

/// What a client said, as a replay shows it; `block` is one raw content block of its prompt. One that fits no line is told of.
pub(super) fn user_chunk(session: &str, block: &str) -> Vec<u8> {
    let chunk = |block: &str| {
        // At once: a block may be as long as a line.
        format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":{session},"update":{{"sessionUpdate":"user_message_chunk","content":{block}}}}}}}"#
        )
        .into_bytes()
    };
    let whole = chunk(block);
    if whole.len() <= MAX_LINE {
        return whole;
    }
    let text = quote(&format!("casemate: {} bytes are too many to be shown again", block.len()));
    chunk(&format!(r#"{{"type":"text","text":{text}}}"#))
}

/// What a client gets in place of an answer that is longer than [`MAX_LINE`].
pub(super) fn too_long(answer: &[u8]) -> Vec<u8> {
    let Outline { length, owed } = Outline::of(answer);
    let id = if let Owed::Asker(id) = &owed { id } else { "null" };
    let text = format!(
        "the answer has {length} bytes with this request's id, more than the {MAX_LINE} that are relayed"
    );
    error_line(id, rpc::INTERNAL, &text, None)
}

/// Cancels a conversation's turn; `session` is raw JSON.
pub(super) fn cancel(session: &str) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","method":"session/cancel","params":{{"sessionId":{session}}}}}"#)
        .into_bytes()
}

/// Tells a client that its prompt waits.
pub(super) fn waiting(session: &str, notice: &str) -> Vec<u8> {
    update(
        session,
        &format!(
            r#"{{"sessionUpdate":"tool_call","toolCallId":"{notice}","title":"casemate: waiting for the running turn to end","kind":"other","status":"in_progress"}}"#
        ),
    )
}

/// Ends what [`waiting`] began; `status` is `completed` or `failed`.
pub(super) fn waited(session: &str, notice: &str, status: &str) -> Vec<u8> {
    update(
        session,
        &format!(
            r#"{{"sessionUpdate":"tool_call_update","toolCallId":"{notice}","status":"{status}"}}"#
        ),
    )
}

/// Tells a client something inside a turn.
pub(super) fn notice(session: &str, id: &str, text: &str) -> Vec<u8> {
    let title = quote(&format!("casemate: {text}"));
    update(
        session,
        &format!(
            r#"{{"sessionUpdate":"tool_call","toolCallId":"{id}","title":{title},"kind":"other","status":"completed"}}"#
        ),
    )
}

/// Tells a client what was refused, inside a turn.
pub(super) fn refusal(session: &str, id: &str, what: &str, why: &str) -> Vec<u8> {
    let (title, text) = (quote(what), quote(why));
    update(
        session,
        &format!(
            r#"{{"sessionUpdate":"tool_call","toolCallId":"{id}","title":{title},"kind":"other","status":"failed","content":[{{"type":"content","content":{{"type":"text","text":{text}}}}}]}}"#
        ),
    )
}

/// `text` as raw JSON.
pub(super) fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A close reason: at most 123 bytes of UTF-8 (RFC 6455 section 5.5: a control frame carries 125, two are the code).
pub(super) fn reason(text: &str) -> String {
    text[..text.floor_char_boundary(123)].to_owned()
}
