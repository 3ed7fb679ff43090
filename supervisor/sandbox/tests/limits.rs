//! What each limit of setrlimit(2) and its like holds for: a process, or all of a user's in a user namespace. A limit of a
//! process is no bound of a session. docs/policy.md has the table; each of its rows is measured here (`nproc` in bounds.rs).
// Test code: a panic is the failure report. Clippy knows that only of `#[test]` functions.
#![allow(
    clippy::unwrap_used,
    clippy::exit,
    reason = "a test that cannot go on fails there; a role ends its process"
)]

mod support;

use std::fs;
use std::io::Read as _;
use std::time::{Duration, Instant};

use casemate_sandbox::{Rlimit, Wall};
use nix::errno::Errno;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::ForkResult;

use support::{Session, run, temp_dir, wall};

const TESTS: &[support::Test] = &[
    ("a_limit_of_a_process_is_no_bound_of_a_session", of_a_process),
    ("a_limit_of_a_user_counts_what_all_of_its_processes_took_in_a_user_namespace", of_a_user),
];

fn main() {
    support::main(TESTS, agent);
}

/// What is limited: its resource, the limit, and how too much of it is answered.
struct Row {
    name: &'static str,
    resource: libc::__rlimit_resource_t,
    limit: u64,
    answer: &'static str,
}

const MIB: u64 = 1 << 20;

/// Of memory that is never touched, so that no machine is short of it.
const OF_A_PROCESS: &[Row] = &[
    Row { name: "as", resource: libc::RLIMIT_AS, limit: 512 * MIB, answer: "ENOMEM" },
    Row { name: "data", resource: libc::RLIMIT_DATA, limit: 512 * MIB, answer: "ENOMEM" },
    Row { name: "stack", resource: libc::RLIMIT_STACK, limit: 2 * MIB, answer: "signal 6" },
    Row { name: "fsize", resource: libc::RLIMIT_FSIZE, limit: MIB, answer: "EFBIG" },
    Row { name: "nofile", resource: libc::RLIMIT_NOFILE, limit: 100, answer: "EMFILE" },
    Row { name: "memlock", resource: libc::RLIMIT_MEMLOCK, limit: MIB, answer: "ENOMEM" },
    Row { name: "cpu", resource: libc::RLIMIT_CPU, limit: 1, answer: "signal 24" },
];

const OF_A_USER: &[Row] = &[
    Row { name: "sigpending", resource: libc::RLIMIT_SIGPENDING, limit: 20, answer: "EAGAIN" },
    Row { name: "msgqueue", resource: libc::RLIMIT_MSGQUEUE, limit: 20_000, answer: "EMFILE" },
    // Of /proc/sys/user, not of setrlimit(2).
    Row { name: "inotify", resource: libc::RLIMIT_NOFILE, limit: 10, answer: "EMFILE" },
];

fn of_a_process() {
    let directory = temp_dir();
    for row in OF_A_PROCESS {
        if row.name == "memlock" && nix::unistd::geteuid().is_root() {
            // CAP_IPC_LOCK has no such limit; the second pass is an ordinary user's.
            continue;
        }
        let s = Session::new();
        let limit = Rlimit { resource: row.resource, soft: row.limit, hard: row.limit + 1 };
        let ruleset = wall(&[directory.path()]).ruleset_fd().unwrap().try_clone_to_owned().unwrap();
        let limited = Wall::from_parts(ruleset, Vec::new(), vec![limit]);
        let place = directory.path().to_str().unwrap();
        let limit = row.limit.to_string();
        let (exit, said) = run(&s.session, &limited, "process", &[row.name, &limit, place]);
        // Too much for one; six tenths each for three at once, which is more than that for all.
        let expected = format!("{} yes yes yes", row.answer);
        // An overflown stack has last words.
        assert!(exit.is_success() && said.trim().ends_with(&expected), "{}: {said}", row.name);
    }
}

fn of_a_user() {
    for row in OF_A_USER {
        let output = std::process::Command::new(support::this_program())
            .args(["inside", "user", row.name, &row.limit.to_string()])
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        if said.contains("no user namespace") {
            println!("SKIP: user namespaces: {said}");
            return;
        }
        // What was taken outside does not count; what another process took inside does.
        assert_eq!(said.trim(), format!("yes yes {}", row.answer), "{}: {errors}", row.name);
    }
}

// === the agent ===

fn agent(verb: &str, arguments: &[String]) {
    let (name, limit) = (arguments[0].as_str(), arguments[1].parse::<u64>().unwrap());
    match verb {
        "process" => {
            std::env::set_current_dir(&arguments[2]).unwrap();
            let all = answer(&mut holder(|| take(name, limit * 12 / 10 + 1)));
            let mut three = [(); 3].map(|()| holder(|| take(name, limit * 6 / 10)));
            let three = three.iter_mut().map(answer).collect::<Vec<_>>().join(" ");
            println!("{all} {three}");
        }
        "user" => in_user_namespace(name, limit),
        other => panic!("no verb {other}"),
    }
}

/// One process outside, two inside, six tenths of the limit each.
fn in_user_namespace(name: &str, limit: u64) {
    let part = limit * 6 / 10;
    let mut outside = holder(|| take(name, part));
    let outside = (answer(&mut outside), outside);
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    if let Err(errno) = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER) {
        println!("no user namespace: {errno}");
        return;
    }
    fs::write("/proc/self/setgroups", "deny").unwrap();
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1")).unwrap();
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1")).unwrap();
    let row = OF_A_USER.iter().find(|row| row.name == name).unwrap();
    if name == "inotify" {
        fs::write("/proc/sys/user/max_inotify_instances", limit.to_string()).unwrap();
    } else {
        let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
        // SAFETY: reads one structure that lives as long as the call.
        assert_eq!(unsafe { libc::setrlimit(row.resource, &raw const limit) }, 0);
    }
    let mut first = holder(|| take(name, part));
    let first_said = answer(&mut first);
    let mut second = holder(|| take(name, part));
    println!("{} {first_said} {}", outside.0, answer(&mut second));
}

