//! Somebody else listens where an allocator was, or says that he is one: he learns nothing.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails there")]

mod host;
mod house;

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use casemate_protocol::codes::exit;
use casemate_protocol::proof::{Nonce, Prover};
use house::House;
use serde_json::json;

type Answer = Box<dyn Fn(&str) -> String + Send>;

const TOKEN: &str = "0123456789abcdef-the-token";

/// Answers every connection with what `say` makes of the first bytes, and tells what it was sent altogether.
fn impostor(say: impl Fn(&str) -> String + Send + 'static) -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (heard, hears) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut first = [0; 4096];
            let length = stream.read(&mut first).unwrap();
            let mut all = String::from_utf8_lossy(&first[..length]).into_owned();
            let _ = stream.write_all(say(&all).as_bytes());
            let _ = stream.read_to_string(&mut all);
            let _ = heard.send(all);
        }
    });
    (address, hears)
}

fn http(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn nonce(request: &str) -> Option<Nonce> {
    request.split_once("nonce=")?.1.get(..64)?.parse().ok()
}

fn publish(home: &Path, address: SocketAddr, pid: u32) {
    let text = json!({"address": address, "token": TOKEN, "pid": pid}).to_string();
    fs::create_dir_all(home.join("run")).unwrap();
    fs::write(home.join("run/allocator.json"), text).unwrap();
}

fn casemate(home: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_casemate"));
    command.arg("--home").arg(home).args(args).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn whoever_does_not_prove_to_be_the_allocator_is_told_nothing() {
    let wrong_key = |request: &str, address: SocketAddr| {
        let proof = nonce(request).map(|nonce| Prover::new("another").prove(address, nonce));
        http(&json!({"ok": true, "proof": proof}).to_string())
    };
    let answers: [(&str, Answer); 6] = [
        ("of an earlier version", Box::new(|_| http(r#"{"ok":true}"#))),
        ("wrong key", Box::new(move |request| wrong_key(request, ([127, 0, 0, 1], 1).into()))),
        (
            "echo",
            Box::new(|request| {
                let nonce = nonce(request).map(|nonce| nonce.to_string());
                http(&json!({"ok": true, "proof": nonce}).to_string())
            }),
        ),
        (
            "right key at another door",
            Box::new(|request| {
                let other = ([127, 0, 0, 1], 1).into();
                let proof = nonce(request).map(|nonce| Prover::new(TOKEN).prove(other, nonce));
                http(&json!({"ok": true, "proof": proof}).to_string())
            }),
        ),
        ("long", Box::new(|_| http(&"x".repeat(1 << 20)))),
        ("no HTTP", Box::new(|_| "220 mail.example ESMTP\r\n".to_owned())),
    ];
    for (name, say) in answers {
        let home = tempfile::tempdir().unwrap();
        let (address, hears) = impostor(say);
        publish(home.path(), address, std::process::id());
        // As if an allocator lived: only the proof is left to tell.
        let mut lock = File::create(home.path().join("run/up.lock")).unwrap();
        lock.lock().unwrap();
        writeln!(lock, "{}", std::process::id()).unwrap();
        for command in [["sessions", "--json"], ["up", "--stop"]] {
            let output = casemate(home.path(), &command);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(i32::from(exit::DENIED)), "{name}: {said}");
            assert!(said.contains("does not prove"), "{name}: {said}");
            let heard = hears.recv_timeout(Duration::from_secs(5)).unwrap();
            assert!(heard.starts_with("GET /healthz?nonce="), "{name}: {heard}");
            let lower = heard.to_ascii_lowercase();
            assert!(!lower.contains("authorization") && !heard.contains(TOKEN), "{name}: {heard}");
            assert!(!heard.contains("/v1/"), "{name}: {heard}");
        }
        assert_eq!(hears.try_iter().count(), 0, "{name}: it was called again");
    }
}

#[test]
fn a_file_that_an_allocator_left_when_it_died_counts_for_nothing() {
    let house = House::new();
    let (address, hears) = impostor(|_| http(r#"{"ok":true}"#));
    let mut stranger = Command::new("sleep").arg("600").spawn().unwrap();
    fs::create_dir(house.home()).unwrap();
    fs::set_permissions(house.home(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    publish(house.home(), address, stranger.id());
    fs::write(house.home().join("run/up.lock"), format!("{}\n", stranger.id())).unwrap();

    let stopped = casemate(house.home(), &["up", "--stop"]);
    assert!(stopped.status.success(), "{stopped:?}");
    assert!(String::from_utf8_lossy(&stopped.stderr).contains("no allocator serves"));
    assert!(stranger.try_wait().unwrap().is_none(), "a stranger was signalled");

    // To look takes no allocator, and one that is started is asked instead.
    assert_eq!(house.json(&["sessions", "--json"])["sessions"], json!([]));
    assert!(house.allocators().is_empty());
    assert!(casemate(house.home(), &["up", "--detach"]).status.success());
    assert_eq!(house.json(&["sessions", "--json"])["sessions"], json!([]));
    assert_eq!(house.allocators().len(), 1);
    assert_eq!(hears.try_iter().count(), 0, "the old address was called");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[test]
fn the_port_of_a_killed_allocator_is_worth_nothing() {
    let house = House::new();
    assert!(casemate(house.home(), &["up", "--detach"]).status.success());
    let old = fs::read_to_string(house.home().join("run/allocator.json")).unwrap();
    let old: casemate_protocol::api::Endpoint = serde_json::from_str(&old).unwrap();
    let pid = house.allocators()[0];
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGKILL).unwrap();
    let bound = (0..500).find_map(|_| {
        thread::sleep(Duration::from_millis(10));
        TcpListener::bind(old.address).ok()
    });
    let impostor = bound.expect("the port is free once its allocator is gone");
    impostor.set_nonblocking(true).unwrap();
    assert_eq!(house.json(&["sessions", "--json"])["sessions"], json!([]));
    assert!(casemate(house.home(), &["up", "--detach"]).status.success());
    assert_eq!(house.json(&["sessions", "--json"])["sessions"], json!([]));
    assert!(impostor.accept().is_err(), "a client called the impostor");
}
