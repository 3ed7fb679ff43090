//! `casemate acp` as its host sees it, against an allocator and workers of the test's own.

mod fake;
mod host;
mod stranger;

use std::time::{Duration, Instant};

use fake::{Reply, Stage, obliging, update};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use stranger::Stranger;

fn prompt(session: &str) -> Value {
    json!({"sessionId": session, "prompt": [{"type": "text", "text": "hello"}]})
}

#[test]
fn a_turn_runs_through_and_hanging_up_is_a_detach() {
    let stage = Stage::new(obliging);
    let mut host = stage.host(&[]);
    let session = host.open();
    let id = host.ask("session/prompt", prompt(&session));
    let lines = host.until(id);
    assert_eq!(lines[0]["params"]["sessionId"], session.as_str());
    assert_eq!(lines[1]["result"]["stopReason"], "end_turn");
    host.hang_up();
    assert!(host.end().success());
    // Told nothing of files and terminals; asked for one session; neither stopped nor closed it.
    assert_eq!(stage.heard()[0]["params"]["clientCapabilities"], json!({}));
    let calls = stage.calls();
    assert_eq!(calls.iter().filter(|call| *call == "POST /v1/sessions").count(), 1);
    assert!(
        !calls.iter().any(|call| call.ends_with("/stop") || call.ends_with("/close")),
        "{calls:?}"
    );
}

#[test]
fn the_second_process_is_introduced_from_the_store_and_finds_the_session() {
    let stage = Stage::new(obliging);
    let mut first = stage.host(&[]);
    let session = first.open();
    first.hang_up();
    first.end();
    let before = stage.heard().len();
    let mut second = stage.host(&[]);
    second.answer(
        "initialize",
        json!({"protocolVersion": 1, "clientCapabilities": {"terminal": true}}),
    );
    assert_eq!(stage.heard().len(), before, "no worker was asked");
    let id =
        second.ask("session/load", json!({"sessionId": session, "cwd": "/x", "mcpServers": []}));
    let lines = second.until(id);
    assert_eq!(lines[0]["params"]["sessionId"], session.as_str());
    assert!(lines[1].get("result").is_some());
    let answer = second
        .answer("session/load", json!({"sessionId": "s-aaaaaaaaaaaaaaaaaaaaaaaaaa", "cwd": "/x"}));
    assert_eq!(answer["error"]["code"], -32002);
}

#[test]
fn a_session_that_only_told_the_agents_name_is_closed_again() {
    let stage = Stage::new(obliging);
    let mut host = stage.host(&[]);
    host.answer("initialize", json!({"protocolVersion": 1}));
    host.hang_up();
    assert!(host.end().success());
    assert!(stage.calls().iter().any(|call| call.ends_with("/close")));
}

#[test]
fn a_signal_ends_the_attachment_quickly() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let stage = Stage::new(|line| {
            // The turn never ends.
            if line["method"] == "session/prompt" {
                Reply::Lines(vec![update("w")])
            } else {
                obliging(line)
            }
        });
        let mut host = stage.host(&["--key", "thread"]);
        let session = host.open();
        host.ask("session/prompt", prompt(&session));
        host.line();
        let started = Instant::now();
        kill(Pid::from_raw(i32::try_from(host.child.id()).unwrap()), signal).unwrap();
        assert!(host.end().success());
        assert!(
            started.elapsed() < Duration::from_millis(1500),
            "{signal}: {:?}",
            started.elapsed()
        );
        assert!(
            !stage.calls().iter().any(|call| call.ends_with("/stop") || call.ends_with("/close"))
        );
    }
}

