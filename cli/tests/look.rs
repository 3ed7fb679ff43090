//! Sessions are listed and shown without an allocator, and none is started for it.

mod host;
mod house;

use std::time::Duration;

use house::House;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

fn list(house: &House) -> Value {
    house.json(&["sessions", "--json"])["sessions"].clone()
}

/// Kills the allocator, which closes its store no more.
fn kill_allocator(house: &House) {
    let [pid] = house.allocators()[..] else { panic!("one allocator serves") };
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("it lives");
    while !house.allocators().is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_look_at_a_place_that_was_never_used_makes_nothing() {
    let house = House::new();
    assert_eq!(list(&house), json!([]));
    let said = house.command(&["sessions"]);
    assert!(String::from_utf8_lossy(&said.stdout).contains("no sessions"), "{said:?}");
    let unknown = house.command(&["sessions", "show", "s-aaaaaaaaaaaaaaaaaaaaaaaaaa"]);
    assert_eq!(unknown.status.code(), Some(66), "{unknown:?}");
    assert!(!house.home().exists());
}

#[test]
fn what_is_seen_without_an_allocator_is_what_the_next_one_finds() {
    let house = House::new();
    let mut host = house.acp(&["--env", "CANARY=canary-value"]);
    let session = host.open();
    let watched = list(&house);
    assert_eq!(watched[0]["phase"], "active");

    kill_allocator(&house);
    let seen = list(&house);
    assert_eq!((&seen[0]["id"], &seen[0]["phase"]), (&json!(session), &json!("active")));
    assert_eq!(seen[0]["worker"]["pid"], watched[0]["worker"]["pid"]);
    assert!(!seen.to_string().contains("canary-value"));

    house.kill_worker(&session);
    // What it has left holds the slot's lock for a moment more.
    let mut seen = list(&house);
    for _ in 0..100 {
        if seen[0]["phase"] == "asleep" {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
        seen = list(&house);
    }
    assert_eq!((&seen[0]["phase"], &seen[0]["worker"]), (&json!("asleep"), &Value::Null));
    assert!(house.allocators().is_empty(), "a look started one");
    assert!(house.command(&["up", "--detach"]).status.success());
    let mut found = list(&house);
    // The moment at which each of them learned of it.
    for view in [&mut seen, &mut found] {
        assert!(view[0]["last_end"]["at"].take().is_u64(), "{view}");
    }
    assert_eq!(seen, found);
    // Closed in order this time.
    assert!(house.command(&["up", "--stop"]).status.success());
    found[0]["last_end"]["at"].take();
    let mut seen = list(&house);
    seen[0]["last_end"]["at"].take();
    assert_eq!(seen, found);
    assert!(house.allocators().is_empty());
    host.hang_up();
    host.end();
}
