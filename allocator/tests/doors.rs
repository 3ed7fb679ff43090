//! What is refused, and how: at the door, at the start, in an intent.

mod house;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Output;
use std::time::{Duration, Instant};

use casemate_allocator::{Config, Shutdown, StartError, start};
use casemate_protocol::api::{ErrorKind, Health, Phase};
use casemate_protocol::codes::exit;
use casemate_protocol::proof::Nonce;
use house::{House, alive, request, scripted};

#[test]
fn without_the_token_nothing_is_done() {
    let house = House::started(scripted());
    let body = serde_json::to_string(&request("r1", "t", "serve")).unwrap();
    let token = house.endpoint().token;
    let calls = [
        ("POST", "/v1/sessions", body.as_str()),
        ("GET", "/v1/sessions", ""),
        ("GET", "/v1/sessions/s-aaaaaaaaaaaaaaaaaaaaaaaaaa", ""),
        ("POST", "/v1/sessions/s-aaaaaaaaaaaaaaaaaaaaaaaaaa/resume", ""),
        ("PUT", "/v1/handshakes/h", "{}"),
        ("GET", "/nothing", ""),
    ];
    let half = format!("Bearer {}", &token[..32]);
    for (method, path, body) in calls {
        for given in [None, Some("Bearer wrong"), Some(half.as_str()), Some(token.as_str())] {
            let mut headers = vec![("host", "localhost")];
            headers.extend(given.map(|given| ("authorization", given)));
            let (status, answer) = house.raw(method, path, &headers, body);
            assert_eq!(status, 401, "{method} {path} {given:?}: {answer}");
            assert!(!answer.contains(&token));
        }
    }
    assert!(house.list().is_empty() && house.slots().is_empty());
    let (status, _) = house.raw("GET", "/healthz", &[("host", "127.0.0.1:1")], "");
    assert_eq!(status, 200);
}

#[test]
fn the_allocator_proves_itself_to_whoever_asks_with_a_nonce() {
    let house = House::started(scripted());
    let endpoint = house.endpoint();
    let nonce = Nonce::random();
    let ask = |query: &str| {
        house.raw("GET", &format!("/healthz?nonce={query}"), &[("host", "localhost")], "")
    };
    let (status, body) = ask(&nonce.to_string());
    assert_eq!(status, 200);
    let health: Health = serde_json::from_str(&body).unwrap();
    assert!(nonce.is_proven(&endpoint.token, endpoint.address, &health.proof.unwrap()));
    assert!(!body.contains(&endpoint.token));
    for wrong in ["", "00", &"x".repeat(64), &format!("{nonce}0")] {
        assert_eq!(ask(wrong).0, 400, "{wrong}");
    }
}

#[test]
fn a_connection_that_says_nothing_is_not_kept() {
    let house = House::started(scripted());
    let address = house.endpoint().address;
    let began = Instant::now();
    let mut silent: Vec<TcpStream> =
        (0..600).map(|_| TcpStream::connect(address).unwrap()).collect();
    // More of them than the door takes at once: whoever has something to say waits one time-out at most.
    let (status, _) = house.raw("GET", "/healthz", &[("host", "localhost")], "");
    assert_eq!(status, 200);
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    let first = &mut silent[0];
    first.set_read_timeout(Some(Duration::from_secs(8))).unwrap();
    assert_eq!(first.read(&mut [0; 64]).unwrap(), 0, "hung up on");
}

#[test]
fn a_body_that_does_not_come_is_not_waited_for() {
    let house = House::started(scripted());
    let token = house.endpoint().token;
    let mut stream = TcpStream::connect(house.endpoint().address).unwrap();
    write!(
        stream,
        "POST /v1/sessions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\ncontent-length: 10\r\n\r\n{{"
    )
    .unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(14))).unwrap();
    let mut answer = [0; 512];
    let length = stream.read(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer[..length]);
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

#[test]
fn web_pages_are_refused_even_with_the_token() {
    let house = House::started(scripted());
    let token = format!("Bearer {}", house.endpoint().token);
    let good = [("host", "localhost"), ("authorization", token.as_str())];
    assert_eq!(house.raw("GET", "/v1/sessions", &good, "").0, 200);
    for (name, value) in [("origin", "http://localhost"), ("origin", "null")] {
        let headers = [good[0], good[1], (name, value)];
        assert_eq!(house.raw("GET", "/v1/sessions", &headers, "").0, 403);
        assert_eq!(house.raw("GET", "/healthz", &headers, "").0, 403);
    }
    let rebound = [("host", "evil.example:80"), good[1]];
    assert_eq!(house.raw("GET", "/v1/sessions", &rebound, "").0, 403);
}

