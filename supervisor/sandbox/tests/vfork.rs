//! The child between clone(2) and execve(2), which shares the spawner's memory: what it may not do there, and what it and the
//! spawner's threads show to an agent that wants to disturb them.
// Test code: a panic is the failure report. Clippy knows that only of `#[test]` functions.
#![allow(
    clippy::unwrap_used,
    clippy::exit,
    reason = "a test that cannot go on fails there; a role ends its process"
)]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use casemate_protocol::policy::Policy;
use casemate_protocol::ports::PortRange;
use casemate_protocol::tier::Tier;
use casemate_sandbox::{Attempt, Exit, Listener, Places, RefusedCall, Step, Wall};
use nix::errno::Errno;

use support::{Session, inside, run, temp_dir, wait_for, wall, wall_without_scopes};

/// Ends whoever allocates or frees on another task's thread-local storage: that is a child that shares memory and has not
/// called execve(2) yet, and nobody else.
struct Watchful;

#[global_allocator]
static ALLOCATOR: Watchful = Watchful;

thread_local! {
    static OWNER: Cell<libc::c_long> = const { Cell::new(0) };
}

fn check() {
    // SAFETY: no arguments.
    let task = unsafe { libc::syscall(libc::SYS_gettid) };
    OWNER.with(|owner| match owner.get() {
        0 => owner.set(task),
        same if same == task => {}
        _ => {
            // SAFETY: no arguments; ends this task with SIGABRT.
            unsafe { libc::abort() }
        }
    });
}

extern "C" fn forked() {
    OWNER.with(|owner| owner.set(0));
}

