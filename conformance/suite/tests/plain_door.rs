//! The plain door of a worker, as programs that know nothing of casemate use it: the official TypeScript library in a browser and
//! in Node, and the official Rust one, each over its own WebSocket. They hold whole conversations with the scripted agent.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, which is what it is for")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use casemate_protocol::api::Attached;
use casemate_suite::attach::resume;
use casemate_suite::browser::{Browser, Site};
use casemate_suite::place::Place;
use casemate_suite::raw_host::RawHost;
use casemate_suite::skip;
use serde_json::{Value, json};

/// A loaded machine may take long to start a browser.
const PATIENCE: Duration = Duration::from_secs(180);

fn conformance() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Where the npm packages are; nothing where one is missing.
fn modules() -> Option<PathBuf> {
    let modules = conformance().join(".cache/npm/node_modules");
    for package in ["@agentclientprotocol/sdk", "ws", "zod"] {
        if !modules.join(package).exists() {
            skip::skip(&format!("npm: {package} in conformance/.cache/npm"));
            return None;
        }
    }
    Some(modules)
}

/// The door of a session's worker, with pages of these origins let in.
fn door(place: &Place, origins: &[String]) -> Attached {
    place.profile("pages", &format!("origins = {origins:?}\n"));
    let repository = place.repository().display().to_string();
    let mut bridge = place.bridge(&["--repo", &repository, "--profile", "pages"]);
    let mut host = RawHost::start(&mut bridge).unwrap();
    host.initialize().unwrap();
    let session = host.new_session(place).unwrap();
    assert_eq!(host.quit(place).code(), Some(0));
    resume(place, &session)
}

/// What each of the libraries has to come through with.
fn assert_conversation(seen: &Value) {
    assert_eq!(seen["protocol"], 1, "{seen}");
    let ends = ["end_turn", "end_turn", "end_turn", "cancelled"];
    assert_eq!(seen["stops"], Value::from(ends.to_vec()), "{seen}");
    let text = seen["text"].as_str().unwrap();
    assert!(text.contains("from 42") && text.contains("the host's own file"), "{seen}");
    assert_eq!(seen["asked"], json!(["session/request_permission", "fs/read_text_file"]), "{seen}");
}

fn log_of(place: &Place) -> String {
    let logs = place.slots().into_iter().map(|slot| slot.join("run/worker.log"));
    logs.filter_map(|log| std::fs::read_to_string(log).ok()).collect()
}

#[test]
fn a_page_holds_a_conversation_in_a_real_browser_and_strangers_do_not_get_in() {
    if modules().is_none() {
        return;
    }
    let Some(program) = Browser::program() else {
        skip::skip("chromium");
        return;
    };
    let place = Place::new();
    let stranger = Site::start(|| Value::Null).unwrap();
    let facts = place.path().join("door.json");
    let read = facts.clone();
    let site = Site::start(move || {
        serde_json::from_slice(&std::fs::read(&read).unwrap_or_default()).unwrap_or_default()
    })
    .unwrap();
    let attached = door(&place, &[site.origin()]);
    let told =
        json!({"address": attached.address, "token": attached.token, "strange": stranger.origin()});
    std::fs::write(&facts, told.to_string()).unwrap();
    let url = format!("{}/browser/page.html", site.origin());
    let browser = Browser::open(&program, &place, &url).unwrap();
    let seen = site.seen(PATIENCE);
    drop(browser);
    let log = std::fs::read_to_string(place.path().join("browser.log")).unwrap_or_default();
    let seen = seen.unwrap_or_else(|| panic!("the page reported nothing\n{log}"));
    assert!(seen.get("error").is_none(), "{seen}\n{log}");
    assert_conversation(&seen);
    assert_eq!(seen["origin"], site.origin(), "{seen}");
    assert_eq!(seen["chosen"], "casemate.acp.v1", "{seen}");
    // 1006: the handshake was refused. A page is never told more (WHATWG WebSockets, "feedback from the protocol").
    for (what, origin) in [("strange", stranger.origin()), ("sandboxed", "null".to_owned())] {
        assert_eq!(seen[what], json!({"origin": origin, "code": 1006}), "{seen}");
    }
    for what in ["alone", "nothing", "stale"] {
        assert_eq!(seen[what], json!({"code": 1006}), "{what}: {seen}");
    }
    assert_eq!((&seen["fetched"], &seen["read"]), (&json!("refused"), &json!("refused")), "{seen}");
    assert_eq!(seen["early"], json!({"chosen": "casemate.acp.v1", "code": 1002}), "{seen}");
    assert!(!log_of(&place).contains(&attached.token), "a token in the worker's log");
}

#[test]
fn the_typescript_library_over_the_websocket_of_node() {
    let Some(modules) = modules() else { return };
    let place = Place::new();
    let attached = door(&place, &[]);
    let mut node = Command::new("node");
    node.arg(conformance().join("npm/drive-ws.mjs")).arg(modules);
    node.arg(attached.address.to_string());
    node.env_clear().envs(place.environment()).current_dir(place.path());
    let said = place.run(&mut node, &attached.token, PATIENCE);
    assert!(said.status.success(), "{}\n{}", said.out, said.err);
    let seen: Value = serde_json::from_str(said.out.lines().last().unwrap()).unwrap();
    assert_conversation(&seen);
    assert!(seen["connection"].as_str().is_some_and(|id| !id.is_empty()), "{seen}");
    for unasked in ["subprotocol", "extensions", "cookies"] {
        assert_eq!(seen[unasked], Value::Null, "{unasked}: {seen}");
    }
    assert!(!log_of(&place).contains(&attached.token), "a token in the worker's log");
}

#[test]
fn the_rust_library_over_its_own_websocket() {
    let program = conformance().join(".cache/rust-sdk/debug/rust-sdk-client");
    if !program.exists() {
        skip::skip("the Rust library's client in conformance/.cache/rust-sdk");
        return;
    }
    let place = Place::new();
    let attached = door(&place, &[]);
    let mut client = Command::new(program);
    client.arg(attached.address.to_string());
    client.env_clear().envs(place.environment()).current_dir(place.path());
    let said = place.run(&mut client, &attached.token, PATIENCE);
    assert!(said.status.success(), "{}\n{}", said.out, said.err);
    assert_conversation(&serde_json::from_str(said.out.lines().last().unwrap()).unwrap());
}
