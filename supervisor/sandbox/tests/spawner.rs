//! The spawner from the agent's side: what a process behind a wall can do to the spawner, the supervisor and another
//! session, and what it inherits.
// Test code: a panic is the failure report. Clippy knows that only of `#[test]` functions.
#![allow(
    clippy::unwrap_used,
    clippy::exit,
    reason = "a test that cannot go on fails there; a role ends its process"
)]

mod support;

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use casemate_sandbox::{Exit, Spawner, Step, reap, shield};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use support::{
    Session, command, eventually, inside, run, temp_dir, wait_for, wall, wall_over,
    wall_without_scopes,
};

const TESTS: &[support::Test] = &[
    ("a_command_runs_behind_the_wall_and_its_exit_code_reaches_us_alone", exit_codes),
    ("the_agent_starts_with_a_clean_process_state", clean_state),
    ("a_file_is_linked_and_moved_from_one_folder_to_another", moved),
    ("the_agent_inherits_three_descriptors_and_nothing_else", descriptors),
    ("the_agent_gets_exactly_the_given_environment", environment),
    ("the_agent_cannot_touch_spawner_or_supervisor", attacks_upwards),
    ("the_shield_holds_and_stays_with_the_supervisor", shield_stays),
    ("without_a_signal_scope_there_is_no_session", no_scope_no_session),
    ("kill_all_ends_daemons_of_its_session_and_nothing_else", kill_all),
    ("dropping_a_session_ends_its_processes", dropped_session),
    ("a_killed_supervisor_leaves_neither_agents_nor_spawner", killed_supervisor),
    ("neither_spawner_nor_agents_hold_what_they_were_not_given", not_given),
    ("the_spawner_alone_keeps_what_it_is_given_and_to_its_end", kept),
    ("a_terminal_that_is_handed_over_is_the_commands_own", terminal),
    ("a_failed_start_names_step_and_errno", failures),
    ("no_exit_code_is_lost_among_failing_and_fast_starts", no_lost_exit),
    ("a_probe_answers_what_the_agent_would_get", probe),
    ("large_arguments_pass_and_too_large_ones_are_refused", large_arguments),
    ("more_walls_than_are_kept_still_each_hold", many_walls),
    ("the_spawner_is_not_started_beside_threads", threads_refused),
];

fn main() {
    support::main(TESTS, agent);
}

fn exit_codes() {
    let s = Session::new();
    let wall = wall(&[]);
    assert_eq!(run(&s.session, &wall, "exit", &["7"]).0, Exit::Code(7));
    let (exit, said) = run(&s.session, &wall, "parent", &[]);
    assert_eq!((exit, said.trim()), (Exit::Code(0), std::process::id().to_string().as_str()));
    let killed = run(&s.session, &wall, "abort", &[]).0;
    assert_eq!((killed, killed.code()), (Exit::Signal(6), 134));
    assert_eq!(killed.to_string(), "signal 6 (SIGABRT)");
}

fn clean_state() {
    let s = Session::new();
    let (exit, said) = run(&s.session, &wall(&[]), "state", &[]);
    assert!(exit.is_success());
    for line in [
        "SigBlk:\t0000000000000000",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
        "CapEff:\t0000000000000000",
        "CapPrm:\t0000000000000000",
        "leader: true",
    ] {
        assert!(said.lines().any(|have| have == line), "no `{line}` in:\n{said}");
    }
    // The agent here is a Rust program, whose runtime ignores SIGPIPE (13) by itself. A shell does not.
    let (command, mut reader) = command(Path::new("/bin/cat"), &["cat", "/proc/self/status"], &[]);
    let pid = s.session.spawn(command, &wall(&[])).unwrap();
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    assert!(wait_for(pid).is_success());
    for line in
        ["SigIgn:\t0000000000000000", "SigCgt:\t0000000000000000", "SigPnd:\t0000000000000000"]
    {
        assert!(said.lines().any(|have| have == line), "no `{line}` in:\n{said}");
    }
}

/// Each layer has to allow it (landlock(7), LANDLOCK_ACCESS_FS_REFER): EXDEV where the signal scope's does not.
fn moved() {
    let s = Session::new();
    let dir = temp_dir();
    let script = "cd \"$1\" && mkdir a b && : > a/f && ln a/f b/f && ln -T a/f b/g && echo linked";
    let place = dir.path().to_str().unwrap();
    let (command, mut reader) =
        command(Path::new("/bin/sh"), &["sh", "-c", script, "sh", place], &[]);
    let pid = s.session.spawn(command, &wall(&[dir.path()])).unwrap();
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    assert_eq!((wait_for(pid), said.as_str()), (Exit::Code(0), "linked\n"));
}

