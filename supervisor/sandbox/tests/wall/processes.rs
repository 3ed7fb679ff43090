//! Processes of the same uid outside the session, the supervisor's among them.

use std::fs::{self, File};
use std::io;

use super::cell::{Site, call, errno, free, pid, victim};

fn limits(pid: u64) -> String {
    fs::read_to_string(format!("/proc/{pid}/limits")).unwrap()
}

type Attack = (&'static str, fn(u64) -> Result<i64, i32>, i32);

/// Each does something that is undone or harmless when it succeeds.
const ATTACKS: &[Attack] = &[
    ("signal", |pid| call(libc::SYS_kill, [pid, 0, 0, 0, 0, 0]), libc::EPERM),
    ("signal a thread", |pid| call(libc::SYS_tgkill, [pid, pid, 0, 0, 0, 0]), libc::EPERM),
    (
        "trace",
        |pid| {
            call(libc::SYS_ptrace, [0x4206, pid, 0, 0, 0, 0])?;
            call(libc::SYS_ptrace, [17, pid, 0, 0, 0, 0]).or(Ok(0))
        },
        libc::EPERM,
    ),
    (
        "limit",
        |pid| {
            let limit = libc::rlimit64 { rlim_cur: 4096, rlim_max: 4096 };
            let core = u64::from(libc::RLIMIT_CORE);
            call(libc::SYS_prlimit64, [pid, core, &raw const limit as u64, 0, 0, 0])
        },
        libc::EPERM,
    ),
    ("slow down", |pid| call(libc::SYS_setpriority, [0, pid, 19, 0, 0, 0]), libc::EPERM),
    (
        "slow down its disk",
        |pid| call(libc::SYS_ioprio_set, [1, pid, 3 << 13, 0, 0, 0]),
        libc::EPERM,
    ),
    (
        "pin",
        |pid| {
            let cpus = 1_u64;
            call(libc::SYS_sched_setaffinity, [pid, 8, &raw const cpus as u64, 0, 0, 0])
        },
        libc::EPERM,
    ),
    (
        "make it batch",
        |pid| {
            let priority = 0_i32;
            call(libc::SYS_sched_setscheduler, [pid, 3, &raw const priority as u64, 0, 0, 0])
        },
        libc::EPERM,
    ),
    ("read its environment", |pid| open(&format!("/proc/{pid}/environ")), libc::EACCES),
    ("read its memory map", |pid| open(&format!("/proc/{pid}/maps")), libc::EACCES),
    (
        "use its root",
        |pid| fs::read_dir(format!("/proc/{pid}/root/tmp")).map(|_| 0).map_err(|e| errno(&e)),
        libc::EACCES,
    ),
];

fn open(path: &str) -> Result<i64, i32> {
    File::open(path).map(|_| 0).map_err(|error: io::Error| errno(&error))
}

#[test]
fn processes_outside_are_out_of_reach() {
    let site = Site::new();
    for (name, attack, expected) in ATTACKS {
        let unprotected = victim();
        free(|| attack(pid(&unprotected)))
            .unwrap_or_else(|e| panic!("{name} fails without a wall: errno {e}"));
        let mut victim = victim();
        let pid = pid(&victim);
        let before = limits(pid);
        assert_eq!(site.confined(|| attack(pid)), Err(*expected), "{name}");
        assert!(victim.is_alive().unwrap(), "{name}");
        assert_eq!(limits(pid), before, "{name}");
    }
}

/// 0 is oneself everywhere, except that "every process of the uid" takes it as well.
#[test]
fn ones_own_limits_and_priority_may_be_set() {
    Site::new().confined(|| {
        let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
        let (nofile, at) = (u64::from(libc::RLIMIT_NOFILE), &raw mut limit as u64);
        call(libc::SYS_prlimit64, [0, nofile, 0, at, 0, 0]).unwrap();
        call(libc::SYS_prlimit64, [0, nofile, at, 0, 0, 0]).unwrap();
        call(libc::SYS_setpriority, [0, 0, 19, 0, 0, 0]).unwrap();
        assert_eq!(call(libc::SYS_setpriority, [2, 0, 1, 0, 0, 0]), Err(libc::EPERM));
        assert_eq!(call(libc::SYS_ioprio_set, [3, 0, 3 << 13, 0, 0, 0]), Err(libc::EPERM));
        // Reading another's limits is not refused.
        let pid = nix::unistd::gettid().as_raw().cast_unsigned().into();
        call(libc::SYS_prlimit64, [pid, nofile, 0, at, 0, 0]).unwrap();
        assert_eq!(call(libc::SYS_prlimit64, [pid, nofile, at, 0, 0, 0]), Err(libc::EPERM));
    });
}

#[test]
fn threads_and_children_start_without_clone3() {
    Site::new().confined(|| {
        assert_eq!(call(libc::SYS_clone3, [0; 6]), Err(libc::ENOSYS));
        assert_eq!(std::thread::spawn(|| 7).join().unwrap(), 7);
        let output =
            std::process::Command::new("/bin/sh").args(["-c", "echo $(echo x)"]).output().unwrap();
        assert_eq!(output.stdout, b"x\n");
    });
}