/// A child that takes something and holds it until this is dropped.
struct Holder {
    pid: nix::unistd::Pid,
    said: std::io::PipeReader,
    ended: bool,
}

fn holder(take: impl FnOnce() -> Result<(), Errno>) -> Holder {
    let (said, mut say) = std::io::pipe().unwrap();
    // SAFETY: this process has one thread.
    match unsafe { nix::unistd::fork() }.unwrap() {
        ForkResult::Child => {
            drop(said);
            let words = match take() {
                Ok(()) => "yes".to_owned(),
                Err(errno) => format!("{errno:?}"),
            };
            let _ = std::io::Write::write_all(&mut say, words.as_bytes());
            drop(say);
            std::thread::sleep(Duration::from_secs(300));
            std::process::exit(0);
        }
        ForkResult::Parent { child } => Holder { pid: child, said, ended: false },
    }
}

/// What it said, or the signal that ended it before.
fn answer(holder: &mut Holder) -> String {
    let mut said = String::new();
    holder.said.read_to_string(&mut said).unwrap();
    if !said.is_empty() {
        return said;
    }
    holder.ended = true;
    match waitpid(holder.pid, None).unwrap() {
        WaitStatus::Signaled(_, signal, _) => format!("signal {}", signal as i32),
        other => format!("{other:?}"),
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        if !self.ended {
            let _ = nix::sys::signal::kill(self.pid, nix::sys::signal::Signal::SIGKILL);
            let _ = waitpid(self.pid, None);
        }
    }
}

fn take(what: &str, amount: u64) -> Result<(), Errno> {
    let bytes = usize::try_from(amount).unwrap();
    match what {
        "as" => map(bytes, libc::PROT_NONE).map(drop),
        "data" => map(bytes, libc::PROT_READ | libc::PROT_WRITE).map(drop),
        "memlock" => {
            let at = map(bytes, libc::PROT_READ | libc::PROT_WRITE)?;
            // SAFETY: pages of the mapping that was just made.
            Errno::result(unsafe { libc::mlock(at, bytes) }).map(drop)
        }
        "stack" => {
            deep((&raw const bytes).addr(), bytes);
            Ok(())
        }
        "fsize" => {
            // SAFETY: ignores a signal, so that the call answers.
            unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
            let content = vec![0; bytes];
            let file = format!("file-{}", std::process::id());
            fs::write(file, content).map_err(|error| Errno::from_raw(error.raw_os_error().unwrap()))
        }
        "nofile" => hold(amount, || {
            let file = fs::File::open("/dev/null");
            file.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap()))
        }),
        "cpu" => {
            let most = Duration::from_millis(if amount == 0 { 600 } else { 60_000 });
            let until = Instant::now() + Duration::from_secs(120);
            while used() < most && Instant::now() < until {}
            Ok(())
        }
        "sigpending" => {
            // Queued and never taken.
            nix::sys::signal::SigSet::all().thread_block()?;
            let value = libc::sigval { sival_ptr: std::ptr::null_mut() };
            let own = nix::unistd::getpid().as_raw();
            for _ in 0..amount {
                // SAFETY: plain numbers; the signal is this process's own and blocked.
                Errno::result(unsafe { libc::sigqueue(own, libc::SIGRTMIN(), value) })?;
            }
            Ok(())
        }
        "msgqueue" => {
            let name = std::ffi::CString::new(format!("/limits-{}", std::process::id())).unwrap();
            // SAFETY: all zero is a value of these numbers.
            let mut kind: libc::mq_attr = unsafe { std::mem::zeroed() };
            (kind.mq_maxmsg, kind.mq_msgsize) = (10, 1100);
            let flags = libc::O_CREAT | libc::O_RDWR;
            // SAFETY: reads a name and a structure that live as long as the call.
            let queue = unsafe { libc::mq_open(name.as_ptr(), flags, 0o600, &raw mut kind) };
            let queue = Errno::result(queue).map(drop);
            // SAFETY: reads a name that lives as long as the call.
            unsafe { libc::mq_unlink(name.as_ptr()) };
            queue
        }
        "inotify" => hold(amount, || {
            // SAFETY: plain numbers.
            Errno::result(unsafe { libc::inotify_init1(libc::IN_CLOEXEC) })
        }),
        other => panic!("no resource {other}"),
    }
}

/// So many of them, held as long as the process lives.
fn hold<T>(amount: u64, mut one: impl FnMut() -> Result<T, Errno>) -> Result<(), Errno> {
    let mut held = Vec::new();
    for _ in 0..amount {
        held.push(one()?);
    }
    std::mem::forget(held);
    Ok(())
}

fn map(bytes: usize, protection: i32) -> Result<*mut libc::c_void, Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping where the kernel likes.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if at == libc::MAP_FAILED { Err(Errno::last()) } else { Ok(at) }
}

/// Goes so far down the stack from `top`, an address near its beginning.
#[inline(never)]
fn deep(top: usize, bytes: usize) {
    let frame = std::hint::black_box([1_u8; 512]);
    if top.abs_diff((&raw const frame).addr()) < bytes {
        deep(top, bytes);
    }
    std::hint::black_box(&frame);
}

/// Processor time of this process.
fn used() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills one structure that lives as long as the call.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap())
}
