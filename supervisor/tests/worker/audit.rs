//! What a worker leaves on record, and what of it shows when somebody else edits it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use casemate_audit::{FILE, Found};
use casemate_protocol::audit::{Fault, Head, Report};
use casemate_protocol::tier::Tier;
use casemate_protocol::token::{Audience, SigningSecret};
use casemate_protocol::worker::StartError;
use serde_json::Value;

use crate::client::Client;
use crate::harness::{ALL, Slot, Who, call, eventually};

fn state(slot: &Slot) -> PathBuf {
    slot.config.volume.join("state")
}

fn events(slot: &Slot) -> Vec<Value> {
    let lines = casemate_audit::lines(Found::in_directory(&state(slot)).unwrap()).unwrap();
    lines.iter().map(|line| serde_json::from_slice(line).unwrap()).collect()
}

fn codes(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["metadata"]["event_code"].as_str().unwrap()).collect()
}

fn verify(slot: &Slot, anchors: &[Head]) -> Report {
    casemate_audit::verify(Found::in_directory(&state(slot)).unwrap(), anchors.iter().copied())
        .unwrap()
}

#[test]
fn a_life_is_on_record_in_each_tier_and_no_secret_is() {
    for (tier, who) in ALL {
        let mut slot = Slot::new(tier, who);
        slot.config.agent.env.insert("KEY".into(), "canary-of-the-environment".into());
        slot.config.agent.argv.push("canary-of-the-arguments".into());
        let (worker, address) = slot.serve();
        let token = slot.token(Audience::Attach);
        let forged = SigningSecret::generate().sign(&slot.claims(Audience::Attach));
        assert_eq!(call(address, "GET", "/v1/status", Some(&forged), "").0, 401);
        let mut client = Client::attach(address, &token).unwrap();
        client.initialize();
        let session = client.new_session();
        client.turn(&session, "canary-of-the-prompt");
        let seen = client.shell(&session, "cat /casemate/state/audit.ndjson; ls -la /casemate");
        assert!(!seen.contains("event_code"), "{seen}");
        let head = slot.status(address).audit_head.unwrap();
        drop(client);
        eventually("the client is gone", || slot.status(address).attachments == 0);
        worker.stop();

        let all = events(&slot);
        let text = fs::read_to_string(state(&slot).join(FILE)).unwrap();
        for secret in ["canary", "cm1.", token.as_str()] {
            assert!(!text.contains(secret), "{tier} {who:?}: {secret} in\n{text}");
        }
        let wanted = [
            "policy.in_force",
            "program.started",
            "call.refused",
            "client.attached",
            "process.launched",
            "client.detached",
            "process.ended",
            "program.stopped",
        ];
        assert_eq!(codes(&all), wanted, "{tier} {who:?}");
        assert_eq!(all[0]["entity"]["uid"].as_str().unwrap().len(), 64);
        assert_eq!(all[1]["unmapped"]["tier"], tier.to_string());
        assert_eq!(all[2]["status_detail"], "token signature is wrong");
        assert_eq!(all[2]["actor"]["session"]["uid"], slot.config.session.as_str());
        assert_eq!(all[4]["unmapped"]["arguments"], 1);
        assert!(head.seq >= 5, "{head}");
        let report = verify(&slot, &[head]);
        assert!(report.holds(), "{report:?}");
    }
}

#[test]
fn a_killed_worker_leaves_a_log_that_goes_on() {
    let mut slot = Slot::new(Tier::Domain, Who::User);
    let (mut worker, address) = slot.serve();
    let head = slot.status(address).audit_head.unwrap();
    worker.child.kill().unwrap();
    worker.wait();
    // As a kill in the middle of a write would have left it.
    let path = state(&slot).join(FILE);
    let mut torn = fs::read(&path).unwrap();
    torn.extend_from_slice(b"{\"activity_id\":3,");
    fs::write(&path, torn).unwrap();
    slot.config.generation = slot.config.generation.next();
    let (worker, address) = slot.serve();
    assert!(slot.status(address).audit_head.unwrap().seq > head.seq);
    worker.stop();
    let wanted = [
        "policy.in_force",
        "program.started",
        "log.recovered",
        "policy.in_force",
        "program.started",
        "program.stopped",
    ];
    assert_eq!(codes(&events(&slot)), wanted);
    assert!(verify(&slot, &[head]).holds());
    // Whoever cuts what the kept head was taken from is found out.
    let whole = fs::read_to_string(&path).unwrap();
    let first = whole.split_inclusive('\n').next().unwrap();
    fs::write(&path, first).unwrap();
    assert_eq!(verify(&slot, &[head]).faults, [Fault::Cut { last: 1, anchored: head.seq }]);
}

#[test]
fn without_a_log_no_worker_starts() {
    let mut slot = Slot::new(Tier::Domain, Who::User);
    slot.serve().0.stop();
    slot.config.generation = slot.config.generation.next();
    let path = state(&slot).join(FILE);
    let whole = fs::read_to_string(&path).unwrap();
    fs::write(&path, whole.replacen("Start", "start", 1)).unwrap();
    assert_eq!(verify(&slot, &[]).faults, [Fault::Changed { line: 2 }]);
    fs::write(&path, format!("{whole}{{}}\n")).unwrap();
    let (error, status) = slot.fails();
    assert!(matches!(error, StartError::Volume { .. }), "{error}");
    assert!(error.to_string().contains("casemate audit verify"), "{error}");
    assert_eq!(status.code(), Some(73));
    // A mode is set right: that much an agent in tier `domain` can do to a path that it knows.
    fs::write(&path, whole).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    slot.serve().0.stop();
    assert!(verify(&slot, &[]).holds());
}

#[test]
fn a_refused_start_is_on_record() {
    let mut slot = Slot::new(Tier::Domain, Who::User);
    slot.config.agent.argv = vec!["/nowhere/agent".into()];
    slot.fails();
    let all = events(&slot);
    assert_eq!(codes(&all), ["program.not_started"]);
    assert_eq!(all[0]["unmapped"]["refusal"], "agent-not-found");
    assert_eq!(all[0]["status"], "Failure");
}