fn descriptors() {
    // One inheritable descriptor from before the spawner's fork, one from after.
    let _fill: Vec<_> = (0..8).map(|_| fs::File::open("/dev/null").unwrap()).collect();
    let before = fs::File::open("/etc/passwd").unwrap();
    inheritable(&before);
    let s = Session::new();
    let after = fs::File::open("/etc/group").unwrap();
    inheritable(&after);
    let (exit, said) = run(&s.session, &wall(&[]), "descriptors", &[]);
    assert!(exit.is_success());
    let targets: Vec<&str> = said.lines().collect();
    // The fourth is the directory being listed.
    assert_eq!(targets.len(), 4, "{said}");
    assert_eq!(targets[0], "0 /dev/null");
    assert!(targets[1].starts_with("1 pipe:") && targets[2].starts_with("2 pipe:"), "{said}");
    assert!(targets[3].starts_with("3 /proc/"), "{said}");
    // The spawner holds its sockets and /dev/null, and neither of the two files.
    let held: Vec<String> = fs::read_dir(format!("/proc/{}/fd", s.spawner.pid()))
        .map(|list| {
            list.map(|entry| fs::read_link(entry.unwrap().path()).unwrap().display().to_string())
                .collect()
        })
        // Non-dumpable: only root may look.
        .unwrap_or_default();
    assert_eq!(held.is_empty(), !nix::unistd::geteuid().is_root());
    assert!(
        held.iter().all(|target| target == "/dev/null"
            || target.starts_with("socket:")
            || target.contains("landlock")),
        "{held:?}"
    );
}

fn inheritable(file: &fs::File) {
    nix::fcntl::fcntl(file, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty())).unwrap();
}

fn environment() {
    let s = Session::new();
    assert!(std::env::var_os("PATH").is_some(), "the supervisor has variables of its own");
    let (command, mut reader) =
        command(Path::new("/usr/bin/env"), &["env"], &["ONE=1", "TWO=two words"]);
    let pid = s.session.spawn(command, &wall(&[])).unwrap();
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    assert!(wait_for(pid).is_success());
    assert_eq!(said, "ONE=1\nTWO=two words\n");
}

fn terminal() {
    let s = Session::new();
    let ends = nix::pty::openpty(None, None).unwrap();
    let on_terminal = |script: &str| {
        let (mut command, reader) = command(Path::new("/bin/sh"), &["sh", "-c", script], &[]);
        command.stdin = ends.slave.try_clone().unwrap();
        command.terminal = true;
        (command, reader)
    };
    let (command, mut reader) =
        on_terminal("exec 3</dev/tty && tty; ps -o tpgid= -p $$ | tr -d ' '; echo $$");
    let pid = s.session.spawn(command, &wall(&[])).unwrap();
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    assert!(wait_for(pid).is_success(), "{said}");
    let name = nix::unistd::ttyname(&ends.slave).unwrap();
    assert_eq!(said, format!("{}\n{pid}\n{pid}\n", name.display()));
    // Without: no controlling terminal, whatever descriptor 0 is.
    let (mut command, mut reader) = on_terminal("exec 3</dev/tty && echo opened");
    command.terminal = false;
    let pid = s.session.spawn(command, &wall(&[])).unwrap();
    said.clear();
    reader.read_to_string(&mut said).unwrap();
    assert!(!wait_for(pid).is_success() && !said.contains("opened"), "{said}");
    // One that a living session has is not taken from it, and what is none is none.
    let (command, _held) = on_terminal("sleep 300");
    let holder = s.session.spawn(command, &wall(&[])).unwrap();
    let refused = s.session.spawn(on_terminal("true").0, &wall(&[])).unwrap_err();
    assert_eq!((refused.step, refused.errno()), (Step::Terminal, libc::EPERM));
    kill(Pid::from_raw(holder), Signal::SIGKILL).unwrap();
    wait_for(holder);
    let (mut command, _reader) = on_terminal("true");
    command.stdin = fs::File::open("/dev/null").unwrap().into();
    let refused = s.session.spawn(command, &wall(&[])).unwrap_err();
    assert_eq!((refused.step, refused.errno()), (Step::Terminal, libc::ENOTTY));
}

