//! What a process behind a wall can do to the spawner and the supervisor.

use std::fs;
use std::io::Read as _;

use casemate_sandbox::{Exit, shield};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{Session, inside, run, this_program, wait_for, wall, wall_without_scopes};

pub(crate) fn attacks_upwards() {
    // In a process of its own: the shield cannot be lowered again.
    let attacked =
        std::process::Command::new(this_program()).args(["inside", "attacked"]).status().unwrap();
    assert!(attacked.success());
}

/// A shielded supervisor whose agents attack it and its spawner.
pub(crate) fn attacked() {
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

/// Everything that one process can try on another by its pid; a line each.
pub(crate) fn attack(victim: i32) {
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