#[test]
fn a_confined_agent_cannot_ask_the_host_for_files_and_terminals() {
    let stage = Stage::new(|line| match line["method"].as_str() {
        Some("session/prompt") => {
            let ask = |id: u64, method: &str| {
                json!({"jsonrpc": "2.0", "id": id, "method": method, "params":
                {"sessionId": "agent-1", "path": "/etc/passwd", "command": "sh"}})
            };
            let end =
                json!({"jsonrpc": "2.0", "id": line["id"], "result": {"stopReason": "end_turn"}});
            Reply::Lines(vec![
                ask(70, "fs/read_text_file"),
                ask(71, "terminal/create"),
                ask(72, "fs/write_text_file"),
                end,
            ])
        }
        _ => obliging(line),
    });
    let mut host = stage.host(&[]);
    let session = host.open();
    let id = host.ask("session/prompt", prompt(&session));
    assert_eq!(host.until(id).len(), 1, "nothing but the answer");
    // The bridge answers the host and the worker on their own ways: the refusals may arrive after the turn's end.
    let refusals = || -> Vec<Value> {
        stage.heard().into_iter().filter(|line| line.get("error").is_some()).collect()
    };
    let patience = Instant::now() + Duration::from_secs(10);
    while refusals().len() < 3 && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(10));
    }
    let refused = refusals();
    assert_eq!(refused.len(), 3);
    assert!(refused.iter().all(|line| line["error"]["code"] == -32601));
}

#[test]
fn a_broken_connection_is_a_typed_error_and_the_next_prompt_goes_on() {
    let mut first = true;
    let stage = Stage::new(move |line| {
        if line["method"] == "session/prompt" && std::mem::take(&mut first) {
            Reply::Cut
        } else {
            obliging(line)
        }
    });
    let mut host = stage.host(&[]);
    let session = host.open();
    let answer = host.answer("session/prompt", prompt(&session));
    assert_eq!(answer["error"]["code"], -32050);
    assert_eq!(
        answer["error"]["data"]["casemate"],
        json!({"delivery": "unknown", "session": session})
    );
    let id = host.ask("session/prompt", prompt(&session));
    let lines = host.until(id);
    assert_eq!(lines.last().unwrap()["result"]["stopReason"], "end_turn");
    let shown: String = lines.iter().map(Value::to_string).collect();
    assert!(shown.contains("waking") && !shown.contains("old words"), "{shown}");
}

#[test]
fn cookies_are_kept_for_the_further_connections_of_an_attachment_and_no_longer() {
    let mut cut = true;
    let stage = Stage::new(move |line| {
        if line["method"] == "session/prompt" && std::mem::take(&mut cut) {
            Reply::Cut
        } else {
            obliging(line)
        }
    });
    let mut host = stage.host(&[]);
    let session = host.open();
    // The worker lets nobody back: the turn is lost, and the next one has an attachment of its own.
    assert!(host.answer("session/prompt", prompt(&session)).get("error").is_some());
    assert_eq!(host.answer("session/prompt", prompt(&session))["result"]["stopReason"], "end_turn");
    assert_eq!(stage.cookies(), ["", "route=a", ""]);
}

#[test]
fn whoever_is_not_the_worker_is_told_nothing_and_is_asked_a_few_times_at_most() {
    for (stranger, pin, words) in stranger::kinds() {
        let stage = Stage::new(obliging);
        let stranger = Stranger::start(stranger);
        stage.lead_to(stranger.address, pin);
        let mut host = stage.host(&[]);
        let answer = host.answer("initialize", json!({"protocolVersion": 1}));
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(words), "{words}: {answer}");
        assert_eq!(answer["error"]["code"], -32050);
        host.hang_up();
        host.end();
        let (asked, heard) = stranger.heard();
        assert!((1..=8).contains(&asked), "{words}: {asked} connections");
        let heard = String::from_utf8_lossy(&heard);
        assert!(!heard.contains("worker-token") && !heard.contains("GET"), "{words}: {heard}");
    }
}

