//! What a session may run: counted, and ended above its bound, without the next session noticing.
// Test code: a panic is the failure report. Clippy knows that only of `#[test]` functions.
#![allow(
    clippy::unwrap_used,
    clippy::exit,
    reason = "a test that cannot go on fails there; a role ends its process"
)]

mod support;

use std::fs;
use std::io::{BufRead as _, BufReader, PipeReader};
use std::time::Duration;

use casemate_sandbox::{Exit, Rlimit, SessionSpawner, Wall};
use nix::errno::Errno;
use nix::unistd::ForkResult;

use support::{Session, eventually, inside, run, wait_for, wall};

const TESTS: &[support::Test] = &[
    ("a_fork_bomb_ends_its_own_session_and_no_other", fork_bomb),
    ("threads_count_like_processes", threads),
    ("below_the_bound_nothing_happens_and_the_count_is_right", counted),
    ("processes_that_come_and_go_are_no_bomb", churn),
    ("zombies_that_nobody_waits_for_count", zombies),
    ("a_session_yields_to_its_supervisor_and_cannot_take_that_back", yields),
    ("when_memory_is_short_the_session_goes_before_the_supervisor", dies_first),
    ("a_limit_of_the_user_namespace_counts_the_session_alone", own_user_namespace),
];

fn main() {
    support::main(TESTS, agent);
}

/// Starts a verb and reads its first line.
fn started(session: &SessionSpawner, verb: &str, arguments: &[&str]) -> (i32, String, PipeReader) {
    let (command, reader) = inside(verb, arguments);
    let pid = session.spawn(command, &wall(&[])).unwrap();
    let mut line = String::new();
    let mut reader = BufReader::new(reader);
    reader.read_line(&mut line).unwrap();
    (pid, line.trim().to_owned(), reader.into_inner())
}

fn fork_bomb() {
    let s = Session::new();
    let other = s.spawner.session().unwrap();
    s.session.bound(60).unwrap();
    other.bound(60).unwrap();
    let (neighbour, _, _reader) = started(&other, "processes", &["5"]);
    let (command, _bomb) = inside("processes", &["300"]);
    let bomb = s.session.spawn(command, &wall(&[])).unwrap();
    assert_eq!(wait_for(bomb), Exit::Signal(9));
    let usage = s.session.usage().unwrap();
    assert!(usage.exceeded >= 1 && usage.peak > 60, "{usage:?}");
    eventually("nothing is left of it", || {
        let _ = casemate_sandbox::reap();
        s.session.usage().unwrap().tasks == 0
    });
    assert_eq!(other.usage().unwrap().exceeded, 0);
    assert!(fs::exists(format!("/proc/{neighbour}")).unwrap());
    // Both go on.
    assert_eq!(run(&s.session, &wall(&[]), "exit", &["3"]).0, Exit::Code(3));
    other.kill_all().unwrap();
    assert_eq!(wait_for(neighbour), Exit::Signal(9));
}

fn threads() {
    let s = Session::new();
    s.session.bound(60).unwrap();
    let (command, _reader) = inside("threads", &["100"]);
    let pid = s.session.spawn(command, &wall(&[])).unwrap();
    assert_eq!(wait_for(pid), Exit::Signal(9));
    let usage = s.session.usage().unwrap();
    assert!(usage.exceeded >= 1 && usage.peak > 60, "{usage:?}");
}

fn counted() {
    let s = Session::new();
    assert_eq!(s.session.usage().unwrap(), casemate_sandbox::Usage::default());
    s.session.bound(60).unwrap();
    let (pid, _, _reader) = started(&s.session, "processes", &["20"]);
    eventually("they are counted", || {
        let usage = s.session.usage().unwrap();
        (usage.processes, usage.tasks) == (21, 21)
    });
    let (more, _, _reader) = started(&s.session, "threads", &["20"]);
    eventually("threads as well", || {
        let usage = s.session.usage().unwrap();
        (usage.processes, usage.tasks) == (22, 42)
    });
    assert_eq!(s.session.usage().unwrap().exceeded, 0);
    s.session.kill_all().unwrap();
    assert_eq!(wait_for(pid), Exit::Signal(9));
    let _ = more;
}

fn churn() {
    let s = Session::new();
    s.session.bound(40).unwrap();
    let (exit, said) = run(&s.session, &wall(&[]), "churn", &["400"]);
    assert_eq!((exit, said.trim()), (Exit::Code(0), "400"));
    assert_eq!(s.session.usage().unwrap().exceeded, 0);
}

fn zombies() {
    let s = Session::new();
    s.session.bound(60).unwrap();
    let (command, _reader) = inside("zombies", &["100"]);
    let pid = s.session.spawn(command, &wall(&[])).unwrap();
    assert_eq!(wait_for(pid), Exit::Signal(9));
    assert!(s.session.usage().unwrap().exceeded >= 1);
}

fn yields() {
    let s = Session::new();
    // SAFETY: plain numbers.
    let own = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let (exit, said) = run(&s.session, &wall(&[]), "priority", &[]);
    assert_eq!((exit, said.trim()), (Exit::Code(0), format!("{} EACCES", own + 5).as_str()));
    // SAFETY: plain numbers.
    let spawner = unsafe { libc::getpriority(libc::PRIO_PROCESS, s.spawner.pid().cast_unsigned()) };
    assert_eq!(spawner, own, "the spawner itself does not yield");
}

