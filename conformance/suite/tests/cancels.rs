//! A cancel finds its own prompt, wherever that is: on the host's side of a network that is away, or at the agent.

use std::process::{Child, Stdio};
use std::time::Duration;

use casemate_suite::detour::Detour;
use casemate_suite::place::Place;
use casemate_suite::processes;
use casemate_suite::raw_host::RawHost;
use serde_json::json;

const LONG: Duration = Duration::from_secs(60);

/// The real bridge before a network that can be shut.
struct Scene {
    place: Place,
    up: Child,
    detour: Detour,
    host: RawHost,
    session: String,
}

// === impl Scene ===

impl Scene {
    fn new() -> Self {
        let place = Place::new();
        let up = place.casemate(&["up"]).stderr(Stdio::null()).spawn();
        let up = up.expect("the allocator starts");
        let endpoint = processes::until(Duration::from_secs(20), || place.endpoint());
        let home = place.path().join("detour");
        let detour = Detour::start(endpoint.expect("the allocator serves"), &home, 7);
        let detour = detour.expect("a detour");
        let repository = place.repository().display().to_string();
        let mut command = place.bridge(&["--repo", &repository]);
        let mut host = RawHost::start(command.env("CASEMATE_HOME", &home)).expect("it starts");
        host.initialize().expect("initialize is answered");
        let session = host.new_session(&place).expect("there is a session");
        Self { place, up, detour, host, session }
    }

    fn prompt(&mut self, text: &str) -> u64 {
        self.host.send("session/prompt", &RawHost::prompt(&self.session, text))
    }

    fn cancel(&mut self) {
        let params = json!({"sessionId": self.session});
        self.host.write(&json!({"jsonrpc": "2.0", "method": "session/cancel", "params": params}));
    }

    fn stop_reason(&mut self, id: u64) -> String {
        let answer = self.host.answer(id, LONG).expect("a result");
        answer["stopReason"].as_str().expect("a stop reason").to_owned()
    }

    fn end(mut self) {
        self.host.quit(&self.place);
        let pid = i32::try_from(self.up.id()).expect("a pid");
        let _ = processes::signal(pid, nix::sys::signal::Signal::SIGTERM);
        self.up.wait().expect("the allocator ends");
    }
}

#[test]
fn a_prompt_that_the_network_never_took_is_cancelled_at_once_and_never_comes() {
    let mut scene = Scene::new();
    assert_eq!(scene.host.say(&scene.session, "hello").expect("a turn"), "echo: hello");
    scene.detour.proxy.shut(true);
    // The bridge may take a moment to see that its connection is gone: what it sent by then is not taken back.
    let first = scene.prompt("!sh echo first >> prompts");
    std::thread::sleep(Duration::from_millis(300));
    let second = scene.prompt("!sh echo second >> prompts");
    scene.cancel();
    assert_eq!(scene.stop_reason(second), "cancelled", "while the network is away");
    scene.detour.proxy.shut(false);
    // The first was perhaps in the connection as it broke, in vain: then it was not taken back, and is cancelled there.
    if !scene.host.others.iter().any(|line| line["id"] == first) {
        scene.host.answer(first, LONG).expect("it is answered too");
    }
    let third = scene.prompt("!sh echo third >> prompts");
    assert_eq!(scene.stop_reason(third), "end_turn", "the cancel was not for it");
    let told = scene.host.say(&scene.session, "!sh cat prompts").expect("a turn");
    assert!(told.contains("third") && !told.contains("second"), "{told}");
    scene.end();
}

#[test]
fn a_turn_is_cancelled_behind_a_network_that_was_away_as_the_cancel_was_said() {
    let mut scene = Scene::new();
    let turn = scene.prompt("!sleep 600");
    std::thread::sleep(Duration::from_millis(500));
    scene.detour.proxy.shut(true);
    scene.cancel();
    std::thread::sleep(Duration::from_millis(300));
    scene.detour.proxy.shut(false);
    assert_eq!(scene.stop_reason(turn), "cancelled");
    let next = scene.prompt("next");
    assert_eq!(scene.stop_reason(next), "end_turn");
    scene.end();
}
