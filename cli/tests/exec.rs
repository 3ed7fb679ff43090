//! `casemate exec` with the real programs, on pipes and on a terminal.

#![allow(
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

mod host;
mod house;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use host::Host;
use house::House;
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::tcgetattr;
use nix::unistd::Pid;
use serde_json::json;

/// A house with a session that has been used, and its host.
fn session() -> (House, Host, String) {
    let house = House::new();
    let mut host = house.acp(&[]);
    let session = host.open();
    let prompt = json!([{"type": "text", "text": "!sh echo agents > agents"}]);
    let id = host.ask("session/prompt", json!({"sessionId": session, "prompt": prompt}));
    host.until(id);
    (house, host, session)
}

fn exec(house: &House, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_casemate"));
    command.arg("--home").arg(house.home()).arg("exec").args(options);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn wait(child: &mut Child) -> i32 {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code().unwrap();
        }
        assert!(started.elapsed() < Duration::from_secs(30), "it does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn it_looks_like_the_command_itself() {
    let (house, host, session) = session();
    let ran = |options: &[&str], words: &[&str]| {
        let all = [options, &[&session, "--"], words].concat();
        let output = exec(&house, &all).stdin(Stdio::null()).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    };
    let said = |code: i32, out: &str, err: &str| (code, out.to_owned(), err.to_owned());
    assert_eq!(ran(&[], &["cat", "agents"]), said(0, "agents\n", ""));
    assert_eq!(ran(&[], &["sh", "-c", "echo a; echo b >&2; exit 3"]), said(3, "a\n", "b\n"));
    assert_eq!(
        ran(&["--env", "A=1 2", "--cwd", "/"], &["sh", "-c", "echo $A; pwd"]),
        said(0, "1 2\n/\n", "")
    );
    assert_eq!(ran(&[], &["sh", "-c", "kill -9 $$"]).0, 137);
    for (options, words, code, message) in [
        (&[][..], "no-such-program", 127, "no such program in the session"),
        (&[], "/etc/passwd", 126, "cannot be run"),
        (&["--timeout", "300ms"], "yes", 124, "--timeout"),
        (&["--env", "CASEMATE_SESSION=x"], "true", 64, "CASEMATE_SESSION"),
        (&["--cwd", "nowhere"], "true", 126, "working directory"),
    ] {
        let (got, _, err) = ran(options, &[words]);
        assert!(got == code && err.contains(message), "{words}: {got} {err}");
    }
    let unknown = exec(&house, &["s-aaaaaaaaaaaaaaaaaaaaaaaaaa", "--", "true"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(66), "{unknown:?}");
    // No turn: the host's conversation is as it was, and goes on.
    drop(host);
}

#[test]
fn a_sleeping_session_is_woken_and_streams_pass() {
    let (house, _host, session) = session();
    house.json(&["sessions", "stop", &session, "--json"]);
    let mut child = exec(&house, &[&session, "--", "sh", "-c", "cat agents; cat"]).spawn().unwrap();
    let data: Vec<u8> = (0..10_000_000_u32).map(|n| (n % 253).to_le_bytes()[0]).collect();
    let (mut stdin, sent) = (child.stdin.take().unwrap(), data.clone());
    let writer = std::thread::spawn(move || stdin.write_all(&sent).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success(), "{:?}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout == [b"agents\n", data.as_slice()].concat());
}

#[test]
fn signals_are_passed_on_a_second_one_gives_up_and_a_broken_pipe_ends_it() {
    let (house, _host, session) = session();
    let script = "trap 'echo caught' INT; echo on; while :; do sleep 0.05; done";
    let mut child = exec(&house, &[&session, "--", "sh", "-c", script]).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut until = |words: &str| {
        let mut said = Vec::new();
        while !String::from_utf8_lossy(&said).contains(words) {
            let mut byte = [0];
            out.read_exact(&mut byte).unwrap();
            said.push(byte[0]);
        }
    };
    until("on");
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    kill(pid, Signal::SIGINT).unwrap();
    until("caught");
    kill(pid, Signal::SIGINT).unwrap();
    assert_eq!(wait(&mut child), 130);
    let mut yes = exec(&house, &[&session, "--", "yes"]).spawn().unwrap();
    yes.stdout.take().unwrap().read_exact(&mut [0; 4]).unwrap();
    assert_eq!(wait(&mut yes), 141);
    // Nothing of either is left.
    let started = Instant::now();
    loop {
        let view = house.json(&["sessions", "show", &session, "--json"]);
        let ps =
            exec(&house, &[&session, "--", "sh", "-c", "cat /proc/[0-9]*/comm"]).output().unwrap();
        let running = String::from_utf8_lossy(&ps.stdout).into_owned();
        if !running.lines().any(|name| name == "yes" || name == "sleep") {
            break;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "{running} {view}");
    }
}

/// The person's terminal: its master here, its other end the command's stdio and controlling terminal.
struct Person {
    master: File,
    slave: OwnedFd,
}

impl Person {
    fn new() -> Self {
        let size = Winsize { ws_row: 33, ws_col: 77, ws_xpixel: 0, ws_ypixel: 0 };
        let ends = openpty(Some(&size), None).unwrap();
        Self { master: ends.master.into(), slave: ends.slave }
    }

    fn start(&self, house: &House, options: &[&str]) -> Child {
        // setsid(1) makes it lead a session whose terminal this is.
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait", env!("CARGO_BIN_EXE_casemate"), "--home"]);
        command.arg(house.home()).arg("exec").args(options);
        let end = || Stdio::from(self.slave.try_clone().unwrap());
        command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap()
    }

    fn until(&mut self, words: &str) -> String {
        let mut said = Vec::new();
        while !String::from_utf8_lossy(&said).contains(words) {
            let mut piece = [0; 256];
            let length = self.master.read(&mut piece).unwrap();
            said.extend_from_slice(&piece[..length]);
        }
        String::from_utf8_lossy(&said).into_owned()
    }
}

#[test]
fn on_a_terminal_keys_go_there_and_the_persons_own_is_out_of_reach_and_put_back() {
    let (house, _host, session) = session();
    let mut person = Person::new();
    let before = tcgetattr(&person.slave).unwrap();
    let own = nix::unistd::ttyname(&person.slave).unwrap().display().to_string();
    let script = format!(
        "stty size; tty; trap 'stty size' WINCH; ls -l /proc/$$/fd | grep -c '{own}$'; \
         ( : > {own} ) 2>/dev/null && test \"$(tty)\" != {own} && echo REACHED; echo ready; cat"
    );
    let mut child = person.start(&house, &[&session, "--", "sh", "-c", &script]);
    let said = person.until("ready");
    assert!(said.starts_with("33 77\r\n/dev/pts/"), "{said}");
    assert!(!said.contains("REACHED"), "{said}");
    // Raw here: the echo and the line are the other terminal's.
    assert_ne!(tcgetattr(&person.slave).unwrap().local_flags, before.local_flags);
    person.master.write_all(b"typed\r").unwrap();
    person.until("typed\r\ntyped\r\n");
    person.master.write_all(b"\x03").unwrap();
    assert_eq!(wait(&mut child), 130);
    assert_eq!(tcgetattr(&person.slave).unwrap(), before);
    // A signal ends this side: the terminal is put back as well.
    let mut child = person.start(
        &house,
        &[&session, "--", "sh", "-c", "trap '' HUP TERM; echo on; while :; do sleep 0.1; done"],
    );
    person.until("on");
    let leader = fs_children(child.id());
    kill(Pid::from_raw(leader), Signal::SIGHUP).unwrap();
    assert_eq!(wait(&mut child), 129);
    assert_eq!(tcgetattr(&person.slave).unwrap(), before);
}

/// As coreutils do: what cannot be written is told, and what nobody wants to read any more is not.
#[test]
fn output_that_cannot_be_written_is_told_and_never_lost_in_silence() {
    let (house, _host, session) = session();
    let ran = |words: &str, redirected: &str| {
        let script =
            format!("exec \"$0\" --home \"$1\" exec \"$2\" -- sh -c '{words}' {redirected}");
        let mut command = Command::new("sh");
        command
            .args(["-c", &script, env!("CARGO_BIN_EXE_casemate")])
            .arg(house.home())
            .arg(&session);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().unwrap(), err)
    };
    for (redirected, errno) in
        [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")]
    {
        for words in ["echo a", "yes", "yes | head -c 3000000"] {
            let (code, err) = ran(words, redirected);
            assert_eq!(code, 73, "{words} {redirected}: {err}");
            assert!(
                err.contains("cannot write to stdout: ") && err.contains(errno),
                "{words} {redirected}: {err}"
            );
        }
        // Nothing to write, nothing to tell.
        assert_eq!(ran("echo b >&2; exit 3", redirected), (3, "b\n".to_owned()));
    }
    assert_eq!(ran("echo b >&2; exit 73", "2>/dev/full").0, 73);
    // What a daemon has for a stdout that nobody reads is one.
    assert_eq!(ran("echo a", "<>/dev/null >&0"), (0, String::new()));
}

/// Whoever draws a window tells the kernel (TIOCSWINSZ in ioctl_tty(2)), which tells `casemate exec` by SIGWINCH.
#[test]
fn a_terminal_that_is_resized_is_the_commands_size_too() {
    let (house, _host, session) = session();
    let mut person = Person::new();
    let script = "trap 'stty size' WINCH; stty size; echo ready; while :; do sleep 0.1; done";
    let mut child = person.start(&house, &[&session, "--", "sh", "-c", script]);
    let said = person.until("ready");
    assert!(said.starts_with("33 77\r\n"), "{said}");
    for (rows, columns) in [(44, 111), (5, 20)] {
        let size =
            rustix::termios::Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&person.master, size).unwrap();
        person.until(&format!("{rows} {columns}\r\n"));
    }
    person.master.write_all(b"\x03").unwrap();
    assert_eq!(wait(&mut child), 130);
}

/// setsid(1) forks where it leads a group already.
fn fs_children(pid: u32) -> i32 {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children
        .split_whitespace()
        .next()
        .map_or(i32::try_from(pid).unwrap(), |pid| pid.parse().unwrap())
}
