//! What the stub model answers: a pure function of the conversation.
//!
//! The newest user text chooses by one order, anywhere in it:
//!
//! | order | answer |
//! |---|---|
//! | `do: write PATH TEXT` | a call of the tool that writes files, or of the shell |
//! | `do: run COMMAND` | a call of the tool that runs shell commands |
//! | `do: trickle COUNT MS` | COUNT pieces of text, MS milliseconds apart |
//! | `do: text BYTES` | one text of BYTES bytes with multi-byte characters |
//! | `do: fail STATUS` | an HTTP error |
//! | `do: recall` | how many user texts the conversation holds, and the first of them |
//! | none | the fixed text [`PLAIN`] |
//!
//! A conversation that ends with a tool's result is answered by [`AFTER_TOOL`] and the result. Where the request
//! offers no fitting tool (agents ask for titles without tools), the answer is [`PLAIN`].

use std::time::Duration;

use serde_json::{Map, Value, json};

/// The answer to a text without an order: with characters of two, three and four bytes.
pub const PLAIN: &str = "the stub heard you: é漢🙂";

/// Precedes a tool's result in the answer that ends the turn.
pub const AFTER_TOOL: &str = "tool said: ";

/// A conversation as any of the wire formats gives it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    /// User texts, oldest first.
    pub user: Vec<String>,
    /// The tool result that the conversation ends with.
    pub tool_result: Option<String>,
    /// Offered tools: name and JSON schema of the arguments.
    pub tools: Vec<(String, Value)>,
}

/// What to answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Text in pieces with a pause after each.
    Text(Vec<String>, Duration),
    /// One tool call.
    Call(String, Value),
    /// An HTTP status.
    Fail(u16),
}

const WRITERS: [&str; 4] = ["write", "Write", "write_file", "create_file"];
const SHELLS: [&str; 7] =
    ["bash", "Bash", "shell", "shell_command", "exec_command", "run_shell_command", "local_shell"];

/// Decides.
#[must_use]
pub fn answer(conversation: &Conversation) -> Answer {
    if let Some(result) = &conversation.tool_result {
        return text(format!("{AFTER_TOOL}{}", result.chars().take(400).collect::<String>()));
    }
    let newest = conversation.user.last().map_or("", String::as_str);
    let Some(order) = newest.lines().find_map(|line| line.trim().split_once("do: ")) else {
        return text(PLAIN.to_owned());
    };
    let (verb, rest) = order.1.split_once(' ').unwrap_or((order.1, ""));
    match verb {
        "write" => {
            let (path, body) = rest.split_once(' ').unwrap_or((rest, ""));
            let names =
                [("filePath", path), ("file_path", path), ("path", path), ("content", body)];
            // Codex writes by its shell.
            let by_shell = format!("printf %s '{body}' > '{path}'");
            call(conversation, &WRITERS, &names)
                .or_else(|| shell(conversation, &by_shell))
                .unwrap_or_else(plain)
        }
        "run" => shell(conversation, rest).unwrap_or_else(plain),
        "trickle" => {
            let mut numbers = rest.split_whitespace().map(|word| word.parse::<u64>().unwrap_or(1));
            let count = numbers.next().unwrap_or(1);
            let pause = Duration::from_millis(numbers.next().unwrap_or(100));
            Answer::Text((0..count).map(|n| format!("piece{n} ")).collect(), pause)
        }
        "text" => Answer::Text(big(rest.trim().parse().unwrap_or(1)), Duration::ZERO),
        "fail" => Answer::Fail(rest.trim().parse().unwrap_or(500)),
        "recall" => text(format!(
            "{} user texts, the first: {}",
            conversation.user.len(),
            conversation.user.first().map_or("", String::as_str)
        )),
        _ => text(PLAIN.to_owned()),
    }
}

fn text(whole: String) -> Answer {
    Answer::Text(vec![whole], Duration::ZERO)
}

