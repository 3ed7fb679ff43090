//! The agent of the benchmark. It speaks just as much ACP as opens a turn, then does as the prompt says: becomes cat(1), or
//! says a number of updates. A line that is the bare command does the same, for relays that know no ACP.

use std::fs::File;
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};

use serde_json::{Value, json};

/// A line of exactly this length, its line end included.
pub(crate) fn update(length: usize) -> Vec<u8> {
    let (head, tail) = (
        r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":""#,
        "\"}}}}\n",
    );
    padded(head, tail, length)
}

/// A message that an agent and a client may say to each other at any time, of exactly this length with its line end.
pub(crate) fn note(length: usize) -> Vec<u8> {
    padded(r#"{"jsonrpc":"2.0","method":"_bench/note","params":{"text":""#, "\"}}\n", length)
}

fn padded(head: &str, tail: &str, length: usize) -> Vec<u8> {
    let words =
        "some words of text, \\\"quoted\\\" and not, with a line end\\n".repeat(length / 50 + 1);
    let mut room = length - head.len() - tail.len();
    while !words.is_char_boundary(room) || words[..room].ends_with('\\') {
        room -= 1;
    }
    let mut line = format!("{head}{}", &words[..room]);
    line.push_str(&"x".repeat(length - line.len() - tail.len()));
    line.push_str(tail);
    line.into_bytes()
}

/// Does what it is told on stdin.
pub(crate) fn run() {
    let mut stdin = io::stdin().lock();
    let mut stdout = own(io::stdout().as_fd());
    loop {
        let mut line = String::new();
        if stdin.read_line(&mut line).unwrap() == 0 {
            return;
        }
        let (id, command) = match serde_json::from_str::<Value>(&line) {
            Ok(message) if message["method"] == "session/prompt" => {
                (message["id"].clone(), message["params"]["prompt"][0]["text"].to_string())
            }
            Ok(message) => {
                let result =
                    json!({"protocolVersion": 1, "agentCapabilities": {}, "sessionId": "s"});
                let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
                writeln!(stdout, "{answer}").unwrap();
                stdout.flush().unwrap();
                continue;
            }
            Err(_) => (Value::Null, line),
        };
        let words: Vec<&str> = command.trim().trim_matches('"').split(' ').collect();
        if words[0] == "flood" {
            flood(&mut stdout, words[1].parse().unwrap(), words[2].parse().unwrap());
        }
        if !id.is_null() {
            let result = json!({"stopReason": "end_turn"});
            writeln!(stdout, "{}", json!({"jsonrpc": "2.0", "id": id, "result": result})).unwrap();
            stdout.flush().unwrap();
        }
        if words[0] == "echo" {
            drop(stdout);
            return cat(&mut stdin);
        }
    }
}

/// Past the buffers of the standard library.
fn own(fd: BorrowedFd<'_>) -> File {
    File::from(fd.try_clone_to_owned().unwrap())
}

fn flood(out: &mut File, count: usize, length: usize) {
    let line = update(length);
    // As a program does whose stdout is a pipe (setvbuf(3)): not a write(2) a line.
    let mut out = io::BufWriter::with_capacity(64 * 1024, out);
    (0..count).for_each(|_| out.write_all(&line).unwrap());
    out.flush().unwrap();
}

fn cat(from: &mut io::StdinLock<'_>) {
    let (mut pipe, mut out) = (own(io::stdin().as_fd()), own(io::stdout().as_fd()));
    // What was read ahead, then the pipe itself.
    let ahead = from.fill_buf().unwrap().to_vec();
    from.consume(ahead.len());
    out.write_all(&ahead).unwrap();
    let mut bytes = vec![0; 128 * 1024];
    while let Ok(length @ 1..) = pipe.read(&mut bytes) {
        out.write_all(&bytes[..length]).unwrap();
    }
}
