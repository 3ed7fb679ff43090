//! `casemate acp` that cannot begin says why in ACP, and leaves with the exit code that says the same.

mod host;
mod house;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use host::Host;
use house::House;
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

fn fails_to_open(home: &Path, options: &[&str], agent: &[&str], code: i32, words: &str) {
    let mut host = Host::start(home, options, agent);
    let mut answer = host.answer("initialize", json!({"protocolVersion": 1}));
    // Of a remote repository nothing is looked at before there is a session to clone it into.
    if answer.get("result").is_some() {
        answer = host.answer("session/new", json!({"cwd": "/x", "mcpServers": []}));
    }
    assert_eq!(answer["error"]["code"], -32050, "{answer}");
    let said = answer["error"]["message"].as_str().expect("words");
    assert!(said.contains(words), "{said}");
    assert_eq!(answer["error"]["data"]["casemate"]["delivery"], "not_delivered", "{answer}");
    // It serves on: what is wrong may be mended meanwhile.
    host.hang_up();
    assert_eq!(host.end().code(), Some(code), "{options:?} {agent:?} {answer}");
}

/// What only the allocator or the worker can know.
#[test]
fn what_keeps_the_first_session_from_opening_is_the_answer_and_the_exit_code() {
    let house = House::new();
    let profiles = house.home().join("profiles");
    std::fs::create_dir_all(&profiles).expect("it is ours");
    std::fs::set_permissions(house.home(), Permissions::from_mode(0o700)).expect("it is ours");
    let profile = |name: &str, text: &str| {
        std::fs::write(profiles.join(format!("{name}.toml")), text).expect("it is ours");
    };
    profile("wrong", "idle_tll = '1m'\n");
    profile("policy", "policy = '/no/such/policy.toml'\n");
    profile("pod", "tier = 'pod'\n");
    let open = |options: &[&str], agent: &str, code, words: &str| {
        fails_to_open(house.home(), options, &[agent], code, words);
    };
    let (_, agent) = House::agent();
    open(&["--profile", "wrong"], &agent, 65, "line 1, column 1");
    open(&["--profile", "none"], &agent, 66, "no profile `none`");
    open(&["--profile", "../x"], &agent, 64, "not a profile name");
    open(&["--profile", "policy"], &agent, 66, "/no/such/policy.toml");
    open(&["--profile", "pod"], &agent, 78, "wants tier pod");
    open(&[], "no-such-agent", 127, "no-such-agent");
    open(&["--repo", "https://u:p@example.org/x"], &agent, 64, "user name or password");
    // It says nothing and is gone.
    open(&[], "/bin/true", 69, "the agent ended");
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

/// A throw-away session has a home of its own, and that of its user is none of its business.
#[test]
fn run_opens_nothing_of_the_users_own_home() {
    let house = House::new();
    let own = house.home().to_owned();
    std::fs::create_dir_all(own.join("profiles")).expect("it is ours");
    std::fs::create_dir_all(own.join("keys")).expect("it is ours");
    std::fs::set_permissions(&own, Permissions::from_mode(0o700)).expect("it is ours");
    let mut git = std::process::Command::new("git");
    let cloned = git
        .args(["clone", "-q", "--bare"])
        .arg(house.repository())
        .arg(own.join("repository.git"))
        .status();
    assert!(cloned.is_ok_and(|status| status.success()));
    std::os::unix::fs::symlink(&own, house.file("link")).expect("it is ours");
    let policy = house.file("policy.toml");
    let rule =
        format!("[[path]]\npath = \"{}\"\naccess = [\"read\"]\nreason = \"r\"\n", own.display());
    let text = format!("{}\n{rule}", casemate_protocol::policy::DEVELOPER);
    std::fs::write(&policy, text).expect("it is ours");
    let profile = |name: &str, text: String| {
        std::fs::write(own.join(format!("profiles/{name}.toml")), text).expect("it is ours");
    };
    profile("skills", format!("skills = '{}'\n", own.join("keys").display()));
    profile("policy", format!("policy = '{policy}'\n"));
    let (home, keys) = (own.display().to_string(), own.join("keys").display().to_string());
    let (link, above) = (house.file("link"), house.file(""));
    let repository = own.join("repository.git").display().to_string();
    for (options, code, words) in [
        (&["--program", &keys][..], 64, "cannot be granted"),
        (&["--program", &above], 64, "cannot be granted"),
        (&["--skills", &link], 64, "cannot be granted"),
        (&["--home-template", &home], 64, "cannot be granted"),
        (&["--profile", "skills"], 64, "cannot be granted"),
        (&["--profile", "policy"], 65, "would grant the keys and sessions"),
        (&["--repo", &repository], 64, "lies inside casemate's home"),
    ] {
        let options = [&["--home", &home, "--prompt", "!sh ls"], options].concat();
        let output = house.run_agent(&options, &[&House::agent().1]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{options:?} {said}");
        assert!(said.contains(words) && output.stdout.is_empty(), "{options:?} {said}");
    }
}