fn attacks_upwards() {
    // In a process of its own: the shield cannot be lowered again.
    let attacked = std::process::Command::new(support::this_program())
        .args(["inside", "attacked"])
        .status()
        .unwrap();
    assert!(attacked.success());
}

/// A shielded supervisor whose agents attack it and its spawner.
fn attacked() {
    shield::harden().unwrap();
    let s = Session::new();
    let wall = wall(&[]);
    let spawner = s.spawner.pid().to_string();
    let us = std::process::id().to_string();
    // Also an agent of the same session that was started before: its domain is another.
    let (sleeper, _reader) = inside("sleep", &[]);
    let sleeper = s.session.spawn(sleeper, &wall).unwrap();
    let unscoped = wall_without_scopes();
    for (victim, wall) in [(&spawner, &wall), (&us, &wall), (&spawner, &unscoped), (&us, &unscoped)]
    {
        let (exit, said) = run(&s.session, wall, "attack", &[victim]);
        assert!(exit.is_success(), "{said}");
        let mut tried = 0;
        for line in said.lines() {
            let (attack, answer) = line.split_once(": ").unwrap();
            assert!(["EPERM", "EACCES"].contains(&answer), "{attack} on {victim}: {answer}");
            tried += 1;
        }
        assert!(tried >= 8, "{said}");
    }
    assert!(kill(Pid::from_raw(sleeper), None).is_ok());
    assert_eq!(run(&s.session, &wall, "exit", &["0"]).0, Exit::Code(0));
    s.session.kill_all().unwrap();
    assert_eq!(wait_for(sleeper), Exit::Signal(9));
}

fn shield_stays() {
    let shielded = std::process::Command::new(support::this_program())
        .args(["inside", "shielded"])
        .status()
        .unwrap();
    assert!(shielded.success());
}

/// A shielded supervisor: its own memory is sealed, an agent's just-in-time compiler works.
fn shielded() {
    assert_eq!(executable_memory(), "succeeded", "before the shield it is to be had");
    let report = shield::harden().unwrap();
    assert_eq!(report.mdwe, shield::Mdwe::On);
    assert_eq!(executable_memory(), "EACCES");
    let root = nix::unistd::geteuid().is_root();
    assert_eq!(report.bounding == shield::Bounding::Empty, root, "{report:?}");
    let status = fs::read_to_string("/proc/self/status").unwrap();
    for set in ["CapPrm", "CapEff", "CapInh", "CapAmb"] {
        assert!(status.contains(&format!("{set}:\t0000000000000000")), "{status}");
    }
    // Non-dumpable: the files of our own process belong to root.
    let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata("/proc/self/environ").unwrap());
    assert_eq!(owner, 0);
    let s = Session::new();
    let (exit, said) = run(&s.session, &wall(&[]), "jit", &[]);
    assert_eq!((exit, said.trim()), (Exit::Code(0), "succeeded"));
}

/// What a just-in-time compiler does: write, then execute.
fn executable_memory() -> String {
    let length = 4096;
    // SAFETY: a new anonymous mapping, which nothing else knows; it is left to the process's end.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(page, libc::MAP_FAILED);
    // SAFETY: the whole of the mapping above.
    let executable = unsafe { libc::mprotect(page, length, libc::PROT_READ | libc::PROT_EXEC) };
    Errno::result(executable).map_or_else(|errno| format!("{errno:?}"), |_| "succeeded".to_owned())
}

