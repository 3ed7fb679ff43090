//! A session that is learned from: it does what its policy refuses, and the policy that would have let it is asked for.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use casemate_audit::Found;
use casemate_protocol::policy::{Diff, Policy};
use casemate_protocol::tier::Tier;
use casemate_protocol::token::Audience;
use casemate_protocol::worker::{StartError, StartEvent};

use crate::client::{Client, text_of};
use crate::harness::{ALL, Slot, call};

fn said(client: &mut Client, session: &str, command: &str) -> String {
    let id = client.prompt(session, &format!("!sh {command}"));
    text_of(&client.answer(id).1)
}

#[test]
fn an_agent_is_learned_from_in_each_tier_and_keys_and_state_stay_closed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for (tier, who) in ALL {
        let outside = tempfile::TempDir::with_prefix("casemate-outside-").unwrap();
        fs::set_permissions(outside.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["secret", "key"] {
            fs::write(outside.path().join(name), "sentinel").unwrap();
        }
        let [secret, key] = ["secret", "key"].map(|name| outside.path().join(name));
        let mut slot = Slot::new(tier, who);
        slot.config.learn = Some(vec![key.clone()]);
        let (worker, address) = slot.serve();
        let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
        client.initialize();
        let session = client.new_session();
        let state = slot.config.volume.join("state");
        let found = said(
            &mut client,
            &session,
            &format!(
                "cat {} && echo secret-read; cat {} && echo key-read; ls {} && echo state-read; \
                 bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}' && echo connected",
                secret.display(),
                key.display(),
                state.display()
            ),
        );
        assert!(found.contains("connected"), "{tier} {who:?} {found}");
        assert!(!found.contains("key-read") && !found.contains("state-read"), "{found}");
        // In a namespace what is outside is not there at all.
        assert_eq!(found.contains("secret-read"), tier == Tier::Domain, "{tier} {who:?} {found}");
        let status = slot.status(address);
        assert!(status.enforcement[0].contains("LEARNING"), "{:?}", status.enforcement);
        let token = slot.token(Audience::Control);
        let (code, learned) = call(address, "GET", "/v1/learned", Some(&token), "");
        assert_eq!(code, 200, "{learned}");
        let base = Policy::parse(&slot.config.policy).unwrap();
        let diff = Diff::between(&base, &Policy::parse(&learned).unwrap());
        let more: Vec<&str> = diff.only_b.iter().map(|one| one.text.as_str()).collect();
        assert_eq!(more.len(), if tier == Tier::Domain { 2 } else { 1 }, "{more:?}");
        let rules = learned.split("# Refused as well").next().unwrap();
        assert!(!rules.contains(&key.display().to_string()), "{learned}");
        worker.stop();
        let recorded =
            casemate_audit::lines(Found::in_directory(&slot.config.volume.join("state")).unwrap());
        let says = |line: &Vec<u8>| String::from_utf8_lossy(line).contains("LEARNING");
        assert!(recorded.unwrap().iter().any(says), "{tier} {who:?}");
    }
}

#[test]
fn another_session_is_not_learned_from() {
    let (tier, who) = ALL[0];
    let slot = Slot::new(tier, who);
    let (worker, address) = slot.serve();
    let token = slot.token(Audience::Control);
    assert_eq!(call(address, "GET", "/v1/learned", Some(&token), "").0, 404);
    worker.stop();
}

/// By its configuration a worker in a Pod would serve without a wall.
#[test]
fn in_a_pod_nobody_is_learned_from() {
    for (tier, who) in ALL {
        let mut slot = Slot::new(tier, who);
        slot.config.learn = Some(Vec::new());
        let pod = ["env", "KUBERNETES_SERVICE_HOST=10.96.0.1", "KUBERNETES_SERVICE_PORT=443"];
        let mut worker = slot.start_by(pod.map(str::to_owned).into());
        let event = worker.outcome();
        let StartEvent::Failed { error: StartError::Forbidden { message } } = &event else {
            panic!("{tier} {who:?}: {event:?}\n{}", worker.log());
        };
        assert!(message.contains("not in a Pod"), "{message}");
        assert_eq!(worker.wait().code(), Some(77));
    }
}
