//! Two conversations of one person in one worker (`sharing = "user"`), through the real programs.

#![allow(
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

mod host;
mod house;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};

use house::House;
use serde_json::json;

fn casemate(house: &House, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_casemate"));
    command.arg("--home").arg(house.home()).args(arguments).stdin(Stdio::null());
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn house() -> House {
    let house = House::new();
    // Root's slots are users of their own, who have to get there.
    fs::set_permissions(house.home().parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
    fs::create_dir_all(house.home().join("profiles")).unwrap();
    fs::set_permissions(house.home(), Permissions::from_mode(0o700)).unwrap();
    fs::write(house.home().join("profiles/shared.toml"), "sharing = 'user'\n").unwrap();
    house
}

/// Whatever tier the machine gives.
#[test]
fn a_throw_away_session_is_said_to_be_of_the_tier_that_it_has() {
    let house = house();
    let home = house.home().display().to_string();
    let ran = house.run(&["--home", &home, "--profile", "shared", "--prompt", "hello"]);
    let words = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.success(), "{words}");
    assert!(words.contains("tier domain.") && !words.contains("tier namespace"), "{words}");
}

#[test]
fn conversations_share_a_worker_and_nothing_else() {
    let house = house();
    let mut hosts = ["canary-one", "canary-two"]
        .map(|secret| house.acp(&["--profile", "shared", "--env", &format!("SECRET={secret}")]));
    let sessions = [hosts[0].open(), hosts[1].open()];
    for (host, session) in hosts.iter_mut().zip(&sessions) {
        let prompt = json!([{"type": "text", "text": "!sh echo $SECRET > mine"}]);
        let id = host.ask("session/prompt", json!({"sessionId": session, "prompt": prompt}));
        host.until(id);
    }
    let slots: Vec<_> = fs::read_dir(house.home().join("slots")).unwrap().flatten().collect();
    assert_eq!(slots.len(), 1);
    let slot = slots[0].file_name().into_string().unwrap();
    let mut places = Vec::new();
    for (session, (own, other)) in
        sessions.iter().zip([("canary-one", "canary-two"), ("canary-two", "canary-one")])
    {
        let ran = casemate(&house, &["exec", session, "--", "sh", "-c", "cat mine; env; pwd"]);
        let said = said(&ran);
        assert!(ran.status.success() && said.starts_with(&format!("{own}\n")), "{said}");
        assert!(said.contains(&format!("SECRET={own}")) && !said.contains(other), "{said}");
        places.push(said.lines().last().unwrap().to_owned());
    }
    // One's command does not get into the other's place, though it is told where that is.
    let attack = format!("cat {}/mine; ls {}; echo over", places[1], places[1]);
    let ran = casemate(&house, &["exec", &sessions[0], "--", "sh", "-c", &attack]);
    assert_eq!(said(&ran), "over\n");
    let refusals = String::from_utf8_lossy(&ran.stderr).matches("Permission denied").count();
    assert_eq!(refusals, 2, "{ran:?}");
    // One log for both, which holds by whatever name, and no secret in any.
    for log in [&[][..], &[sessions[0].as_str()], &[sessions[1].as_str()], &[slot.as_str()]] {
        let verified = casemate(&house, &[&["audit", "verify"], log].concat());
        assert!(verified.status.success(), "{log:?}: {}", said(&verified));
    }
    assert!(said(&casemate(&house, &["audit", "verify"])).contains(&format!("{slot}: holds")));
    let shown = said(&casemate(&house, &["audit", "show", &slot, "--json"]));
    assert!(shown.matches(r#""why":"exec""#).count() >= 6 && !shown.contains("canary"), "{shown}");
    // The end of one is not the other's.
    let closed = casemate(&house, &["sessions", "close", &sessions[0], "--discard"]);
    assert!(closed.status.success(), "{closed:?}");
    let ran = casemate(&house, &["exec", &sessions[1], "--", "cat", "mine"]);
    assert_eq!(said(&ran), "canary-two\n");
    assert_ne!(casemate(&house, &["exec", &sessions[0], "--", "true"]).status.code(), Some(0));
    let verified = casemate(&house, &["audit", "verify"]);
    assert!(verified.status.success(), "{}", said(&verified));
}
