//! Refused paths, guessed from what the agent's tools say: ACP updates of tool calls that hold "Permission denied".
//!
//! Pure. Nothing sees a refused open(2) without asking about every one, so this is the agent's word, read as text and told as a guess. It
//! decides nothing.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde_json::Value;

/// Longer lines are not searched: what a tool says of a refusal is short.
const LONGEST: usize = 256 << 10;
/// Of one update.
const MOST_TEXT: usize = 16 << 10;

// Made once: every line of the agent is searched.
static TOOL_CALL: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new(b"\"tool_call"));
static DENIED: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new(b"ermission denied"));
static EACCES: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new(b"EACCES"));

/// What a tool call's update says, where it says that permission was denied.
#[must_use]
pub fn denied(line: &[u8]) -> Option<String> {
    let says = |words: &Finder<'_>| words.find(line).is_some();
    if line.len() > LONGEST || !says(&TOOL_CALL) || !(says(&DENIED) || says(&EACCES)) {
        return None;
    }
    let line: Value = serde_json::from_slice(line).ok()?;
    let update = &line["params"]["update"];
    if !update["sessionUpdate"].as_str()?.starts_with("tool_call") {
        return None;
    }
    let mut text = String::new();
    // Not what it was asked to do: a command that only mentions the words was refused nothing.
    for part in ["content", "rawOutput"] {
        collect(&update[part], &mut text);
    }
    (!text.is_empty()).then_some(text)
}

fn collect(value: &Value, text: &mut String) {
    match value {
        Value::String(one) if text.len() + one.len() < MOST_TEXT => {
            text.push_str(one);
            text.push('\n');
        }
        Value::Array(all) => all.iter().for_each(|one| collect(one, text)),
        Value::Object(all) => all.values().for_each(|one| collect(one, text)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(update: &Value) -> Vec<u8> {
        json!({"method": "session/update", "params": {"update": update}}).to_string().into_bytes()
    }

    #[test]
    fn only_what_a_tool_put_out_is_read() {
        let said = "cat: /x: Permission denied";
        let content = json!([{"type": "content", "content": {"type": "text", "text": said}}]);
        let tool = json!({"sessionUpdate": "tool_call_update", "content": content});
        assert!(denied(&line(&tool)).unwrap().contains(said));
        let raw = json!({"sessionUpdate": "tool_call", "rawOutput": {"stderr": said}});
        assert!(denied(&line(&raw)).unwrap().contains(said));
        for other in [
            json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": said}}),
            json!({"sessionUpdate": "tool_call", "rawInput": {"command": said}}),
            json!({"sessionUpdate": "tool_call", "title": said}),
        ] {
            assert_eq!(denied(&line(&other)), None, "{other}");
        }
        let long = json!({"sessionUpdate": "tool_call", "rawOutput": said.repeat(LONGEST)});
        assert_eq!(denied(&line(&long)), None);
    }
}
