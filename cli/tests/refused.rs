//! `casemate acp` that cannot begin says why in ACP, and leaves with the exit code that says the same.

mod host;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use host::Host;
use serde_json::json;

#[test]
fn what_cannot_begin_is_the_answer_to_the_first_request_and_the_exit_code() {
    let place = tempfile::tempdir().expect("a directory");
    let home = place.path().join("home");
    let file = place.path().join("file");
    std::fs::write(&file, "").expect("a file");
    let file = file.display().to_string();
    for (options, code, words) in [
        (&["--repo", "/no/such/repository"][..], 66, "/no/such/repository"),
        (&["--repo", &file], 66, "not a directory"),
        (&["--repo", "git@example.org:a/b"], 64, "https://"),
        (&["--program", "/no/such/program"], 66, "--program"),
        (&["--env", "NO_SUCH_VARIABLE_HERE"], 64, "NO_SUCH_VARIABLE_HERE"),
    ] {
        let mut host = Host::start(&home, options, &["agent"]);
        host.send(r#"{"jsonrpc":"2.0","method":"$/hello"}"#);
        let answer = host.answer("initialize", json!({"protocolVersion": 1}));
        assert_eq!(answer["error"]["code"], -32050, "{answer}");
        assert!(answer["error"]["message"].as_str().is_some_and(|said| said.contains(words)));
        assert_eq!(answer["error"]["data"]["casemate"]["delivery"], "not_delivered");
        assert_eq!(host.end().code(), Some(code), "{options:?}");
    }
    assert!(!home.exists(), "an allocator was started");
}

#[test]
fn who_asks_nothing_gets_the_exit_code() {
    let place = tempfile::tempdir().expect("a directory");
    let mut host = Host::start(place.path(), &["--repo", "/no/such/repository"], &["agent"]);
    host.hang_up();
    assert_eq!(host.end().code(), Some(66));
}

#[test]
fn a_place_of_somebody_elses_is_said_to_the_host_as_well() {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIP: root, to give a directory away");
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(place.path(), Permissions::from_mode(0o755)).expect("it is ours");
    std::os::unix::fs::chown(place.path(), Some(1000), None).expect("root may");
    let mut host = Host::start(&place.path().join("home"), &[], &["agent"]);
    let answer = host.answer("initialize", json!({"protocolVersion": 1}));
    assert!(answer["error"]["message"].as_str().is_some_and(|said| said.contains("1000")));
    assert_eq!(host.end().code(), Some(77));
}
