//! The real `casemate demo`, in both tiers, as root and as an ordinary user: each line is as promised, and nothing is
//! left. And with Ctrl-C in the middle.
#![allow(clippy::unwrap_used, reason = "a test helper that fails is a failed test")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use casemate_inside::catalogue::{Expected, attack};
use nix::sys::signal::Signal;
use serde_json::Value;

/// Demos load the machine; one at a time.
static ONE: Mutex<()> = Mutex::new(());

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

/// Attacks that tier `domain` cannot refuse, by its own words. A leak of another name fails the test.
const LEAKS: &[&str] = &[
    "stat",
    "chmod",
    "set its times",
    "set an attribute",
    "watch its folder",
    "find by its number",
    "find by command line",
    "open /proc/PID/cmdline",
    "open /proc/PID/status",
    "list /proc/PID/fd",
    "connect",
];

/// What the catalogue says that this tier does not stop, or the kernel alone does.
fn is_named(id: &str, tier: &str) -> bool {
    let attack = attack(id).unwrap();
    let expected = if tier == "domain" { attack.domain } else { attack.namespace };
    expected == Expected::Leaks || !attack.is_ours()
}

/// The supervisor lies beside `casemate`, and cargo builds only the binaries of the package under test.
fn build_supervisor() {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", "casemate-supervisor"]);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success());
}

/// As the first process of a new pid namespace, as in a container: the allocator and both workers have the numbers that the
/// sessions' own processes have as well.
const FIRST: [&str; 4] = ["--pid", "--fork", "--kill-child", "--mount-proc"];

fn demo(user: Option<u32>, tier: &str) -> Command {
    demo_after(&[], user, tier)
}

/// `before`: the words of a command that runs it.
fn demo_after(before: &[&str], user: Option<u32>, tier: &str) -> Command {
    build_supervisor();
    let mut command = match user {
        None if !before.is_empty() => {
            let mut command = Command::new(before[0]);
            command.args(&before[1..]).arg(CASEMATE);
            command
        }
        None => Command::new(CASEMATE),
        Some(uid) => {
            let uid = uid.to_string();
            let mut command = Command::new("setpriv");
            command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups", CASEMATE]);
            // An ordinary user's HOME is its own.
            command.env("HOME", "/nonexistent");
            command
        }
    };
    command.args(["demo", "--json", "--tier", tier]);
    command.env_remove("CASEMATE_HOME");
    command
}

/// The directory that a demo said it would use.
fn base(stderr: &str) -> PathBuf {
    let line = stderr.lines().find_map(|line| line.split_once("working below "));
    PathBuf::from(line.unwrap_or_else(|| panic!("no directory named:\n{stderr}")).1)
}

/// No file, no mount in any process's view, no process that names it.
fn assert_nothing_left(base: &Path) {
    assert!(!base.exists(), "{} is left", base.display());
    let name = base.to_str().unwrap();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let is_pid = process.file_name().to_str().unwrap().bytes().all(|b| b.is_ascii_digit());
        for file in ["cmdline", "environ", "mountinfo"].iter().filter(|_| is_pid) {
            let bytes = fs::read(process.path().join(file)).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.contains(name), "{} {file}: {text}", process.path().display());
        }
    }
}

fn run(user: Option<u32>, tier: &str) {
    judge(|| demo(user, tier), tier);
}

fn judge(demo: impl FnOnce() -> Command, tier: &str) {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let output = demo().output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let stdout = String::from_utf8_lossy(&output.stdout);
    let report: Value =
        serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("no report\n{stdout}\n{stderr}"));
    assert_eq!(report["tier"], tier);
    let lines = report["lines"].as_array().unwrap();
    for line in lines {
        match line["verdict"].as_str().unwrap() {
            "ok" => {}
            "leak" if line["step"] == "B tries every attack of the catalogue" => {
                for id in line["detail"].as_str().unwrap().split(' ') {
                    assert!(is_named(id, tier), "{id}: {line}");
                }
            }
            "leak" if tier == "domain" => {
                assert!(LEAKS.contains(&line["tried"].as_str().unwrap()), "{line}");
            }
            _ => panic!("{line}"),
        }
    }
    assert!(output.status.success(), "{}\n{stderr}", output.status);
    // An empty list would be as promised, too.
    assert!(lines.len() > 250, "{} lines", lines.len());
    for (from, tried) in [
        ("B", "read"),
        ("A", "read"),
        ("B", "scan by content"),
        ("B", "move its ref"),
        ("B", "kill"),
        ("B", "ptrace attach"),
        ("B", "set its limits"),
        ("A", "connect"),
        ("B", "connect"),
        ("A", "terminal/create"),
        ("A", "fs/read_text_file"),
        ("supervisor", "stop, and look first"),
        ("", "look for processes, mounts, files"),
    ] {
        let found = lines.iter().any(|line| line["from"] == from && line["tried"] == tried);
        assert!(found, "nobody tried: {from} {tried}");
    }
    assert_nothing_left(&base(&stderr));
}

#[test]
fn every_line_is_as_promised_in_tier_namespace() {
    run(None, "namespace");
}

#[test]
fn every_line_is_as_promised_where_all_numbers_of_processes_are_low() {
    let before = if is_root() {
        [&["unshare"], &FIRST[..]].concat()
    } else {
        [&["unshare", "--user", "--map-current-user"], &FIRST[..]].concat()
    };
    let possible = Command::new(before[0]).args(&before[1..]).arg("true").output();
    if !possible.is_ok_and(|done| done.status.success()) {
        println!("SKIP: unshare(1) makes no pid namespace here");
        return;
    }
    judge(|| demo_after(&before, None, "namespace"), "namespace");
}

#[test]
fn every_line_is_as_promised_in_tier_domain() {
    run(None, "domain");
}

#[test]
fn every_line_is_as_promised_to_an_ordinary_user_in_tier_namespace() {
    if is_root() {
        run(Some(1000), "namespace");
    }
}

#[test]
fn every_line_is_as_promised_to_an_ordinary_user_in_tier_domain() {
    if is_root() {
        run(Some(1000), "domain");
    }
}

/// Otherwise the tests above have run as an ordinary user already.
fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

#[test]
fn ctrl_c_in_the_middle_leaves_nothing() {
    interrupted(Signal::SIGINT, 130);
}

#[test]
fn the_end_of_its_terminal_leaves_nothing() {
    interrupted(Signal::SIGHUP, 129);
}

fn interrupted(signal: Signal, code: i32) {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut child =
        demo(None, "namespace").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    while !said.contains("B on A's files") {
        assert_ne!(stderr.read_line(&mut said).unwrap(), 0, "it ended early:\n{said}");
    }
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(pid, signal).unwrap();
    // Whoever holds the pipe open has not ended.
    while stderr.read_line(&mut said).unwrap() != 0 {}
    assert_eq!(child.wait().unwrap().code(), Some(code), "{said}");
    assert_nothing_left(&base(&said));
}