#[test]
fn whoever_was_superseded_stays_away() {
    let stage = Stage::new(|line| {
        if line["method"] == "session/prompt" { Reply::Close(4001) } else { obliging(line) }
    });
    let mut host = stage.host(&[]);
    let session = host.open();
    for delivery in ["unknown", "not_delivered"] {
        let answer = host.answer("session/prompt", prompt(&session));
        assert_eq!(answer["error"]["data"]["casemate"]["delivery"], delivery);
    }
    assert!(!stage.calls().iter().any(|call| call.ends_with("/resume")));
}

#[test]
fn big_lines_pass_in_both_directions() {
    let stage = Stage::new(|line| match line["method"].as_str() {
        Some("session/prompt") => {
            let echo = update(line["params"]["prompt"][0]["text"].as_str().unwrap());
            Reply::Lines(vec![echo, json!({"jsonrpc": "2.0", "id": line["id"], "result": {}})])
        }
        _ => obliging(line),
    });
    let mut host = stage.host(&[]);
    let session = host.open();
    let text = "漢🙂".repeat(2_000_000);
    let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]});
    let id = host.ask("session/prompt", prompt);
    let lines = host.until(id);
    let echo = lines[0]["params"]["update"]["content"]["text"].as_str().unwrap_or("no echo");
    assert!(echo == text, "{} bytes came back of {}", echo.len(), text.len());
}

#[test]
fn garbage_is_answered_and_the_stream_goes_on() {
    let stage = Stage::new(obliging);
    let mut host = stage.host(&[]);
    host.send("hello\r");
    assert_eq!(host.line()["error"]["code"], -32700);
    host.send("");
    host.send("[1]");
    assert_eq!(host.line()["error"]["code"], -32600);
    host.open();
}

#[test]
fn a_host_that_names_its_conversation_is_not_led_into_another_one() {
    let stage = Stage::new(obliging);
    let mut first = stage.host(&["--key", "one"]);
    let session = first.open();
    let mut other = stage.host(&["--key", "two"]);
    other.open();
    let answer = other.answer("session/load", json!({"sessionId": session, "cwd": "/x"}));
    assert_eq!(answer["error"]["code"], -32002);
    assert!(answer["error"]["message"].as_str().unwrap().contains("`one`"), "{answer}");
    let answer = first.answer("session/load", json!({"sessionId": session, "cwd": "/x"}));
    assert!(answer.get("result").is_some());
}

#[test]
fn a_host_that_does_not_read_holds_its_agents_back_and_is_heard_all_the_same() {
    const FLOOD: usize = 100;
    let stage = Stage::new(|line| match line["method"].as_str() {
        Some("session/prompt") => {
            Reply::Lines((0..FLOOD).map(|_| update(&"x".repeat(1_000_000))).collect())
        }
        _ => obliging(line),
    });
    let mut host = stage.host(&[]);
    let flooding = host.open();
    let answer = host.answer("session/new", json!({"cwd": "/x", "mcpServers": []}));
    let other = answer["result"]["sessionId"].as_str().unwrap().to_owned();
    host.ask("session/prompt", prompt(&flooding));
    std::thread::sleep(Duration::from_secs(2));
    host.send(&json!({"method": "session/cancel", "params": {"sessionId": other}}).to_string());
    let started = Instant::now();
    while !stage.heard().iter().any(|line| line["method"] == "session/cancel") {
        assert!(started.elapsed() < Duration::from_secs(5), "the cancel does not get through");
        std::thread::sleep(Duration::from_millis(10));
    }
    let held = host.memory();
    assert!(held < 64 << 20, "{held} bytes are held for a host that does not read");
    // Acknowledged is what was written whole to the host: what its pipe and its reader hold, and no more.
    let acknowledged = stage.acknowledged();
    assert!(acknowledged < 12, "{acknowledged} messages");
    (0..FLOOD).for_each(|_| drop(host.line()));
    while stage.acknowledged() < FLOOD as u64 {
        assert!(started.elapsed() < Duration::from_secs(30), "{} messages", stage.acknowledged());
        std::thread::sleep(Duration::from_millis(10));
    }
}