#[test]
fn bodies_are_bounded_and_strict() {
    let house = House::started(scripted());
    let invalid = |path: &str, body: &str| {
        let error = house.call::<serde_json::Value>("POST", path, body).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
    };
    invalid("/v1/sessions", "{");
    // Valid but for its size.
    let mut long = serde_json::to_string(&request("r1", "t", "serve")).unwrap();
    long.push_str(&" ".repeat(1024 * 1024));
    invalid("/v1/sessions", &long);
    let mut extra = serde_json::to_value(request("r1", "t", "serve")).unwrap();
    extra["priority"] = 1.into();
    invalid("/v1/sessions", &extra.to_string());
    invalid("/v1/sessions/not-an-id/resume", "");
    invalid("/v1/sessions/s-aaaaaaaaaaaaaaaaaaaaaaaaaa/stop", "{}");
    let mut empty = request("", "t", "serve");
    invalid("/v1/sessions", &serde_json::to_string(&empty).unwrap());
    empty.request_id = "r\n1".into();
    invalid("/v1/sessions", &serde_json::to_string(&empty).unwrap());
}

#[test]
fn handshakes_come_back_as_they_were() {
    let house = House::started(scripted());
    let token = format!("Bearer {}", house.endpoint().token);
    let headers = [("host", "localhost"), ("authorization", token.as_str())];
    let text = r#"{"b": 1.0, "a": [ 12345678901234567890123 ]}"#;
    assert_eq!(house.raw("GET", "/v1/handshakes/k.1_a-b", &headers, "").0, 404);
    assert_eq!(house.raw("PUT", "/v1/handshakes/k.1_a-b", &headers, text).0, 204);
    assert_eq!(house.raw("GET", "/v1/handshakes/k.1_a-b", &headers, ""), (200, text.to_owned()));
    assert_eq!(house.raw("PUT", "/v1/handshakes/k", &headers, "{").0, 400);
    assert_eq!(house.raw("PUT", "/v1/handshakes/a%2Fb", &headers, "{}").0, 400);
}

/// Makes an intent wrong.
type Change = dyn Fn(&mut casemate_protocol::api::Intent);

#[test]
fn a_wrong_intent_says_what_to_mend_and_makes_nothing() {
    let house = House::started(scripted());
    house.profile("typo", "idle_ttl = '30m'\nidle_tll = '30m'\n");
    house.profile("gone", "policy = '/no/such/policy.toml'\n");
    house.profile("pod", "tier = 'pod'\n");
    house.profile("greedy", "programs = ['/']\n");
    let refused = |change: &dyn Fn(&mut casemate_protocol::api::Intent)| {
        let mut body = request("r1", "t", "serve");
        change(&mut body.intent);
        let error = house.allocate(&body).unwrap_err();
        (error.kind, error.message)
    };
    let cases: [(&Change, ErrorKind, &str); 11] = [
        (&|i| i.profile = "nope".into(), ErrorKind::NotFound, "profiles/nope.toml"),
        (&|i| i.profile = "../x".into(), ErrorKind::Invalid, "profile name"),
        (&|i| i.profile = "typo".into(), ErrorKind::Invalid, "line 2, column 1"),
        (&|i| i.profile = "gone".into(), ErrorKind::NotFound, "/no/such/policy.toml"),
        (&|i| i.profile = "pod".into(), ErrorKind::Unavailable, "tier pod"),
        (&|i| i.profile = "greedy".into(), ErrorKind::Invalid, "cannot be granted"),
        (&|i| i.repository = Some("/no/such/repo".into()), ErrorKind::NotFound, "/no/such/repo"),
        (
            &|i| i.repository = Some("https://me:hunter2@example.org/r".into()),
            ErrorKind::Invalid,
            "remove it",
        ),
        (&|i| i.agent = vec!["no-such-agent".into()], ErrorKind::NotFound, "/no-such-agent"),
        (&|i| i.agent.clear(), ErrorKind::Invalid, "empty"),
        (&|i| i.connect = vec![0], ErrorKind::Invalid, "port 0"),
    ];
    for (change, kind, words) in cases {
        let (got, message) = refused(change);
        assert_eq!(got, kind, "{message}");
        assert!(message.contains(words) && !message.contains("hunter2"), "{message}");
    }
    let home = house.home().to_str().unwrap().to_owned();
    let (kind, message) = refused(&|i| i.skills = Some(home.clone().into()));
    assert_eq!(kind, ErrorKind::Invalid, "{message}");
    assert!(house.list().is_empty() && house.slots().is_empty());
}

/// Runs an allocator that is expected not to start; one that does is ended.
fn run(house: &House, arguments: &[&str]) -> Output {
    let mut command = house.command();
    let child = command.args(arguments).stderr(std::process::Stdio::piped()).spawn();
    let mut child = child.expect("it runs");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while child.try_wait().expect("a child").is_none() && std::time::Instant::now() < deadline {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let _ = child.kill();
    child.wait_with_output().expect("it ran")
}

fn refused(output: &Output, code: u8, words: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code.into()), "{text}");
    assert!(text.contains(words), "{text}");
}