fn no_scope_no_session() {
    let output = std::process::Command::new(support::this_program())
        .args(["inside", "without-landlock"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said, "SignalScope ENOSYS\nno tier\n");
}

/// A supervisor on a kernel without Landlock, as far as system calls tell.
fn without_landlock() {
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let number = u32::try_from(libc::SYS_landlock_create_ruleset).unwrap();
    let program = [
        step(0x20, 0, 0, 0),
        step(0x15, 0, 1, number),
        step(0x06, 0, 0, 0x0005_0026), // ENOSYS
        step(0x06, 0, 0, 0x7fff_0000), // allow
    ];
    let header = libc::sock_fprog { len: 4, filter: program.as_ptr().cast_mut() };
    nix::sys::prctl::set_no_new_privs().unwrap();
    // SAFETY: the header describes a live array of four instructions.
    let installed = unsafe { libc::syscall(libc::SYS_seccomp, 1, 0, &raw const header) };
    assert_eq!(installed, 0);
    let report = casemate_sandbox::kernel::report();
    let spawner = Spawner::start(&[]).unwrap();
    let error = spawner.session().unwrap_err();
    println!("{:?} {:?}", error.step, Errno::from_raw(error.errno()));
    println!("{}", report.tier.map_or("no tier".to_owned(), |tier| tier.to_string()));
}

/// Starts the daemon verb and returns the pids of the agent and of its double-forked, setsid daemon.
fn with_daemon(session: &casemate_sandbox::SessionSpawner) -> (i32, i32) {
    let (command, reader) = inside("daemon", &[]);
    let agent = session.spawn(command, &wall(&[])).unwrap();
    let mut line = String::new();
    BufReader::new(reader).read_line(&mut line).unwrap();
    (agent, line.trim().parse().unwrap())
}

/// Gone, or dead and not reaped yet.
fn dead(pid: i32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => {
            stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X']))
        }
        Err(_) => true,
    }
}

