//! What a prompt asks for. Text in, [`Verb`] out.

use std::str::FromStr;

use nix::sys::signal::Signal;
use serde_json::Value;

/// The verbs, for people.
pub const USAGE: &str = "\
!sh CMD           run `sh -c CMD` in the session's cwd; the last chunk is `[exit N]` or `[signal N]`
!tool CMD         run `sh -c CMD` as a tool: its output is the content of a tool call's update
!ask METHOD JSON  send a request to the client; prints `result JSON` or `error JSON`
!perm             ask for a permission; prints the outcome
!sleep N          wait N seconds (fractions allowed); a cancel ends it
!updates N BYTES  send N message chunks of BYTES each
!late N [SECONDS] wait so long (a cancel ends it), end the turn, then send N message chunks
!exit N           leave with exit code N in the middle of the turn
!die SIG          die by a signal (`KILL`, `ABRT`, or a number)
!garbage          write lines that are no JSON-RPC, then end the turn
!env              print the environment, sorted
!cwd              print the session's cwd and the process's
!listen PORT      listen on 127.0.0.1:PORT for the rest of the process; answers each connection with a line
anything else     is echoed";

/// One turn's work.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Verb {
    Shell(String),
    Tool(String),
    Ask { method: String, params: Value },
    Permission,
    Sleep { millis: u64 },
    Updates { count: u64, bytes: usize },
    Late { count: u64, millis: u64 },
    Exit(u8),
    Die(Signal),
    Garbage,
    Environment,
    WorkingDirectory,
    Listen(u16),
    Echo(String),
}

/// Chooses by the first text block that begins with `!` (a broker puts a block of its own before the user's text);
/// without one, all text is echoed.
pub(crate) fn choose(prompt: &Value) -> Result<Verb, String> {
    let texts: Vec<&str> = prompt
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|block| block["text"].as_str())
        .collect();
    match texts.iter().find(|text| text.starts_with('!')) {
        Some(text) => parse(text),
        None => Ok(Verb::Echo(texts.join("\n"))),
    }
}

fn number<T: FromStr>(word: Option<&str>, name: &str) -> Result<T, String> {
    let word = word.ok_or_else(|| format!("{name} is missing"))?;
    word.parse().map_err(|_| format!("{name}: `{word}` is not a number in range"))
}

fn millis(word: Option<&str>) -> Result<u64, String> {
    let seconds: f32 = number(word, "seconds")?;
    let pause = std::time::Duration::try_from_secs_f32(seconds);
    let pause = pause.map_err(|error| format!("seconds: {error}"))?;
    Ok(u64::try_from(pause.as_millis()).unwrap_or(u64::MAX))
}

fn signal(name: &str) -> Result<Signal, String> {
    let unknown = |_| format!("`{name}` is not a signal");
    match name.parse::<i32>() {
        Ok(number) => Signal::try_from(number).map_err(unknown),
        Err(_) => {
            Signal::from_str(&format!("SIG{}", name.trim_start_matches("SIG"))).map_err(unknown)
        }
    }
}

fn parse(text: &str) -> Result<Verb, String> {
    let (verb, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let rest = rest.trim();
    let mut words = rest.split_whitespace();
    Ok(match verb {
        "!sh" => Verb::Shell(rest.to_owned()),
        "!tool" => Verb::Tool(rest.to_owned()),
        "!ask" => {
            let (method, params) = rest.split_once(char::is_whitespace).unwrap_or((rest, "{}"));
            let params =
                serde_json::from_str(params).map_err(|error| format!("params: {error}"))?;
            Verb::Ask { method: method.to_owned(), params }
        }
        "!perm" => Verb::Permission,
        "!sleep" => Verb::Sleep { millis: millis(words.next())? },
        "!updates" => Verb::Updates {
            count: number(words.next(), "count")?,
            bytes: number(words.next(), "bytes")?,
        },
        "!late" => Verb::Late {
            count: number(words.next(), "count")?,
            millis: millis(words.next().or(Some("0")))?,
        },
        "!exit" => Verb::Exit(number(words.next(), "code")?),
        "!die" => Verb::Die(signal(words.next().unwrap_or_default())?),
        "!garbage" => Verb::Garbage,
        "!env" => Verb::Environment,
        "!cwd" => Verb::WorkingDirectory,
        "!listen" => Verb::Listen(number(words.next(), "port")?),
        _ => return Err(format!("unknown verb `{verb}`\n{USAGE}")),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_brokers_block_before_the_verb_is_passed_over() {
        let prompt = json!([
            {"type": "text", "text": "<sender_context>\n{}\n</sender_context>"},
            {"type": "text", "text": "!sh echo hi; exit 3"},
        ]);
        assert_eq!(choose(&prompt), Ok(Verb::Shell("echo hi; exit 3".into())));
    }

    #[test]
    fn each_verb_parses_and_a_wrong_argument_is_named() {
        let text = |text: &str| choose(&json!([{"type": "text", "text": text}]));
        assert_eq!(
            text(r#"!ask fs/read_text_file {"path": "/etc/shadow"}"#),
            Ok(Verb::Ask {
                method: "fs/read_text_file".into(),
                params: json!({"path": "/etc/shadow"})
            })
        );
        assert_eq!(text("!sleep 0.5"), Ok(Verb::Sleep { millis: 500 }));
        assert_eq!(text("!updates 3 100"), Ok(Verb::Updates { count: 3, bytes: 100 }));
        assert_eq!(text("!die KILL"), Ok(Verb::Die(Signal::SIGKILL)));
        assert_eq!(text("!die 11"), Ok(Verb::Die(Signal::SIGSEGV)));
        assert_eq!(text("hello"), Ok(Verb::Echo("hello".into())));
        assert!(text("!exit 256").unwrap_err().contains("code"));
        assert!(text("!sleep -1").is_err());
        assert!(text("!nonsense").unwrap_err().contains("unknown verb"));
    }
}
