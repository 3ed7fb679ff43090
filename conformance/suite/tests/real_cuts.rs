//! Real agents over a network that breaks all the time, with the allocator there and gone: their turns end, and each prompt
//! reaches the model once.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, which is what it is for")]

use std::time::Duration;

use casemate_suite::detour::Detour;
use casemate_suite::llm_stub::LlmStub;
use casemate_suite::place::Place;
use casemate_suite::raw_host::RawHost;
use casemate_suite::real_agent::RealAgent;
use casemate_suite::{processes, skip};
use serde_json::json;

/// Prompts with the allocator, and as many without.
const PROMPTS: usize = 4;
/// So many cuts at least, each time.
const CUTS: u64 = 30;
/// Pieces of each answer.
const PIECES: usize = 30;

fn holds_its_turns(agent: RealAgent) {
    if agent.command().is_none() {
        return skip::skip(&format!("npm: {} in conformance/.cache/npm", agent.package()));
    }
    let (place, stub) = (Place::new(), LlmStub::start().unwrap());
    agent.home_template(&place.path().join("template"), &stub).unwrap();
    let up = place.casemate(&["up"]).stderr(std::process::Stdio::null()).spawn();
    let mut up = up.expect("the allocator starts");
    let endpoint = processes::until(Duration::from_secs(20), || place.endpoint());
    let home = place.path().join("detour");
    let detour = Detour::start(endpoint.expect("the allocator serves"), &home, 11).unwrap();
    let mut command = agent.bridge(&place, &stub).unwrap();
    let mut host = RawHost::start(command.env("CASEMATE_HOME", &home)).expect("the bridge starts");
    host.initialize().expect("initialize is answered");
    let session = host.new_session(&place).expect("there is a session");
    if let Some(mode) = agent.mode() {
        host.call("session/set_mode", &json!({"sessionId": session, "modeId": mode})).unwrap();
    }

    let mut asked = 0;
    for allocator in ["there", "gone"] {
        if allocator == "gone" {
            up.kill().expect("it is ours");
        }
        let (before, first) = (detour.proxy.cuts(), asked);
        detour.proxy.faults(true);
        while asked < first + PROMPTS || detour.proxy.cuts() < before + CUTS {
            let text = format!("do: trickle {PIECES} 10 with number n{asked}n");
            let said = host.say(&session, &text).expect("no turn fails");
            for piece in 0..PIECES {
                let times = said.matches(&format!("piece{piece} ")).count();
                assert_eq!(times, 1, "piece {piece}, the allocator {allocator}: {said}");
            }
            asked += 1;
        }
        detour.proxy.faults(false);
        println!(
            "{agent:?}, the allocator {allocator}: {asked} prompts, {} cuts",
            detour.proxy.cuts()
        );
    }
    for number in 0..asked {
        assert_eq!(stub.asked(&format!("n{number}n")), 1, "prompt {number}");
    }
    host.quit(&place);
    up.wait().expect("it was killed");
}

#[test]
fn opencode() {
    holds_its_turns(RealAgent::Opencode);
}

#[test]
fn claude() {
    holds_its_turns(RealAgent::Claude);
}

#[test]
fn codex() {
    holds_its_turns(RealAgent::Codex);
}

#[test]
fn codex_over_its_server() {
    holds_its_turns(RealAgent::CodexServer);
}

#[test]
fn gemini() {
    holds_its_turns(RealAgent::Gemini);
}