fn kill_all() {
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

fn dropped_session() {
    let s = Session::new();
    let (agent, daemon) = with_daemon(&s.session);
    drop(s.session);
    eventually("the session's processes end", || dead(agent) && dead(daemon));
    let (spawner, pid) = (s.spawner.pid(), s.spawner);
    drop(pid);
    assert_eq!(wait_for(spawner), Exit::Code(0));
}

fn killed_supervisor() {
    let (mut reader, writer) = io::pipe().unwrap();
    let mut supervisor = std::process::Command::new(support::this_program())
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

fn not_given() {
    let dir = temp_dir();
    let path = dir.path().join("lock");
    // The first free numbers are reused by the spawner for its own: the lock gets a later one.
    let _fill: Vec<_> = (0..8).map(|_| fs::File::open("/dev/null").unwrap()).collect();
    let held = casemate_sandbox::lock::hold(&path).unwrap();
    let s = Session::new();
    let (agent, _daemon) = with_daemon(&s.session);
    casemate_sandbox::lock::hold(&path).unwrap_err();
    drop(held);
    // Spawner, agent and daemon live, and none of them stands in the way.
    drop(casemate_sandbox::lock::hold(&path).unwrap());
    assert!(!dead(agent) && !dead(s.spawner.pid()));
}

fn kept() {
    let dir = temp_dir();
    let path = dir.path().join("lock");
    let held = casemate_sandbox::lock::hold(&path).unwrap();
    // At the number where the spawner puts its own socket, and far from it.
    let second = fs::File::open("/dev/zero").unwrap();
    reap::adopt_orphans().unwrap();
    let spawner = Spawner::start(&[held.as_fd(), second.as_fd()]).unwrap();
    let session = spawner.session().unwrap();
    let (exit, said) = run(&session, &wall(&[]), "descriptors", &[]);
    assert!(exit.is_success() && !said.contains("lock") && !said.contains("zero"), "{said}");
    let (agent, daemon) = with_daemon(&session);
    drop(held);
    casemate_sandbox::lock::hold(&path).unwrap_err();
    session.close();
    assert!(session.kill_all().is_err(), "closed is closed");
    spawner.end();
    drop(casemate_sandbox::lock::hold(&path).unwrap());
    assert!(dead(agent) && dead(daemon), "the spawner goes last");
}

fn failures() {
    let s = Session::new();
    let dir = temp_dir();
    let wall = wall(&[]);
    let start = |program: &Path, cwd: &Path, wall| {
        let (mut command, _reader) = command(program, &["x"], &[]);
        command.cwd = cwd.to_owned();
        let error = s.session.spawn(command, wall).unwrap_err();
        (error.step, Errno::from_raw(error.errno()))
    };
    let root = Path::new("/");
    assert_eq!(start(Path::new("/no/such/program"), root, &wall), (Step::Exec, Errno::ENOENT));
    assert_eq!(start(Path::new("/etc/passwd"), root, &wall), (Step::Exec, Errno::EACCES));
    assert_eq!(
        start(Path::new("/bin/true"), Path::new("/no/such"), &wall),
        (Step::Chdir, Errno::ENOENT)
    );
    // There, executable, and not granted.
    let walled = dir.path().join("true");
    fs::copy("/bin/true", &walled).unwrap();
    fs::set_permissions(&walled, fs::Permissions::from_mode(0o755)).unwrap();
    let narrow = wall_over(&[Path::new("/usr"), Path::new("/lib"), Path::new("/lib64")], &[]);
    assert_eq!(start(&walled, root, &narrow), (Step::Exec, Errno::EACCES));
    let (mut bad, _reader) = command(&walled, &["x"], &[]);
    bad.program = PathBuf::from("/bin/\0true");
    assert_eq!(s.session.spawn(bad, &wall).unwrap_err().step, Step::Request);
}

fn no_lost_exit() {
    let s = Session::new();
    let wall = wall(&[]);
    let mut expected = Vec::new();
    let mut ended = Vec::new();
    let mut failed = 0;
    for round in 0..300 {
        let code = (round % 100).to_string();
        let (mut command, _reader) =
            command(Path::new("/bin/sh"), &["sh", "-c", &format!("exit {code}")], &[]);
        if round % 3 == 0 {
            command.program = PathBuf::from("/no/such/program");
        }
        match s.session.spawn(command, &wall) {
            Ok(pid) => expected.push((pid, Exit::Code(round % 100))),
            Err(error) => {
                assert_eq!((error.step, error.errno()), (Step::Exec, libc::ENOENT));
                failed += 1;
            }
        }
        ended.extend(reap());
    }
    eventually("everything has been reaped", || {
        ended.extend(reap());
        ended.len() >= 300
    });
    assert_eq!((failed, expected.len(), ended.len()), (100, 200, 300));
    for end in &expected {
        assert!(ended.contains(end), "{end:?} was lost");
    }
    assert_eq!(ended.iter().filter(|(_, exit)| *exit == Exit::Code(127)).count(), 100);
}

fn probe() {
    let s = Session::new();
    let dir = temp_dir();
    let [open, closed] = ["open", "closed"].map(|name| {
        let path = dir.path().join(name);
        fs::create_dir(&path).unwrap();
        fs::write(path.join("file"), "content").unwrap();
        path
    });
    let wall = wall_over(&[Path::new("/usr")], &[&open]);
    let paths =
        [open.join("file"), closed.join("file"), PathBuf::from("/no/such"), PathBuf::from("/usr")];
    let answers = s.session.probe(&paths, &wall).unwrap();
    let errnos: Vec<(i32, i32)> = answers.iter().map(|a| (a.read_errno, a.write_errno)).collect();
    assert_eq!(
        errnos,
        [(0, 0), (libc::EACCES, libc::EACCES), (libc::ENOENT, libc::ENOENT), (0, libc::EISDIR)]
    );
    assert_eq!(fs::read_to_string(open.join("file")).unwrap(), "content");
}

fn large_arguments() {
    let s = Session::new();
    let long = "x".repeat(120_000);
    let (command_, mut reader) = command(
        Path::new("/bin/sh"),
        &["sh", "-c", "echo $#", "zero", &long, &long, &long, &long, &long],
        &[&format!("LONG={long}")],
    );
    let pid = s.session.spawn(command_, &wall(&[])).unwrap();
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    assert_eq!((wait_for(pid), said.trim()), (Exit::Code(0), "5"));
    let many = vec![long.as_str(); 60];
    let (too_long, _reader) = command(Path::new("/bin/sh"), &many, &[]);
    let error = s.session.spawn(too_long, &wall(&[])).unwrap_err();
    assert_eq!((error.step, error.errno()), (Step::Exec, libc::E2BIG));
    let many = vec![long.as_str(); 80];
    let (far_too_long, _reader) = command(Path::new("/bin/sh"), &many, &[]);
    let error = s.session.spawn(far_too_long, &wall(&[])).unwrap_err();
    assert_eq!((error.step, error.errno()), (Step::Request, libc::E2BIG));
    assert_eq!(run(&s.session, &wall(&[]), "exit", &["4"]).0, Exit::Code(4));
}

fn many_walls() {
    let s = Session::new();
    let dir = temp_dir();
    let places: Vec<PathBuf> = (0..10).map(|n| dir.path().join(n.to_string())).collect();
    let walls: Vec<_> = places
        .iter()
        .map(|place| {
            fs::create_dir(place).unwrap();
            wall(&[place])
        })
        .collect();
    for round in [0, 9, 1, 8, 2, 7, 3, 6, 4, 5, 0, 1, 9] {
        for (number, place) in places.iter().enumerate() {
            let file = place.join("new");
            let (exit, said) = run(&s.session, &walls[round], "create", &[file.to_str().unwrap()]);
            assert!(exit.is_success());
            let expected = if number == round { "ok" } else { "EACCES" };
            assert_eq!(said.trim(), expected, "wall {round} in place {number}");
        }
    }
}

fn threads_refused() {
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || stopped.recv());
    assert_eq!(Spawner::start(&[]).unwrap_err().raw_os_error(), Some(libc::EBUSY));
    drop(stop);
    thread.join().unwrap().unwrap_err();
    eventually("the thread is gone", || Spawner::start(&[]).is_ok());
}

// === the agent ===

fn agent(verb: &str, arguments: &[String]) {
    match verb {
        "exit" => std::process::exit(arguments[0].parse().unwrap()),
        "parent" => println!("{}", nix::unistd::getppid()),
        "abort" => std::process::abort(),
        "sleep" => std::thread::sleep(Duration::from_secs(300)),
        "state" => {
            println!("{}", fs::read_to_string("/proc/self/status").unwrap());
            let leader = nix::unistd::getsid(None).unwrap() == nix::unistd::getpid();
            println!("leader: {leader}");
        }
        "descriptors" => {
            for entry in fs::read_dir("/proc/self/fd").unwrap() {
                let entry = entry.unwrap();
                let target = fs::read_link(entry.path()).unwrap();
                println!("{} {}", entry.file_name().display(), target.display());
            }
        }
        "create" => match fs::File::create(&arguments[0]) {
            Ok(_) => println!("ok"),
            Err(error) => println!("{:?}", Errno::from_raw(error.raw_os_error().unwrap())),
        },
        "attack" => attack(arguments[0].parse().unwrap()),
        "daemon" => daemonize(),
        "attacked" => attacked(),
        "shielded" => shielded(),
        "without-landlock" => without_landlock(),
        "jit" => println!("{}", executable_memory()),
        "supervisor" => supervise(),
        other => panic!("no verb {other}"),
    }
}

/// Everything that one process can try on another by its pid; a line each.
fn attack(victim: i32) {
    let pid = Pid::from_raw(victim);
    let tell = |attack: &str, result: Result<(), Errno>| {
        println!(
            "{attack}: {}",
            result.map_or_else(|errno| format!("{errno:?}"), |()| "succeeded".to_owned())
        );
    };
    tell("kill 0", kill(pid, None));
    for signal in [Signal::SIGTERM, Signal::SIGKILL, Signal::SIGSTOP] {
        tell(signal.as_str(), kill(pid, signal));
    }
    for task in fs::read_dir(format!("/proc/{victim}/task")).unwrap() {
        let tid: i32 = task.unwrap().file_name().to_str().unwrap().parse().unwrap();
        // SAFETY: plain numbers.
        let sent = unsafe { libc::syscall(libc::SYS_tgkill, victim, tid, libc::SIGKILL) };
        tell(&format!("tgkill {tid}"), Errno::result(sent).map(drop));
        // SAFETY: plain numbers; PTRACE_SEIZE does not stop the victim.
        let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, tid, 0, 0) };
        tell(&format!("ptrace {tid}"), Errno::result(seized).map(drop));
    }
    let one = libc::rlimit { rlim_cur: 1, rlim_max: 1 };
    // SAFETY: the new limit is a live structure; the old one is not asked for.
    let limited =
        unsafe { libc::prlimit(victim, libc::RLIMIT_CPU, &raw const one, std::ptr::null_mut()) };
    tell("prlimit", Errno::result(limited).map(drop));
    for file in ["environ", "mem", "maps"] {
        // Opening `mem` for writing, reading one byte of the others: some refuse at open, some at read.
        let path = format!("/proc/{victim}/{file}");
        let result = fs::File::open(path).and_then(|mut file| file.read_exact(&mut [0]));
        tell(
            file,
            result.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))),
        );
    }
    for link in ["fd/0", "cwd", "root", "exe"] {
        let read = fs::read_link(format!("/proc/{victim}/{link}")).map(drop);
        tell(link, read.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap())));
    }
}

/// Prints the pid of a double-forked daemon in a session of its own, then stays.
fn daemonize() {
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
fn supervise() {
    let s = Session::new();
    let (agent, daemon) = with_daemon(&s.session);
    println!("{} {agent} {daemon}", s.spawner.pid());
    let stdout = io::stdout().as_raw_fd();
    assert!(stdout >= 0);
    std::thread::sleep(Duration::from_secs(300));
}
