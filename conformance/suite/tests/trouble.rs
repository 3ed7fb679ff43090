//! Bad input: each a clear error that names the fix, a documented exit code, and no half-made session left.

use std::path::Path;
use std::time::Duration;

use casemate_protocol::codes::exit;
use casemate_suite::place::{Place, Said};
use casemate_suite::processes;
use casemate_suite::raw_host::RawHost;
use nix::sys::signal::Signal;

/// The policy that comes with casemate, to be spoiled.
const DEVELOPER: &str = include_str!("../../../policies/developer.toml");

/// Runs one throw-away session with the scripted agent, or with another one after `--`.
fn run(place: &Place, options: &[&str], agent: Option<&[&str]>) -> Said {
    let scripted = place.scripted_agent();
    let mut command = place.casemate(&["run", "--prompt", "hello"]);
    command.args(options);
    match agent {
        Some(agent) => command.arg("--").args(agent),
        None => command
            .arg("--program")
            .arg(scripted.parent().expect("it has one"))
            .arg("--")
            .arg(scripted),
    };
    place.run(&mut command, "", Duration::from_secs(60))
}

/// `casemate run` says it with this exit code and all these words, on stderr alone, and leaves nothing behind.
fn assert_refused(place: &Place, said: &Said, code: u8, words: &[&str]) {
    assert_eq!(said.status.code(), Some(i32::from(code)), "{said:#?}");
    for word in words {
        assert!(said.err.contains(word), "no {word:?} in {said:#?}");
    }
    assert!(!said.err.contains("panicked"), "{said:#?}");
    assert_nothing_runs(place);
}

/// The same trouble met by an editor or a broker: an error for `session/new` with all these words, and no session.
fn assert_refused_over_acp(place: &Place, options: &[&str], words: &[&str]) {
    let mut host = RawHost::start(&mut place.bridge(options)).expect("the bridge starts");
    let error = host.refusal(place);
    for word in words {
        assert!(error.to_string().contains(word), "no {word:?} in {error}");
    }
    // An introduction's own session may still be on its way out.
    let over = processes::until(Duration::from_secs(10), || {
        place.living().is_some_and(|living| living.is_empty()).then_some(())
    });
    assert!(over.is_some(), "{:#?}", place.living());
    let slots = processes::until(Duration::from_secs(5), || place.slots().is_empty().then_some(()));
    assert!(slots.is_some(), "{:#?}", place.slots());
    host.quit(place);
}

fn assert_nothing_runs(place: &Place) {
    let gone = processes::until(Duration::from_secs(5), || {
        processes::reap(&std::collections::HashSet::new());
        processes::ours().is_empty().then_some(())
    });
    assert!(gone.is_some(), "left behind: {:#?}", processes::ours());
    let here = place.path().display().to_string();
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("there is a mount table");
    assert!(!mounts.contains(&here), "{mounts}");
}

/// Writes a profile `NAME` whose policy is this text.
fn profile(place: &Place, name: &str, policy: &str) {
    let directory = place.casemate_home().join("profiles");
    // The allocator refuses a home that others may enter.
    let mut private = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut private, 0o700);
    private.recursive(true).create(&directory).expect("the place is ours");
    let file = place.path().join(format!("{name}-policy.toml"));
    std::fs::write(&file, policy).expect("the place is ours");
    let text = format!("policy = {:?}\n", file.display().to_string());
    std::fs::write(directory.join(format!("{name}.toml")), text).expect("the place is ours");
}

fn grant(path: &Path, required: bool) -> String {
    format!(
        "{DEVELOPER}\n[[path]]\npath = {:?}\naccess = [\"read\"]\nrequired = {required}\nreason = \"a test\"\n",
        path.display().to_string()
    )
}

#[test]
fn an_unknown_profile_is_named_with_the_file_to_write() {
    let place = Place::new();
    let said = run(&place, &["--profile", "nowhere"], None);
    assert_refused(&place, &said, exit::NO_INPUT, &["nowhere", "profiles"]);
    assert_refused_over_acp(&place, &["--profile", "nowhere"], &["nowhere"]);
}

