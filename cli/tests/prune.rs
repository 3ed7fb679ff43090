//! Old sessions are closed together, and only after it was said which.

mod host;
mod house;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use house::House;
use serde_json::{Value, json};

fn ids(list: &Value) -> Vec<&str> {
    list["sessions"].as_array().expect("a list").iter().filter_map(|v| v["id"].as_str()).collect()
}

#[test]
fn what_sleeps_is_closed_once_it_was_asked_for_and_what_runs_is_left_alone() {
    let house = House::new();
    let mut host = house.acp(&[]);
    let sleeper = host.open();
    // What the session planted for git runs when its work is taken home, behind a wall: where everybody may write, it may not.
    let open = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(open.path(), Permissions::from_mode(0o777)).expect("it is ours");
    let planted = open.path().join("planted");
    let filter = format!("touch $HOME/ran; touch {}; cat", planted.display());
    let script = format!(
        "echo unpushed > work; echo '* filter=f' > .gitattributes; git config filter.f.clean '{filter}'"
    );
    let prompt = json!([{"type": "text", "text": format!("!sh {script}")}]);
    let turn = host.answer("session/prompt", json!({"sessionId": sleeper, "prompt": prompt}));
    assert_eq!(turn["result"]["stopReason"], "end_turn", "{turn}");
    house.json(&["sessions", "stop", &sleeper, "--json"]);
    let answer = host.answer("session/new", json!({"cwd": "/", "mcpServers": []}));
    let runner = answer["result"]["sessionId"].as_str().expect("a session").to_owned();

    let prune =
        |options: &[&str]| house.json(&[&["sessions", "prune", "--json"], options].concat());
    assert_eq!(ids(&prune(&[])), [""; 0], "30 days");
    assert_eq!(ids(&prune(&["--older-than", "0s"])), [&sleeper]);
    let phase = |id: &str| house.json(&["sessions", "show", id, "--json"])["phase"].clone();
    assert_eq!(phase(&sleeper), "asleep", "it was only asked which");
    let said = house.command(&["sessions", "prune", "--older-than", "0s"]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains(&sleeper) && said.contains("--yes"), "{said}");

    let closed = house.command(&["sessions", "prune", "--older-than", "0s", "--yes"]);
    assert!(closed.status.success(), "{closed:?}");
    let said = String::from_utf8_lossy(&closed.stdout).into_owned();
    assert!(said.contains(&sleeper) && said.contains("its worktree held"), "{said}");
    assert_eq!((phase(&sleeper), phase(&runner)), (json!("ended"), json!("active")));
    // Its work is kept until it is discarded: said where, and taken home from there.
    let shown = house.command(&["sessions", "show", &sleeper]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    for words in [&said, &shown] {
        assert!(words.contains("sessions patch") && words.contains("/work"), "{words}");
    }
    let file = house.file("kept.patch");
    let taken = house.command(&["sessions", "patch", &sleeper, "--output", &file]);
    assert!(taken.status.success(), "{taken:?}");
    assert!(std::fs::read_to_string(&file).expect("a patch").contains("+unpushed"));
    house.applies(&file);
    assert_eq!(phase(&sleeper), "ended", "nobody woke it");
    let view = house.json(&["sessions", "show", &sleeper, "--json"]);
    let trees = std::path::Path::new(view["kept"].as_str().expect("a path")).to_owned();
    assert!(trees.join("home/ran").exists(), "git did not run what was planted");
    assert!(!planted.exists(), "what was planted ran outside of a wall");
    let slots = || std::fs::read_dir(house.home().join("slots")).expect("slots").count();
    assert_eq!(slots(), 2);
    assert_eq!(ids(&prune(&["--older-than", "0s", "--yes"])), [""; 0]);
    assert_eq!(slots(), 2);
    assert_eq!(ids(&prune(&["--older-than", "0s", "--discard", "--yes"])), [&sleeper]);
    assert_eq!((slots(), phase(&runner)), (1, json!("active")));
}

#[test]
fn to_ask_which_starts_no_allocator() {
    let house = House::new();
    let mut host = house.acp(&[]);
    let session = host.open();
    host.hang_up();
    host.end();
    assert!(house.command(&["up", "--stop"]).status.success());
    let list = house.json(&["sessions", "prune", "--older-than", "0s", "--json"]);
    assert_eq!(ids(&list), [&session]);
    let none = house.command(&["sessions", "prune", "--yes"]);
    assert!(String::from_utf8_lossy(&none.stdout).contains("no session is that old"), "{none:?}");
    assert!(house.allocators().is_empty());
}
