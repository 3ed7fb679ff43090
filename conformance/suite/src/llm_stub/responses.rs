//! OpenAI Responses on the wire: <https://platform.openai.com/docs/api-reference/responses-streaming>. Streams only:
//! nobody asks for anything else.

use serde_json::{Value, json};

use super::event::{Event, fresh_id, text};
use super::plan::{Answer, Conversation};

const RESULTS: [&str; 3] =
    ["function_call_output", "custom_tool_call_output", "local_shell_call_output"];

/// Reads a request's body.
pub(super) fn conversation(body: &Value) -> Conversation {
    let items = body["input"].as_array().map_or(&[][..], Vec::as_slice);
    let last = items.last().unwrap_or(&Value::Null);
    let is_result = last["type"].as_str().is_some_and(|kind| RESULTS.contains(&kind));
    Conversation {
        user: items
            .iter()
            .filter(|item| item["role"] == "user")
            .map(|item| text(&item["content"]))
            .collect(),
        tool_result: is_result.then(|| text(&last["output"])),
        tools: body["tools"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|tool| {
                Some((tool["name"].as_str()?.to_owned(), tool["parameters"].clone()))
            })
            .collect(),
    }
}

/// The answer as a stream.
pub(super) fn events(model: &Value, answer: &Answer) -> Vec<Event> {
    let response = |status: &str, output: Value| {
        json!({
            "id": "resp_stub", "object": "response", "status": status, "model": model,
            "output": output, "usage": usage(),
        })
    };
    let item = |name: &'static str, item: &Value| {
        Event::typed(name, json!({"output_index": 0, "item": item}))
    };
    let created = json!({"response": response("in_progress", json!([]))});
    let mut events = vec![Event::typed("response.created", created)];
    let done = match answer {
        Answer::Text(pieces, _) => {
            // Codex keeps its history by these: with one for all of them a replay ends at the first.
            let id = fresh_id("msg");
            let message = |status: &str, content: Value| {
                json!({
                    "id": id, "type": "message", "role": "assistant", "status": status,
                    "content": content,
                })
            };
            events.push(item("response.output_item.added", &message("in_progress", json!([]))));
            events.extend(pieces.iter().map(|piece| {
                let delta = json!({
                    "item_id": id, "output_index": 0, "content_index": 0, "delta": piece,
                });
                Event::typed("response.output_text.delta", delta).then_pause()
            }));
            let content =
                json!({"type": "output_text", "text": pieces.concat(), "annotations": []});
            message("completed", json!([content]))
        }
        Answer::Call(name, arguments) => {
            let call = json!({
                "id": fresh_id("fc"), "type": "function_call", "status": "completed", "name": name,
                "call_id": fresh_id("call"), "arguments": arguments.to_string(),
            });
            events.push(item("response.output_item.added", &call));
            call
        }
        Answer::Fail(_) => return events,
    };
    events.push(item("response.output_item.done", &done));
    let completed = json!({"response": response("completed", json!([done]))});
    events.push(Event::typed("response.completed", completed));
    events
}

fn usage() -> Value {
    json!({
        "input_tokens": 10, "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 15,
    })
}