fn dies_first() {
    let own: i32 = fs::read_to_string("/proc/self/oom_score_adj").unwrap().trim().parse().unwrap();
    let s = Session::new();
    let (exit, said) = run(&s.session, &wall(&[]), "memory", &[]);
    let expected = format!("{} EACCES", (own + 500).min(1000));
    assert_eq!((exit, said.trim()), (Exit::Code(0), expected.as_str()));
}

/// RLIMIT_NPROC counts the tasks of a user in its user namespace, and not those of the same user outside (Linux 5.14).
fn own_user_namespace() {
    if nix::unistd::geteuid().is_root() {
        // The kernel does not count root; the second pass is an ordinary user's.
        return;
    }
    let output = std::process::Command::new(support::this_program())
        .args(["inside", "in-user-namespace"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if said.contains("no user namespace") {
        println!("SKIP: user namespaces: {said}");
        return;
    }
    assert!(output.status.success(), "{said}{errors}");
    assert_eq!(said.trim(), "bounded");
}

/// 40 processes of this user outside of the namespace, and a session in it that may have 50 tasks.
fn in_user_namespace() {
    let mut outside: Vec<std::process::Child> = (0..40)
        .map(|_| std::process::Command::new("/bin/sleep").arg("60").spawn().unwrap())
        .collect();
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    // SAFETY: this process has one thread; the child goes on alone.
    match unsafe { nix::unistd::fork() }.unwrap() {
        ForkResult::Child => {
            if let Err(errno) = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER) {
                println!("no user namespace: {errno}");
                std::process::exit(0);
            }
            fs::write("/proc/self/setgroups", "deny").unwrap();
            fs::write("/proc/self/uid_map", format!("{uid} {uid} 1")).unwrap();
            fs::write("/proc/self/gid_map", format!("{gid} {gid} 1")).unwrap();
            let s = Session::new();
            let limit = Rlimit { resource: libc::RLIMIT_NPROC, soft: 50, hard: 50 };
            let ruleset = wall(&[]).ruleset_fd().unwrap().try_clone_to_owned().unwrap();
            let limited = Wall::from_parts(ruleset, Vec::new(), vec![limit]);
            let (exit, said) = run(&s.session, &limited, "fork-until-refused", &[]);
            assert!(exit.is_success());
            let (made, errno) = said.trim().split_once(' ').unwrap();
            let made: u32 = made.parse().unwrap();
            // The supervisor, the spawner and its threads are among the 50; the 40 outside are not.
            assert!((35..50).contains(&made) && errno == "EAGAIN", "{said}");
            // The supervisor has no such limit.
            std::process::Command::new("/bin/true").status().unwrap();
            println!("bounded");
            std::process::exit(0);
        }
        ForkResult::Parent { child } => {
            let status = nix::sys::wait::waitpid(child, None).unwrap();
            for child in &mut outside {
                child.kill().unwrap();
                child.wait().unwrap();
            }
            assert_eq!(status, nix::sys::wait::WaitStatus::Exited(child, 0));
        }
    }
}

// === the agent ===

fn agent(verb: &str, arguments: &[String]) {
    let number = || arguments[0].parse::<u32>().unwrap();
    match verb {
        "exit" => std::process::exit(arguments[0].parse().unwrap()),
        "processes" => {
            for _ in 0..number() {
                fork_one(|| std::thread::sleep(Duration::from_secs(300)));
            }
            println!("ready");
            std::thread::sleep(Duration::from_secs(300));
        }
        "threads" => {
            for _ in 0..number() {
                std::thread::spawn(|| std::thread::sleep(Duration::from_secs(300)));
            }
            println!("ready");
            std::thread::sleep(Duration::from_secs(300));
        }
        "zombies" => {
            for _ in 0..number() {
                fork_one(|| {});
            }
            std::thread::sleep(Duration::from_secs(300));
        }
        "churn" => {
            for _ in 0..number() {
                fork_one(|| {});
                nix::sys::wait::wait().unwrap();
            }
            println!("{}", number());
        }
        "fork-until-refused" => {
            let mut made = 0;
            let refused = loop {
                // SAFETY: one thread; the child sleeps and ends.
                match unsafe { nix::unistd::fork() } {
                    Ok(ForkResult::Child) => {
                        std::thread::sleep(Duration::from_secs(300));
                        std::process::exit(0);
                    }
                    Ok(ForkResult::Parent { .. }) if made < 200 => made += 1,
                    Ok(ForkResult::Parent { .. }) => break Errno::UnknownErrno,
                    Err(errno) => break errno,
                }
            };
            println!("{made} {refused:?}");
            // Its children hold the pipe: they go with the session's next kill, this one's end is seen at once.
            // SAFETY: plain numbers; the group is this process's own.
            unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
            nix::sys::signal::killpg(nix::unistd::getpgrp(), nix::sys::signal::Signal::SIGTERM)
                .unwrap();
        }
        "priority" => {
            // SAFETY: plain numbers.
            let own = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
            // SAFETY: plain numbers.
            let raised = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, own - 1) };
            println!("{own} {:?}", Errno::result(raised).unwrap_err());
        }
        "memory" => {
            let path = "/proc/self/oom_score_adj";
            let own = fs::read_to_string(path).unwrap();
            let lowered = fs::write(path, "0").unwrap_err();
            println!("{} {:?}", own.trim(), Errno::from_raw(lowered.raw_os_error().unwrap()));
        }
        "in-user-namespace" => in_user_namespace(),
        other => panic!("no verb {other}"),
    }
}

fn fork_one(body: fn()) {
    // SAFETY: one thread; the child does `body` and ends.
    if let Ok(ForkResult::Child) = unsafe { nix::unistd::fork() } {
        body();
        std::process::exit(0);
    }
}
