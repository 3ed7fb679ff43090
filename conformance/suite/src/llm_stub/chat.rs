//! OpenAI chat completions on the wire: <https://platform.openai.com/docs/api-reference/chat>.

use serde_json::{Value, json};

use super::event::{Event, fresh_id, text};
use super::plan::{Answer, Conversation};

/// Reads a request's body.
pub(super) fn conversation(body: &Value) -> Conversation {
    let messages = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let last = messages.last().unwrap_or(&Value::Null);
    Conversation {
        user: messages
            .iter()
            .filter(|message| message["role"] == "user")
            .map(|message| text(&message["content"]))
            .collect(),
        tool_result: (last["role"] == "tool").then(|| text(&last["content"])),
        tools: body["tools"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|tool| {
                let function = &tool["function"];
                Some((function["name"].as_str()?.to_owned(), function["parameters"].clone()))
            })
            .collect(),
    }
}

/// The whole answer as one JSON object.
pub(super) fn whole(model: &Value, answer: &Answer) -> Value {
    let (message, reason) = match answer {
        Answer::Call(name, arguments) => (
            json!({"role": "assistant", "content": null, "tool_calls": [tool_call(name, arguments)]}),
            "tool_calls",
        ),
        Answer::Text(pieces, _) => {
            (json!({"role": "assistant", "content": pieces.concat()}), "stop")
        }
        Answer::Fail(_) => (json!({}), "stop"),
    };
    json!({
        "id": "chatcmpl-stub", "object": "chat.completion", "created": 0, "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": reason}], "usage": usage(),
    })
}

/// The answer as a stream.
pub(super) fn events(model: &Value, answer: &Answer) -> Vec<Event> {
    let chunk = |delta: Value, reason: Value| {
        json!({
            "id": "chatcmpl-stub", "object": "chat.completion.chunk", "created": 0, "model": model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
        })
    };
    let event = |delta: Value, reason: Value| Event::unnamed(&chunk(delta, reason));
    let mut events = vec![event(json!({"role": "assistant", "content": ""}), Value::Null)];
    match answer {
        Answer::Text(pieces, _) => {
            events.extend(
                pieces
                    .iter()
                    .map(|piece| event(json!({"content": piece}), Value::Null).then_pause()),
            );
            events.push(event(json!({}), json!("stop")));
        }
        Answer::Call(name, arguments) => {
            let mut call = tool_call(name, arguments);
            call["index"] = json!(0);
            events.push(event(json!({"tool_calls": [call]}), Value::Null));
            events.push(event(json!({}), json!("tool_calls")));
        }
        Answer::Fail(_) => {}
    }
    let mut last = chunk(json!({}), Value::Null);
    last["choices"] = json!([]);
    last["usage"] = usage();
    events.push(Event::unnamed(&last));
    events.push(Event { name: None, data: "[DONE]".into(), pauses: false });
    events
}

fn tool_call(name: &str, arguments: &Value) -> Value {
    json!({"id": fresh_id("call"), "type": "function", "function": {"name": name, "arguments": arguments.to_string()}})
}

fn usage() -> Value {
    json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15})
}