#[test]
fn a_throw_away_session_obeys_the_profiles_of_its_user() {
    let place = Place::new();
    let profiles = place.casemate_home().join("profiles");
    std::fs::create_dir_all(&profiles).unwrap();
    let file = profiles.join("tight.toml");
    std::fs::write(&file, "policy = \"strict\"\ntier = \"pod\"\n").unwrap();
    let said = run(&place, &["--profile", "tight"], None);
    assert_refused(&place, &said, exit::TIER, &["tight", "pod"]);
}

#[test]
fn a_missing_repository_is_named() {
    let place = Place::new();
    let said = run(&place, &["--repo", "/no/such/repository"], None);
    assert_refused(&place, &said, exit::NO_INPUT, &["/no/such/repository"]);
    let empty = place.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let said = run(&place, &["--repo", empty.to_str().unwrap()], None);
    assert_refused(&place, &said, exit::NO_INPUT, &[empty.to_str().unwrap()]);
}

#[test]
fn an_unreachable_remote_is_named() {
    let place = Place::new();
    let url = "http://127.0.0.1:9/sample.git";
    let said = run(&place, &["--repo", url], None);
    assert_refused(&place, &said, exit::NO_INPUT, &[url]);
    assert_refused_over_acp(&place, &["--repo", url], &[url]);
}

#[test]
fn an_agent_that_is_not_there_is_named() {
    let place = Place::new();
    let said = run(&place, &[], Some(&["no-such-agent-anywhere"]));
    assert_refused(&place, &said, exit::NOT_FOUND, &["no-such-agent-anywhere"]);
}

#[test]
fn an_agent_that_is_no_program_is_told_from_one_that_is_not_there() {
    let place = Place::new();
    let said = run(&place, &[], Some(&["/etc/passwd"]));
    assert_refused(&place, &said, exit::NOT_RUNNABLE, &["/etc/passwd", "executable"]);
}

#[test]
fn an_agent_that_exits_at_once_is_told_with_its_exit_code() {
    let place = Place::new();
    let said = run(&place, &[], Some(&["/bin/sh", "-c", "exit 3"]));
    assert!(!said.status.success(), "{said:#?}");
    assert!(said.err.contains("exit code 3"), "{said:#?}");
    assert_nothing_runs(&place);
}

#[test]
fn an_agent_that_prints_no_json_is_told_and_noise_alone_does_no_harm() {
    let place = Place::new();
    let said = run(&place, &[], Some(&["/bin/sh", "-c", "echo this is no JSON; exit 0"]));
    assert!(!said.status.success(), "{said:#?}");
    assert!(said.err.contains("exit code 0"), "{said:#?}");
    let mut host = RawHost::start(&mut place.bridge(&[])).unwrap();
    host.initialize().unwrap();
    let session = host.new_session(&place).unwrap();
    host.say(&session, "!garbage").unwrap();
    assert_eq!(host.say(&session, "!sh echo on").unwrap().lines().next(), Some("on"));
    host.quit(&place);
}

#[test]
fn a_policy_with_an_unknown_field_is_refused_with_its_line() {
    let place = Place::new();
    let text = format!("colour = \"blue\"\n{DEVELOPER}");
    profile(&place, "coloured", &text);
    let file = place.path().join("coloured-policy.toml");
    let mut check = place.casemate(&["policy", "check", file.to_str().unwrap()]);
    let said = place.run(&mut check, "", Duration::from_secs(20));
    assert_refused(&place, &said, exit::DATA, &["colour"]);
    assert_refused_over_acp(&place, &["--profile", "coloured"], &["colour"]);
}

#[test]
fn a_required_path_that_is_missing_is_named() {
    let place = Place::new();
    profile(&place, "wanting", &grant(Path::new("/no/such/tool"), true));
    assert_refused_over_acp(&place, &["--profile", "wanting"], &["/no/such/tool"]);
    profile(&place, "easy", &grant(Path::new("/no/such/tool"), false));
    let mut host = RawHost::start(&mut place.bridge(&["--profile", "easy"])).unwrap();
    host.initialize().unwrap();
    host.new_session(&place).expect("a path that is not required may be missing");
    host.quit(&place);
}

