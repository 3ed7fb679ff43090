//! `casemate audit` with the real programs: what a session's life leaves on record, and every way to hide a part of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails there")]

mod host;
mod house;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use house::House;
use serde_json::{Value, json};

/// The exit code and the verdicts.
fn verify(house: &House, args: &[&str]) -> (i32, Vec<Value>) {
    let mut all = vec!["audit", "verify", "--json"];
    all.extend(args);
    let output = house.command(&all);
    let text = String::from_utf8(output.stdout).unwrap();
    let verdicts = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (output.status.code().unwrap(), verdicts)
}

fn faults(house: &House, args: &[&str]) -> Value {
    let (code, verdicts) = verify(house, args);
    assert_eq!((code, verdicts.len()), (65, 1), "{verdicts:?}");
    verdicts[0]["report"]["faults"].clone()
}

fn codes(house: &House, log: &str) -> Vec<String> {
    let output = house.command(&["audit", "show", log, "--json"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let code = |line: &str| -> String {
        let event: Value = serde_json::from_str(line).unwrap();
        event["metadata"]["event_code"].as_str().unwrap().to_owned()
    };
    text.lines().map(code).collect()
}

fn log_of(house: &House) -> PathBuf {
    let slots = fs::read_dir(house.home().join("slots")).unwrap();
    let logs = slots.map(|slot| slot.unwrap().path().join("state/audit.ndjson"));
    let all: Vec<PathBuf> = logs.filter(|log| log.exists()).collect();
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].clone()
}

#[test]
fn a_sessions_life_is_on_record_and_nothing_of_it_is_hidden_unseen() {
    let house = House::new();
    let mut host = house.acp(&["--env", "KEY=canary-value"]);
    let session = host.open();
    let prompt = json!([{"type": "text", "text": "!sh echo canary-prompt"}]);
    host.answer("session/prompt", json!({"sessionId": session, "prompt": prompt}));
    host.hang_up();
    host.end();
    house.kill_worker(&session);
    let started = Instant::now();
    while !codes(&house, "allocator").contains(&"worker.lost".to_owned()) {
        assert!(started.elapsed() < Duration::from_secs(20), "the loss is not on record");
        std::thread::sleep(Duration::from_millis(50));
    }
    // Its end was seen when it was gone, so what it had not told yet cannot be cut off either.
    let log = log_of(&house);
    let whole = fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    let (code, verdicts) = verify(&house, &[&session]);
    assert_eq!(code, 0, "{verdicts:?}");
    let last = verdicts[0]["report"]["head"]["seq"].as_u64().unwrap();
    assert_eq!(last, lines.len() as u64);
    assert!(verdicts[0]["report"]["anchors"].as_u64().unwrap() > 0);
    for kept in 0..lines.len() {
        fs::write(&log, lines[..kept].concat()).unwrap();
        let wanted = json!([{"fault": "cut", "last": kept, "anchored": last}]);
        assert_eq!(faults(&house, &[&session]), wanted);
    }
    fs::write(&log, whole.replacen("the policy is", "no policy is", 1)).unwrap();
    assert_eq!(faults(&house, &[&session]), json!([{"fault": "changed", "line": 1}]));
    fs::write(&log, &whole).unwrap();

    // Woken again it goes on; closed and deleted, the log stays.
    let mut host = house.acp(&[]);
    host.answer("initialize", json!({"protocolVersion": 1}));
    let id = host.ask("session/load", json!({"sessionId": session, "cwd": "/", "mcpServers": []}));
    host.until(id);
    host.hang_up();
    host.end();
    let close = ["sessions", "close", &session, "--force", "--discard", "--json"];
    house.json(&close);
    assert_eq!(verify(&house, &[]).0, 0);
    let told = codes(&house, &session);
    for code in ["policy.in_force", "client.attached", "process.launched", "program.stopped"] {
        assert!(told.iter().any(|told| told == code), "{code} not in {told:?}");
    }
    let told = codes(&house, "allocator");
    for code in [
        "program.started",
        "session.created",
        "session.woken",
        "token.issued",
        "log.anchored",
        "worker.lost",
        "session.closed",
        "session.deleted",
    ] {
        assert!(told.iter().any(|told| told == code), "{code} not in {told:?}");
    }
    let kept = house.home().join("audit").join(&session).join("audit.ndjson");
    let endpoint: Value =
        serde_json::from_slice(&fs::read(house.home().join("run/allocator.json")).unwrap())
            .unwrap();
    let all = fs::read_to_string(&kept).unwrap()
        + &fs::read_to_string(house.home().join("audit.ndjson")).unwrap();
    for secret in ["canary", "cm1.", endpoint["token"].as_str().unwrap()] {
        assert!(!all.contains(secret), "{secret} in\n{all}");
    }
    fs::remove_dir_all(kept.parent().unwrap()).unwrap();
    assert_eq!(faults(&house, &[&session])[0]["fault"], "cut");
}

#[test]
fn the_allocators_own_log_holds_against_its_head_and_against_one_kept_elsewhere() {
    let house = House::new();
    assert_eq!(house.command(&["audit", "verify"]).status.code(), Some(66));
    assert!(house.command(&["up", "--detach"]).status.success());
    let head = String::from_utf8(house.command(&["audit", "head"]).stdout).unwrap();
    let up = house.command(&["up", "--stop"]);
    assert!(up.status.success(), "{up:?}");
    assert_eq!(codes(&house, "allocator"), ["program.started", "program.stopped"]);
    assert_eq!(verify(&house, &["allocator", "--head", head.trim()]).0, 0);
    let text = String::from_utf8(house.command(&["audit", "show"]).stdout).unwrap();
    assert!(text.lines().nth(1).unwrap().ends_with("casemate-allocator ends"), "{text}");
    let log = house.home().join("audit.ndjson");
    let whole = fs::read_to_string(&log).unwrap();
    fs::write(&log, whole.split_inclusive('\n').next().unwrap()).unwrap();
    let cut = json!([{"fault": "cut", "last": 1, "anchored": 2}]);
    assert_eq!(faults(&house, &["allocator"]), cut);
    fs::write(&log, whole).unwrap();
    let other = head.trim().replace(':', ":0")[..head.trim().len()].to_owned();
    let rewritten = json!([{"fault": "rewritten", "seq": 1}]);
    assert_eq!(faults(&house, &["allocator", "--head", &other]), rewritten);
}
