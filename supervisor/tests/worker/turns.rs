//! Turns through the worker, in every tier and for everybody who may start one.

use std::fs;

use casemate_protocol::tier::Tier;
use casemate_protocol::token::Audience;
use casemate_protocol::worker::AgentState;
use serde_json::json;

use crate::client::{Client, Closed, text_of};
use crate::harness::{ALL, Slot, Who};

#[test]
fn initialize_new_prompt_and_the_files_are_the_sessions() {
    for (tier, who) in ALL {
        let slot = Slot::new(tier, who);
        let (worker, address) = slot.serve();
        let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
        assert!(client.connection_id.starts_with("b-"));
        let hello = client.initialize();
        assert_eq!(hello["result"]["protocolVersion"], 1, "{tier} {who:?}: {hello}");
        let session = client.new_session();
        let written = client.shell(&session, "echo data > file; git branch --show-current; pwd");
        assert!(written.contains(&format!("casemate/{}", slot.config.session)), "{written}");
        let work = if tier == Tier::Namespace {
            "/work".to_owned()
        } else {
            slot.session().join("work").display().to_string()
        };
        assert!(written.contains(&format!("\n{work}\n")), "{tier} {who:?}: {written}");
        assert_eq!(fs::read_to_string(slot.session().join("work/file")).unwrap(), "data\n");

        let status = slot.status(address);
        assert_eq!(status.tier, tier);
        assert!(matches!(status.agent, AgentState::Running { .. }));
        assert!(status.prompted && status.acp_session.as_deref() == Some(session.as_str()));
        let capabilities = "capabilities none".to_owned();
        assert!(status.enforcement.contains(&capabilities), "{:?}", status.enforcement);
        worker.stop();
    }
}

#[test]
fn a_second_client_takes_over_and_load_replays_what_was_said() {
    let slot = Slot::new(Tier::Namespace, Who::User);
    let (worker, address) = slot.serve();
    let token = slot.token(Audience::Attach);
    let mut first = Client::attach(address, &token).unwrap();
    first.initialize();
    let session = first.new_session();
    assert_eq!(first.turn(&session, "remember me").0, "end_turn");
    let mut second = Client::attach(address, &token).unwrap();
    let closed = first.receive().unwrap_err();
    assert!(matches!(closed, Closed::With(4001, _)), "{closed:?}");
    second.initialize();
    let load = json!({"sessionId": session, "cwd": "/elsewhere", "mcpServers": []});
    let id = second.request("session/load", load);
    let (answer, replayed) = second.answer(id);
    assert!(answer.get("result").is_some(), "{answer}");
    assert!(text_of(&replayed).contains("remember me"), "{replayed:?}");
    assert_eq!(second.turn(&session, "again").1, "echo: again");
    assert_eq!(slot.status(address).epoch.0, 2);
    worker.stop();
}

#[test]
fn a_detached_turn_runs_to_its_end_and_the_next_worker_loads_it() {
    let mut slot = Slot::new(Tier::Namespace, Who::User);
    let (worker, address) = slot.serve();
    let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
    client.initialize();
    let session = client.new_session();
    client.prompt(&session, "!sh sleep 0.5; echo done > done");
    drop(client);
    crate::harness::eventually("the turn goes on", || slot.session().join("work/done").exists());
    worker.stop();

    slot.config.generation = slot.config.generation.next();
    let (worker, address) = slot.serve();
    assert_eq!(slot.status(address).acp_session.as_deref(), Some(session.as_str()));
    let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
    client.initialize();
    let load = json!({"sessionId": session, "cwd": "/", "mcpServers": []});
    let answer = client.call("session/load", load);
    assert!(answer.get("result").is_some(), "{answer}");
    assert!(client.shell(&session, "cat done").contains("done"));
    worker.stop();
}

#[test]
fn a_flood_reaches_a_client_whole_and_in_order() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let (worker, address) = slot.serve();
    let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
    client.initialize();
    let session = client.new_session();
    // 40 MiB are more than may wait in memory: the agent is held back while this client has not read.
    let id = client.prompt(&session, "!updates 640 65536");
    std::thread::sleep(std::time::Duration::from_millis(500));
    let (answer, updates) = client.answer(id);
    assert_eq!(answer["result"]["stopReason"], "end_turn");
    let bytes: usize = text_of(&updates).len();
    assert_eq!(bytes, 640 * 65536);
    worker.stop();
}

#[test]
fn the_agents_environment_is_the_policys_the_callers_and_ours() {
    let mut slot = Slot::new(Tier::Namespace, Who::Own);
    let skills = slot.root.path().join("skills");
    fs::create_dir(&skills).unwrap();
    fs::write(skills.join("one.md"), "skill").unwrap();
    slot.config.skills = Some(skills.clone());
    slot.config.agent.env.insert("HANDED".into(), "on purpose".into());
    let (worker, address) = slot.serve();
    let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
    client.initialize();
    let session = client.new_session();
    let env = client.shell(&session, "env | sort; cat $CASEMATE_SKILLS/one.md; touch /skills/x");
    let status = slot.status(address);
    // Other workers of this machine may have any range: which one this has is its own word.
    let ports = env.lines().find_map(|line| line.strip_prefix("CASEMATE_PORTS=")).unwrap();
    let (first, last) = ports.split_once('-').unwrap();
    let (first, last): (u16, u16) = (first.parse().unwrap(), last.parse().unwrap());
    assert_eq!((first % 16, last), (1, first + 14), "{ports}");
    assert!(status.enforcement.contains(&format!("tcp ports {ports} claimed")), "{status:?}");
    let expected = [
        "HANDED=on purpose".to_owned(),
        format!("CASEMATE_SESSION={}", slot.config.session),
        "CASEMATE_GENERATION=1".to_owned(),
        "CASEMATE_SKILLS=/skills".to_owned(),
        format!("CASEMATE_SKILLS_REVISION={}", status.skills_revision.unwrap()),
        "HOME=/home/agent".to_owned(),
    ];
    for line in expected {
        assert!(env.lines().any(|have| have == line), "{line} not in\n{env}");
    }
    assert!(env.contains("skill") && !skills.join("x").exists(), "{env}");
    assert!(!env.contains("CARGO"), "the environment of the tests leaked:\n{env}");
    assert_eq!(status.handed_variables, ["HANDED"]);
    worker.stop();
}
