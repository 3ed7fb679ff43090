//! Gemini on the wire: <https://ai.google.dev/api/generate-content>.

use serde_json::{Value, json};

use super::event::{Event, fresh_id, text};
use super::plan::{Answer, Conversation};

/// Reads a request's body.
pub(super) fn conversation(body: &Value) -> Conversation {
    let contents = body["contents"].as_array().map_or(&[][..], Vec::as_slice);
    let declared = |tool: &Value| tool["functionDeclarations"].as_array().cloned();
    Conversation {
        // A message of results alone is the agent's, not the user's.
        user: contents
            .iter()
            .filter(|content| content["role"] == "user")
            .map(|content| text(&content["parts"]))
            .filter(|text| !text.is_empty())
            .collect(),
        tool_result: contents.last().and_then(result),
        tools: body["tools"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(declared)
            .flatten()
            .filter_map(|function| {
                let schemas = [&function["parametersJsonSchema"], &function["parameters"]];
                let schema = schemas.into_iter().find(|schema| !schema.is_null());
                Some((function["name"].as_str()?.to_owned(), schema.cloned().unwrap_or_default()))
            })
            .collect(),
    }
}

/// The last result of a tool that a message holds.
fn result(content: &Value) -> Option<String> {
    let parts = content["parts"].as_array()?;
    let result = parts.iter().rev().find_map(|part| part.get("functionResponse"))?;
    let response = &result["response"];
    Some(response["output"].as_str().map_or_else(|| response.to_string(), str::to_owned))
}

/// The schema that an answer without tools has to fit, where one is asked for.
pub(super) fn schema(body: &Value) -> Option<&Value> {
    let config = &body["generationConfig"];
    let schemas = [&config["responseJsonSchema"], &config["responseSchema"]];
    schemas.into_iter().find(|schema| schema.is_object())
}

/// The whole answer as one JSON object.
pub(super) fn whole(answer: &Answer) -> Value {
    match answer {
        Answer::Call(name, arguments) => candidate(&call(name, arguments), true),
        Answer::Text(pieces, _) => candidate(&json!({"text": pieces.concat()}), true),
        Answer::Fail(_) => candidate(&json!({"text": ""}), true),
    }
}

/// The answer as a stream.
pub(super) fn events(answer: &Answer) -> Vec<Event> {
    let Answer::Text(pieces, _) = answer else { return vec![Event::unnamed(&whole(answer))] };
    let piece =
        |piece: &String| Event::unnamed(&candidate(&json!({"text": piece}), false)).then_pause();
    let mut events: Vec<Event> = pieces.iter().map(piece).collect();
    events.push(Event::unnamed(&candidate(&json!({"text": ""}), true)));
    events
}

fn call(name: &str, arguments: &Value) -> Value {
    json!({"functionCall": {"id": fresh_id("call"), "name": name, "args": arguments}})
}

fn candidate(part: &Value, last: bool) -> Value {
    let mut candidate = json!({"index": 0, "content": {"role": "model", "parts": [part]}});
    if last {
        candidate["finishReason"] = "STOP".into();
    }
    json!({
        "candidates": [candidate], "modelVersion": "stub", "responseId": fresh_id("response"),
        "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15},
    })
}