/// Exactly `bytes` bytes in pieces of about 4 KiB; the last piece is filled up with ASCII.
fn big(bytes: usize) -> Vec<String> {
    const UNIT: &str = "0123456789 é漢🙂\n";
    let mut pieces = Vec::new();
    let mut left = bytes;
    while left > 0 {
        let wanted = left.min(4096);
        let mut piece = UNIT.repeat(wanted / UNIT.len());
        piece.push_str(&".".repeat(wanted - piece.len()));
        left -= piece.len();
        pieces.push(piece);
    }
    pieces
}

fn plain() -> Answer {
    text(PLAIN.to_owned())
}

fn shell(conversation: &Conversation, command: &str) -> Option<Answer> {
    let description = "what the stub was told to run";
    call(
        conversation,
        &SHELLS,
        &[("command", command), ("cmd", command), ("description", description)],
    )
}

/// A call of the first of these tools that is offered.
fn call(conversation: &Conversation, names: &[&str], values: &[(&str, &str)]) -> Option<Answer> {
    let offered = names
        .iter()
        .find_map(|name| conversation.tools.iter().find(|(offered, _)| offered == name))?;
    Some(Answer::Call(offered.0.clone(), arguments(&offered.1, values)))
}

/// The values that the schema knows, and something of the right type for what else it requires.
pub(super) fn arguments(schema: &Value, values: &[(&str, &str)]) -> Value {
    let properties = schema["properties"].as_object();
    let known = |name: &str| properties.is_none_or(|known| known.contains_key(name));
    let mut arguments: Map<String, Value> = values
        .iter()
        .filter(|(name, _)| known(name))
        .map(|(name, value)| ((*name).to_owned(), fitting(&schema["properties"][name], value)))
        .collect();
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        arguments.entry(name).or_insert_with(|| {
            match schema["properties"][name]["type"].as_str() {
                Some("boolean") => json!(false),
                Some("number" | "integer") => json!(60_000),
                Some("array") => json!([]),
                Some("object") => json!({}),
                _ => json!("stub"),
            }
        });
    }
    Value::Object(arguments)
}

/// A command as the words of a list, where the schema wants one.
fn fitting(schema: &Value, value: &str) -> Value {
    match schema["type"].as_str() {
        Some("array") => json!(["bash", "-c", value]),
        _ => json!(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str, tools: &[(&str, Value)]) -> Conversation {
        Conversation {
            user: vec!["before".into(), text.into()],
            tool_result: None,
            tools: tools
                .iter()
                .map(|(name, schema)| ((*name).to_owned(), schema.clone()))
                .collect(),
        }
    }

    #[test]
    fn the_offered_schema_decides_the_names_of_the_arguments() {
        let schema = json!({
            "properties": {"filePath": {"type": "string"}, "content": {"type": "string"}, "mode": {"type": "integer"}},
            "required": ["filePath", "mode"],
        });
        assert_eq!(
            answer(&asked("please do: write a/b.txt two words", &[("write", schema)])),
            Answer::Call(
                "write".into(),
                json!({"filePath": "a/b.txt", "content": "two words", "mode": 60_000})
            )
        );
    }

    #[test]
    fn without_the_tool_the_answer_is_text() {
        assert_eq!(answer(&asked("do: run ls", &[])), text(PLAIN.into()));
    }

    #[test]
    fn a_tool_result_ends_the_turn_whatever_was_ordered() {
        let mut conversation = asked("do: run ls", &[("bash", json!({}))]);
        conversation.tool_result = Some("a b".into());
        assert_eq!(answer(&conversation), text("tool said: a b".into()));
    }

    #[test]
    fn a_big_text_has_the_ordered_size() {
        for size in [1, 4095, 4096, 4097, 1_000_000] {
            assert_eq!(big(size).iter().map(String::len).sum::<usize>(), size);
        }
    }

    #[test]
    fn recall_tells_what_the_conversation_holds() {
        assert_eq!(
            answer(&asked("do: recall", &[])),
            text("2 user texts, the first: before".into())
        );
    }
}