// SAFETY: everything is the system allocator's, to which each call is passed on as it came.
unsafe impl GlobalAlloc for Watchful {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        check();
        // SAFETY: the caller's promises are the callee's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        check();
        // SAFETY: the caller's promises are the callee's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

const TESTS: &[support::Test] = &[
    ("the_child_allocates_and_frees_nothing", no_allocation),
    ("every_signal_is_blocked_where_children_are_born", signals),
    ("nothing_of_the_spawners_memory_is_the_agents", no_shared_memory),
    ("the_agent_cannot_slow_starve_pin_or_limit_a_thread_of_the_spawner", starve),
];

fn main() {
    // fork(3) copies thread-local storage, so its child owns what it finds there; clone(2) runs no such handler.
    // SAFETY: the handler sets one thread-local number.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    support::main(TESTS, agent);
}

fn no_allocation() {
    let s = Session::new();
    let dir = temp_dir();
    let wall = wall(&[dir.path()]);
    assert_eq!(run(&s.session, &wall, "exit", &["5"]).0, Exit::Code(5));
    // The other ways through the child: a probe, and each failure that a caller can bring about.
    let probed = s.session.probe(&[PathBuf::from("/usr"), PathBuf::from("/none")], &wall).unwrap();
    assert_eq!(probed[1].read_errno, libc::ENOENT);
    let (mut command, _reader) = inside("exit", &["0"]);
    command.program = PathBuf::from("/none");
    s.session.spawn(command, &wall).unwrap_err();
    let (mut command, _reader) = inside("exit", &["0"]);
    command.cwd = PathBuf::from("/none");
    s.session.spawn(command, &wall).unwrap_err();
    // Behind the policy that is shipped, with its limits and environment; on a terminal that becomes its own; and with somebody who
    // hears of refusals, as agents and their commands are started.
    let policy = Policy::parse(casemate_protocol::policy::DEVELOPER).unwrap();
    assert!(!policy.rlimits.is_empty());
    let plain = developer(dir.path());
    assert!(!plain.rlimits().is_empty());
    let told = developer(dir.path()).told_to(Arc::new(Nobody)).unwrap();
    for wall in [&wall, &plain, &told] {
        assert_eq!(run(&s.session, wall, "exit", &["6"]).0, Exit::Code(6));
        let ends = nix::pty::openpty(None, None).unwrap();
        let (mut command, mut reader) = inside("terminal", &[]);
        (command.stdin, command.terminal) = (ends.slave, true);
        let pid = s.session.spawn(command, wall).unwrap();
        let mut said = String::new();
        reader.read_to_string(&mut said).unwrap();
        assert_eq!((wait_for(pid), said.as_str()), (Exit::Code(0), "leads\n"));
        drop(ends.master);
        // No terminal: refused in the child, behind the wall.
        let (mut command, _reader) = inside("exit", &["0"]);
        command.terminal = true;
        assert_eq!(s.session.spawn(command, wall).unwrap_err().step, Step::Terminal);
        s.session.probe(&[PathBuf::from("/none")], wall).unwrap();
        let (mut command, _reader) = inside("exit", &["0"]);
        command.program = PathBuf::from("/none");
        assert_eq!(s.session.spawn(command, wall).unwrap_err().step, Step::Exec);
    }
    // A child that died in the window would have left its step at 0 and a signal behind.
    for (_, exit) in casemate_sandbox::reap() {
        assert!(matches!(exit, Exit::Code(_)), "{exit}");
    }
}

/// Is told of refusals, and of nothing here.
#[derive(Debug)]
struct Nobody;

impl Listener for Nobody {
    fn tried(&self, _: Attempt) {}
    fn refused(&self, _: RefusedCall) {}
    fn unread(&self) {}
    fn deaf(&self, errno: i32) {
        panic!("nobody hears: {errno}");
    }
}

fn tasks(pid: i32) -> Vec<i32> {
    fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .map(|task| task.unwrap().file_name().to_str().unwrap().parse().unwrap())
        .collect()
}

fn signals() {
    let s = Session::new();
    s.session.bound(1000).unwrap();
    assert_eq!(run(&s.session, &wall(&[]), "exit", &["0"]).0, Exit::Code(0));
    let mut walls = 0;
    for task in tasks(s.spawner.pid()) {
        let path = format!("/proc/{}/task/{task}", s.spawner.pid());
        if fs::read_to_string(format!("{path}/comm")).unwrap().trim() != "wall" {
            continue;
        }
        walls += 1;
        let status = fs::read_to_string(format!("{path}/status")).unwrap();
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:\t")).unwrap();
        // All but KILL (9) and STOP (19).
        assert_eq!(blocked, "fffffffffffbfeff", "{status}");
    }
    assert_eq!(walls, 1);
}

fn no_shared_memory() {
    let length = 1 << 20;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice; it is left to the process's end.
    let shared = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(shared, libc::MAP_FAILED);
    let own = fs::read_to_string("/proc/self/maps").unwrap();
    assert!(own.lines().any(is_shared), "the supervisor has shared memory");
    let s = Session::new();
    let (exit, said) = run(&s.session, &wall(&[]), "memory", &[]);
    assert!(exit.is_success());
    assert!(!said.lines().any(is_shared), "{said}");
    // Nor does anything that was the spawner's environment or command line show.
    let environment = said.lines().find_map(|line| line.strip_prefix("environ ")).unwrap();
    assert_eq!(environment, "PATH=/usr/bin:/bin\\0");
}

/// Permissions end with `s` for shared (proc_pid_maps(5)).
fn is_shared(line: &str) -> bool {
    line.split_ascii_whitespace().nth(1).is_some_and(|permissions| permissions.ends_with('s'))
}

fn starve() {
    // A group of this program's own: no other is slowed down below.
    nix::unistd::setpgid(nix::unistd::Pid::from_raw(0), nix::unistd::Pid::from_raw(0)).unwrap();
    let s = Session::new();
    let dir = temp_dir();
    let policy = developer(dir.path());
    assert_eq!(run(&s.session, &policy, "exit", &["0"]).0, Exit::Code(0));
    let spawner = s.spawner.pid().to_string();
    let before = priorities(s.spawner.pid());
    let (exit, said) = run(&s.session, &policy, "starve", &[&spawner, "users too"]);
    assert!(exit.is_success(), "{said}");
    for line in said.lines() {
        assert!(line.ends_with(": EPERM"), "{line}");
    }
    for name in SINGLE.iter().chain(&GROUPS).chain(&USERS) {
        assert!(said.lines().any(|line| line.starts_with(&format!("{name}: "))), "{name}: {said}");
    }
    assert_eq!(priorities(s.spawner.pid()), before);
    // The same attacks get through where no filter stands in the way: Landlock alone does not stop them. (Those on all that the user
    // runs would slow down others here.)
    let (exit, said) = run(&s.session, &wall_without_scopes(), "starve", &[&spawner]);
    assert!(exit.is_success(), "{said}");
    // That wall has a filter of its own, for prlimit64(2) alone.
    for name in SINGLE.iter().chain(&GROUPS).filter(|name| **name != "prlimit64") {
        let passes = format!("{name}: succeeded");
        assert!(said.lines().any(|line| line == passes), "{name}: {said}");
    }
}

fn priorities(pid: i32) -> Vec<i32> {
    let mut tasks = tasks(pid);
    tasks.sort_unstable();
    // SAFETY: plain numbers.
    let nice = |task: &i32| unsafe { libc::getpriority(libc::PRIO_PROCESS, task.cast_unsigned()) };
    tasks.iter().map(nice).collect()
}

fn developer(dir: &Path) -> Wall {
    let places = Places {
        programs: vec![support::this_program()],
        ports: PortRange::behind(20_000),
        ..support::places(dir, Tier::Domain)
    };
    Wall::build(&Policy::parse(casemate_protocol::policy::DEVELOPER).unwrap(), &places).unwrap()
}

// === the agent ===

fn agent(verb: &str, arguments: &[String]) {
    match verb {
        "exit" => std::process::exit(arguments[0].parse().unwrap()),
        "memory" => {
            print!("{}", fs::read_to_string("/proc/self/maps").unwrap());
            let environment = fs::read_to_string("/proc/self/environ").unwrap();
            println!("environ {}", environment.replace('\0', "\\0"));
        }
        "starve" => attack(arguments[0].parse().unwrap(), arguments.len() > 1),
        "terminal" => {
            // SAFETY: plain numbers.
            let leader = unsafe { libc::getsid(0) };
            // SAFETY: plain numbers.
            let group = unsafe { libc::tcgetpgrp(0) };
            let own = std::process::id().cast_signed();
            println!("{}", if (leader, group) == (own, own) { "leads" } else { "does not" });
        }
        other => panic!("no verb {other}"),
    }
}

/// Attacks on one thread, on a process group, on all that a user runs.
const SINGLE: [&str; 7] = [
    "setpriority",
    "ioprio_set",
    "sched_setaffinity",
    "sched_setscheduler",
    "sched_setparam",
    "sched_setattr",
    "prlimit64",
];
const GROUPS: [&str; 2] = ["setpriority of its group", "ioprio_set of its group"];
const USERS: [&str; 4] = [
    "setpriority of its user",
    "ioprio_set of its user",
    "setpriority of one's own user",
    "ioprio_set of one's own user",
];

/// As sched_setattr(2) takes it: SCHED_BATCH, one step nicer.
const ATTRIBUTES: [u32; 12] = [48, 3, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];

/// Everything that slows, pins or limits each thread of a process down; a line each.
fn attack(victim: i32, users_too: bool) {
    const IDLE: i64 = 3 << 13;
    let say = |name: &str, number, [a, b, c, d]: [i64; 4]| {
        // SAFETY: plain numbers, and pointers to live values of the types that the calls read.
        let result = unsafe { libc::syscall(number, a, b, c, d) };
        let outcome = Errno::result(result)
            .map_or_else(|errno| format!("{errno:?}"), |_| "succeeded".to_owned());
        println!("{name}: {outcome}");
    };
    for task in tasks(victim) {
        let task = i64::from(task);
        let (cpus, priority) = (1_u64, 0_i32);
        let limit = libc::rlimit { rlim_cur: 4096, rlim_max: 4096 };
        let arguments = [
            (libc::SYS_setpriority, [0, task, 1, 0]),
            (libc::SYS_ioprio_set, [1, task, IDLE, 0]),
            (libc::SYS_sched_setaffinity, [task, 8, &raw const cpus as i64, 0]),
            (libc::SYS_sched_setscheduler, [task, 3, &raw const priority as i64, 0]),
            (libc::SYS_sched_setparam, [task, &raw const priority as i64, 0, 0]),
            (libc::SYS_sched_setattr, [task, ATTRIBUTES.as_ptr() as i64, 0, 0]),
            (libc::SYS_prlimit64, [task, i64::from(libc::RLIMIT_CORE), &raw const limit as i64, 0]),
        ];
        for (name, (number, arguments)) in SINGLE.iter().zip(arguments) {
            say(name, number, arguments);
        }
    }
    let group = nix::unistd::getpgid(Some(nix::unistd::Pid::from_raw(victim))).unwrap();
    let group = i64::from(group.as_raw());
    say(GROUPS[0], libc::SYS_setpriority, [1, group, 1, 0]);
    say(GROUPS[1], libc::SYS_ioprio_set, [2, group, IDLE, 0]);
    if users_too {
        let user = i64::from(nix::unistd::getuid().as_raw());
        say(USERS[0], libc::SYS_setpriority, [2, user, 1, 0]);
        say(USERS[1], libc::SYS_ioprio_set, [3, user, IDLE, 0]);
        say(USERS[2], libc::SYS_setpriority, [2, 0, 1, 0]);
        say(USERS[3], libc::SYS_ioprio_set, [3, 0, IDLE, 0]);
    }
}
