//! The official TypeScript client library in front of `casemate acp`, and before that in front of the bare agent.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, which is what it is for")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use casemate_suite::place::{Place, program};
use casemate_suite::skip;
use serde_json::Value;

/// Runs `drive.mjs` with an agent's command line; nothing where the library or node is missing.
fn drive(place: &Place, agent: &[&str]) -> Option<Value> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let modules: PathBuf = root.join(".cache/npm/node_modules");
    if !modules.join("@agentclientprotocol/sdk").exists() {
        skip::skip("@agentclientprotocol/sdk in conformance/.cache/npm");
        return None;
    }
    let mut node = Command::new("node");
    node.arg(root.join("npm/drive.mjs")).arg(modules).args(agent);
    node.env_clear().envs(place.environment()).current_dir(place.path());
    let said = place.run(&mut node, "", Duration::from_secs(90));
    assert!(said.status.success(), "{}\n{}", said.out, said.err);
    Some(serde_json::from_str(said.out.lines().last().unwrap()).unwrap())
}

/// What holds with and without casemate in between.
fn assert_conversation(seen: &Value) {
    assert_eq!(seen["protocol"], 1, "{seen}");
    let ends = ["end_turn", "end_turn", "end_turn", "cancelled"];
    assert_eq!(seen["stops"], Value::from(ends.to_vec()), "{seen}");
    assert!(seen["text"].as_str().unwrap().contains("from 42"), "{seen}");
    assert!(seen["asked"].as_array().unwrap().contains(&"session/request_permission".into()));
}

#[test]
fn the_bare_agent_reads_a_file_of_the_host_by_asking() {
    let place = Place::new();
    let agent = place.scripted_agent();
    let Some(seen) = drive(&place, &[agent.to_str().unwrap()]) else { return };
    assert_conversation(&seen);
    assert!(seen["text"].as_str().unwrap().contains("the host's own file"), "{seen}");
}

#[test]
fn behind_casemate_the_host_is_out_of_reach_and_all_else_works() {
    let place = Place::new();
    let agent = place.scripted_agent();
    let casemate = program("casemate");
    let repository = place.repository();
    let command = [
        casemate.to_str().unwrap(),
        "acp",
        "--repo",
        repository.to_str().unwrap(),
        "--program",
        agent.parent().unwrap().to_str().unwrap(),
        "--",
        agent.to_str().unwrap(),
    ];
    let Some(seen) = drive(&place, &command) else { return };
    assert_conversation(&seen);
    assert_eq!(seen["exit"], 0, "{seen}");
    let asked = seen["asked"].as_array().unwrap();
    assert!(!asked.contains(&"fs/read_text_file".into()), "the host was asked: {seen}");
    let text = seen["text"].as_str().unwrap();
    assert!(!text.contains("the host's own file") && text.contains("-32601"), "{seen}");
}