#[test]
fn a_policy_that_would_grant_a_keys_path_is_refused() {
    let place = Place::new();
    let keys = place.casemate_home().join("keys");
    // The exact directory, one above it, and one of the allocator's files.
    let run = place.casemate_home().join("run/allocator.json");
    for (name, path) in [("key", keys), ("all", place.casemate_home()), ("door", run)] {
        profile(&place, name, &grant(&path, false));
        assert_refused_over_acp(&place, &["--profile", name], &[path.to_str().unwrap()]);
    }
}

#[test]
fn a_kernel_below_the_policy_is_a_refusal() {
    let place = Place::new();
    let text = DEVELOPER.replace("abi = 6", "abi = 60");
    assert_ne!(text, DEVELOPER);
    profile(&place, "future", &text);
    assert_refused_over_acp(&place, &["--profile", "future"], &["60"]);
}

#[test]
fn an_occupied_port_is_named() {
    let place = Place::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut up = place.casemate(&["up", "--listen", &address]);
    let said = place.run(&mut up, "", Duration::from_secs(20));
    assert_refused(&place, &said, exit::BUSY, &[&address]);
}

#[test]
fn a_full_disk_is_told_and_leaves_no_session() {
    if !nix::unistd::geteuid().is_root() {
        return casemate_suite::skip::skip("root, to mount a small tmpfs");
    }
    let place = Place::new();
    let small = place.casemate_home();
    std::fs::create_dir(&small).unwrap();
    let mount = |arguments: &[&str]| {
        std::process::Command::new(arguments[0]).args(&arguments[1..]).status().unwrap().success()
    };
    let target = small.to_str().unwrap();
    assert!(mount(&["mount", "-t", "tmpfs", "-o", "size=6m,mode=700", "tmpfs", target]));
    let big = place.repository().join("big");
    // Random bytes: what compresses well would fit.
    let bytes: Vec<u8> = std::fs::File::open("/dev/urandom")
        .and_then(|file| {
            std::io::Read::bytes(std::io::BufReader::new(file)).take(12 << 20).collect()
        })
        .unwrap();
    std::fs::write(big, bytes).unwrap();
    casemate_suite::place::git(&place.repository(), &["add", "."]);
    casemate_suite::place::git(&place.repository(), &["commit", "-q", "-m", "big"]);
    let repository = place.repository().display().to_string();
    let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        assert_refused_over_acp(&place, &["--repo", &repository], &["space"]);
    }));
    place.end_all();
    let unmounted = mount(&["umount", target]);
    if let Err(panic) = tried {
        std::panic::resume_unwind(panic);
    }
    assert!(unmounted, "nothing of ours holds the mount");
}

#[test]
fn ctrl_c_leaves_no_process_and_no_mount() {
    let place = Place::new();
    let agent = place.scripted_agent();
    let repository = place.repository().display().to_string();
    let mut command = place.casemate(&["run", "--repo", &repository, "--prompt", "!sleep 60"]);
    command.arg("--program").arg(agent.parent().unwrap()).arg("--").arg(&agent);
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command.spawn().unwrap();
    let works = processes::until(Duration::from_secs(30), || {
        // The agent itself, under whatever path its session shows it; not the command line that names it.
        let is_agent = |command: &str| {
            command.ends_with("casemate-scripted-agent") && !command.contains(" run ")
        };
        processes::ours().iter().any(|process| is_agent(&process.command)).then_some(())
    });
    assert!(works.is_some(), "{:#?}", processes::ours());
    // As the terminal does: to the whole group, and to nobody outside it.
    nix::sys::signal::killpg(nix::unistd::Pid::from_raw(child.id().cast_signed()), Signal::SIGINT)
        .unwrap();
    let status = place.wait(&mut child, Duration::from_secs(20));
    let status = status.expect("it ends on Ctrl-C");
    assert!(!status.success(), "{status}");
    assert_nothing_runs(&place);
}
