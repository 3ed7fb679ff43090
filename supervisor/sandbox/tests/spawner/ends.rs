//! Ends reach every process of a session, daemons included, and nothing else.

use std::io::{BufRead as _, BufReader};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::time::Duration;
use std::{fs, io};

use casemate_sandbox::Exit;

use crate::support::{Session, eventually, inside, run, this_program, wait_for, wall};

pub(crate) fn kill_all() {
    let s = Session::new();
    let other = s.spawner.session().unwrap();
    let (agent_a, daemon_a) = with_daemon(&s.session);
    let (agent_b, daemon_b) = with_daemon(&other);
    assert!(![agent_a, daemon_a, agent_b, daemon_b].into_iter().any(dead));
    s.session.kill_all().unwrap();
    eventually("session A ends", || dead(agent_a) && dead(daemon_a));
    std::thread::sleep(Duration::from_millis(50));
    assert!(!dead(agent_b) && !dead(daemon_b), "session B lives on");
    // The session itself lives on and can start again.
    assert_eq!(run(&s.session, &wall(&[]), "exit", &["3"]).0, Exit::Code(3));
    other.kill_all().unwrap();
    eventually("session B ends", || dead(agent_b) && dead(daemon_b));
}

pub(crate) fn dropped_session() {
    let s = Session::new();
    let (agent, daemon) = with_daemon(&s.session);
    drop(s.session);
    eventually("the session's processes end", || dead(agent) && dead(daemon));
    let (spawner, pid) = (s.spawner.pid(), s.spawner);
    drop(pid);
    assert_eq!(wait_for(spawner), Exit::Code(0));
}

pub(crate) fn killed_supervisor() {
    let (mut reader, writer) = io::pipe().unwrap();
    let mut supervisor = std::process::Command::new(this_program())
        .args(["inside", "supervisor"])
        .stdout(writer)
        .process_group(0)
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut buffered = BufReader::new(&mut reader);
    buffered.read_line(&mut line).unwrap();
    let pids: Vec<i32> = line.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 3);
    assert!(!pids.iter().copied().any(dead));
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    eventually("spawner, agent and daemon end", || pids.iter().copied().all(dead));
}

/// Gone, or dead and not reaped yet.
pub(crate) fn dead(pid: i32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => {
            stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X']))
        }
        Err(_) => true,
    }
}

/// Starts the daemon verb and returns the pids of the agent and of its double-forked, setsid daemon.
pub(crate) fn with_daemon(session: &casemate_sandbox::SessionSpawner) -> (i32, i32) {
    let (command, reader) = inside("daemon", &[]);
    let agent = session.spawn(command, &wall(&[])).unwrap();
    let mut line = String::new();
    BufReader::new(reader).read_line(&mut line).unwrap();
    (agent, line.trim().parse().unwrap())
}

/// Prints the pid of a double-forked daemon in a session of its own, then stays.
pub(crate) fn daemonize() {
    // SAFETY: single-threaded; the children print, sleep and end.
    match unsafe { nix::unistd::fork() }.unwrap() {
        nix::unistd::ForkResult::Child => {
            nix::unistd::setsid().unwrap();
            // SAFETY: as above.
            if let nix::unistd::ForkResult::Child = unsafe { nix::unistd::fork() }.unwrap() {
                println!("{}", std::process::id());
                std::thread::sleep(Duration::from_secs(300));
            }
            std::process::exit(0);
        }
        nix::unistd::ForkResult::Parent { .. } => std::thread::sleep(Duration::from_secs(300)),
    }
}

/// A supervisor to be killed: prints the pids of its spawner, its agent and the agent's daemon.
pub(crate) fn supervise() {
    let s = Session::new();
    let (agent, daemon) = with_daemon(&s.session);
    println!("{} {agent} {daemon}", s.spawner.pid());
    let stdout = io::stdout().as_raw_fd();
    assert!(stdout >= 0);
    std::thread::sleep(Duration::from_secs(300));
}