#[test]
fn a_start_that_cannot_be_names_the_fix() {
    let mut house = House::new(scripted());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refused(&run(&house, &["--listen", &address]), exit::BUSY, "--listen");
    refused(&run(&house, &["--listen", "0.0.0.0:0"]), exit::USAGE, "not loopback");
    refused(&run(&house, &["--tier", "pod"]), exit::USAGE, "namespace");
    house.up();
    let pid = house.endpoint().pid.to_string();
    refused(&run(&house, &[]), exit::BUSY, &format!("pid {pid}"));
    assert!(alive(house.endpoint().pid));
    assert!(house.list().is_empty(), "the first one still serves");
    house.kill_up();
    house::chmod(&house.home(), 0o755);
    refused(&run(&house, &[]), exit::DENIED, "chmod 700");
    house::chmod(&house.home(), 0o700);
    let mut missing = house.command();
    missing.args(["--supervisor", "/no/such/supervisor"]).stderr(std::process::Stdio::piped());
    assert_eq!(missing.output().unwrap().status.code(), Some(exit::USAGE.into()), "given twice");
    let nothing = House::new("/no/such/supervisor".into());
    refused(&run(&nothing, &[]), exit::NO_INPUT, "--supervisor");
}

#[test]
fn root_refuses_a_home_that_its_slots_users_cannot_reach() {
    if !nix::unistd::geteuid().is_root() {
        // Slots of others have their user.
        return;
    }
    let house = House::new(scripted());
    house::chmod(house.dir.path(), 0o700);
    refused(&run(&house, &["--tier", "domain"]), exit::DENIED, "--home");
    assert!(!house.home().join("run/allocator.json").exists());
    house::chmod(house.dir.path(), 0o711);
    let mut house = house.with_tier("domain");
    house.up();
}

/// proc(5): the files of a non-dumpable process belong to root.
#[test]
fn the_allocator_is_closed_to_its_own_user() {
    use std::os::unix::fs::MetadataExt as _;
    use std::process::{Command, Stdio};
    const USER: u32 = 1000;
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let program = env!("CARGO_BIN_EXE_casemate-allocator");
    let mut command = Command::new(program);
    if nix::unistd::geteuid().is_root() {
        // What root's processes have belongs to root anyway.
        std::os::unix::fs::chown(dir.path(), Some(USER), Some(USER)).unwrap();
        command = Command::new("setpriv");
        command.args(["--reuid", "1000", "--regid", "1000", "--clear-groups", program]);
    }
    command.arg("--home").arg(dir.path().join("home")).arg("--supervisor").arg(scripted());
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let pid = child.id();
    let closed = || {
        // Before it is the allocator, the process is setpriv(1); the kernel cuts names at 15 bytes.
        let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        let owner = std::fs::metadata(format!("/proc/{pid}/environ")).ok()?.uid();
        (comm.trim() == "casemate-alloca" && owner == 0).then_some(())
    };
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let mut seen = None;
    while seen.is_none() && std::time::Instant::now() < until {
        seen = closed();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(seen.is_some());
}

#[test]
fn the_discovery_file_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let house = House::started(scripted());
    for file in ["run/allocator.json", "keys/signing.seed"] {
        let mode = house.home().join(file).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    let store = house.home().join("store.redb").metadata().unwrap().permissions().mode();
    assert_eq!(store & 0o077, 0, "the store holds the variables that agents are handed");
}

#[tokio::test(flavor = "current_thread")]
async fn in_process_it_ends_all_and_leaves_nothing() {
    let house = House::new(scripted());
    let running = start(Config::new(house.home(), scripted())).await.unwrap();
    let error = start(Config::new(house.home(), scripted())).await.unwrap_err();
    assert!(matches!(
        error,
        StartError::Home(casemate_allocator::HomeError::AlreadyRunning { .. })
    ));
    let endpoint = running.endpoint().clone();
    let allocate = move |id: &'static str, thread: &'static str| {
        let endpoint = endpoint.clone();
        tokio::task::spawn_blocking(move || {
            let token = format!("Bearer {}", endpoint.token);
            let headers = [("host", "localhost"), ("authorization", token.as_str())];
            let body = serde_json::to_string(&request(id, thread, "serve")).unwrap();
            let (status, body) =
                house::http(endpoint.address, "POST", "/v1/sessions", &headers, &body).unwrap();
            assert_eq!(status, 201, "{body}");
            serde_json::from_str::<casemate_protocol::api::Attached>(&body).unwrap()
        })
    };
    let first = allocate("r1", "a").await.unwrap();
    let pid = first.session.worker.clone().unwrap().pid;
    running.shutdown(Shutdown::StopAll).await.unwrap();
    assert!(!alive(pid) && house.slot(&first.session).exists());

    let running = start(Config::new(house.home(), scripted())).await.unwrap();
    let token = format!("Bearer {}", running.endpoint().token);
    let address = running.endpoint().address;
    let id = first.session.id.clone();
    let shown = tokio::task::spawn_blocking(move || {
        let headers = [("host", "localhost"), ("authorization", token.as_str())];
        house::http(address, "GET", &format!("/v1/sessions/{id}"), &headers, "").unwrap().1
    });
    let shown: casemate_protocol::api::SessionView =
        serde_json::from_str(&shown.await.unwrap()).unwrap();
    assert_eq!(shown.phase, Phase::Asleep);
    running.shutdown(Shutdown::StopAllAndDelete).await.unwrap();
    assert!(house.slots().is_empty());
    assert!(!house.home().join("run/allocator.json").exists());
}
