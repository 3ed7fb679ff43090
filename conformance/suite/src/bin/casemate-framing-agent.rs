//! An ACP agent for tests of framing: it writes the bytes that a prompt orders, and answers with the hash of each line that
//! it has heard since the last answer. It shares no code with what it tests.

use std::io::{self, BufRead as _, Write as _};

use casemate_suite::recipe::{Heard, Order, SESSION, SPELLED, Side, sha256, write_in_pieces};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Head<'a> {
    /// `null` is an id like any other.
    #[serde(borrow, default, deserialize_with = "there")]
    id: Option<&'a RawValue>,
    #[serde(default)]
    method: Option<String>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<Refusal>,
}

#[derive(Deserialize)]
struct Refusal {
    code: i64,
}

fn there<'de: 'a, 'a, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

#[derive(Deserialize)]
struct Prompt {
    prompt: Vec<Value>,
}

fn main() -> io::Result<()> {
    let mut heard = Vec::new();
    for line in io::stdin().lock().split(b'\n') {
        take(&line?, &mut heard)?;
    }
    Ok(())
}

fn take(line: &[u8], heard: &mut Vec<Heard>) -> io::Result<()> {
    let head = serde_json::from_slice::<Head<'_>>(line).ok();
    let id = head.as_ref().and_then(|head| head.id).map(RawValue::get);
    heard.push(Heard {
        sha256: sha256(line),
        length: line.len(),
        id: id.map(str::to_owned),
        code: head.as_ref().and_then(|head| head.error.as_ref()).map(|error| error.code),
    });
    let Some((id, method)) = id.zip(head.as_ref().and_then(|head| head.method.as_deref())) else {
        return Ok(());
    };
    let result = match method {
        "initialize" => {
            json!({"protocolVersion": 1, "agentCapabilities": {}, "agentInfo": {"name": "framing", "version": "1"}})
        }
        "session/new" => json!({"sessionId": SESSION}),
        "session/prompt" => {
            let params = head.and_then(|head| head.params).map_or("null", RawValue::get);
            return obey(&order(params), id, heard);
        }
        _ => json!({}),
    };
    say(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#).as_bytes())
}

fn order(params: &str) -> Order {
    let texts = serde_json::from_str::<Prompt>(params).map(|prompt| prompt.prompt);
    let texts = texts.unwrap_or_default();
    let order = |block: &Value| serde_json::from_str(block["text"].as_str()?).ok();
    texts.iter().find_map(order).unwrap_or_default()
}

fn obey(order: &Order, id: &str, heard: &mut Vec<Heard>) -> io::Result<()> {
    let side = Side { id, session: SPELLED, line_break: "\r" };
    let mut bytes = Vec::new();
    for (line, end) in &order.lines {
        bytes.extend(line.render(side));
        bytes.extend(end.as_bytes());
    }
    bytes.extend(match &order.answer {
        Some(answer) => answer.render(side),
        None => {
            let heard = json!(std::mem::take(heard));
            let result = json!({"stopReason": "end_turn", "_meta": {"heard": heard}});
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#).into_bytes()
        }
    });
    bytes.push(b'\n');
    write_in_pieces(&mut io::stdout(), &bytes, &order.pieces)
}

fn say(line: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout();
    stdout.write_all(line)?;
    stdout.write_all(b"\n")?;
    stdout.flush()
}
