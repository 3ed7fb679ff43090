//! Anthropic Messages on the wire: <https://docs.anthropic.com/en/api/messages-streaming>.

use serde_json::{Value, json};

use super::event::{Event, fresh_id, text};
use super::plan::{Answer, Conversation};

/// Reads a request's body.
pub(super) fn conversation(body: &Value) -> Conversation {
    let messages = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let results = |message: &Value| -> Vec<String> {
        let parts = message["content"].as_array().map_or(&[][..], Vec::as_slice);
        let results = parts.iter().filter(|part| part["type"] == "tool_result");
        results.map(|part| text(&part["content"])).collect()
    };
    Conversation {
        // A message of results alone is the agent's, not the user's.
        user: messages
            .iter()
            .filter(|message| message["role"] == "user")
            .map(|message| text(&message["content"]))
            .filter(|text| !text.is_empty())
            .collect(),
        tool_result: messages.last().and_then(|last| results(last).pop()),
        tools: body["tools"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|tool| {
                Some((tool["name"].as_str()?.to_owned(), tool["input_schema"].clone()))
            })
            .collect(),
    }
}

/// The whole answer as one JSON object.
pub(super) fn whole(model: &Value, answer: &Answer) -> Value {
    let (block, reason) = match answer {
        Answer::Call(name, arguments) => (tool_use(name, arguments), "tool_use"),
        Answer::Text(pieces, _) => (json!({"type": "text", "text": pieces.concat()}), "end_turn"),
        Answer::Fail(_) => (json!({"type": "text", "text": ""}), "end_turn"),
    };
    json!({
        "id": fresh_id("msg"), "type": "message", "role": "assistant", "model": model, "content": [block],
        "stop_reason": reason, "stop_sequence": null, "usage": usage(),
    })
}

/// The answer as a stream.
pub(super) fn events(model: &Value, answer: &Answer) -> Vec<Event> {
    let mut message = whole(model, answer);
    let reason = message["stop_reason"].take();
    message["content"] = json!([]);
    let start = |block: Value| {
        Event::typed("content_block_start", json!({"index": 0, "content_block": block}))
    };
    let delta =
        |delta: Value| Event::typed("content_block_delta", json!({"index": 0, "delta": delta}));
    let mut events = vec![Event::typed("message_start", json!({"message": message}))];
    match answer {
        Answer::Text(pieces, _) => {
            events.push(start(json!({"type": "text", "text": ""})));
            events.extend(
                pieces
                    .iter()
                    .map(|piece| delta(json!({"type": "text_delta", "text": piece})).then_pause()),
            );
        }
        Answer::Call(name, arguments) => {
            events.push(start(tool_use(name, &json!({}))));
            let written = arguments.to_string();
            events.push(delta(json!({"type": "input_json_delta", "partial_json": written})));
        }
        Answer::Fail(_) => {}
    }
    events.push(Event::typed("content_block_stop", json!({"index": 0})));
    let end = json!({"stop_reason": reason, "stop_sequence": null});
    let end = json!({"delta": end, "usage": {"output_tokens": 5}});
    events.push(Event::typed("message_delta", end));
    events.push(Event::typed("message_stop", json!({})));
    events
}

fn tool_use(name: &str, arguments: &Value) -> Value {
    json!({"type": "tool_use", "id": fresh_id("toolu"), "name": name, "input": arguments})
}

fn usage() -> Value {
    json!({
        "input_tokens": 10, "output_tokens": 5,
        "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
    })
}
