//! Attacks on another process: signals, ptrace, memory, descriptors, limits, scheduling.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut};

use nix::sys::ptrace;
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use rustix::process::{self, Pid, PidfdFlags, PidfdGetfdFlags, Resource, Rlimit, Signal};
use rustix::thread::CpuSet;

use crate::attempt::{Report, SUCCEEDED};
use crate::procfs;

/// What is said where the number belongs to nobody, or to a process of this very session.
pub(crate) const NOT_HERE: &str = "ESRCH";

/// Tries all of it on `pid`, if that is the process whose command line holds `mark`.
pub(crate) fn all(pid: Pid, mark: &str, report: &mut Report<'_>) {
    let target = format!("process {pid}");
    // In a pid namespace of one's own the number may be one of one's own processes: not the victim, not to be hurt.
    match procfs::command_line(pid) {
        Ok(line) if !line.contains(mark) => {
            report.say(
                "find by its number",
                &target,
                NOT_HERE,
                "the number is another process here",
            );
            return;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            report.say("find by its number", &target, NOT_HERE, "");
        }
        Err(_) | Ok(_) => report.say("find by its number", &target, SUCCEEDED, ""),
    }
    touch(pid, &target, report);
}

/// Tries all of it on the supervisor, and looks for its secrets.
pub(crate) fn supervisor(pid: Pid, report: &mut Report<'_>) {
    let target = format!("supervisor {pid}");
    touch(pid, &target, report);
    for name in ["environ", "mem", "maps", "root", "cwd", "fd", "fd/0", "auxv", "stack", "syscall"]
    {
        report.result(&format!("open /proc/PID/{name}"), &target, procfs::open(pid, name));
    }
}

fn touch(pid: Pid, target: &str, report: &mut Report<'_>) {
    let raw = pid.as_raw_nonzero().get();
    let nix_pid = nix::unistd::Pid::from_raw(raw);

    let signal_allowed = report.result("signal 0", target, process::test_kill_process(pid));
    if !signal_allowed {
        report.result("kill", target, process::kill_process(pid, Signal::KILL));
    }
    let pidfd = process::pidfd_open(pid, PidfdFlags::empty());
    match &pidfd {
        Ok(pidfd) => {
            if !signal_allowed {
                let sent = process::pidfd_send_signal(pidfd, Signal::KILL);
                report.result("kill by pidfd", target, sent);
            }
            let taken = process::pidfd_getfd(pidfd, 0, PidfdGetfdFlags::empty());
            report.result("take its descriptor 0", target, taken);
        }
        Err(error) => {
            report.result("kill by pidfd", target, Err::<(), _>(*error));
            report.result("take its descriptor 0", target, Err::<(), _>(*error));
        }
    }

    if report.result("ptrace attach", target, ptrace::attach(nix_pid)) {
        let _ = nix::sys::wait::waitpid(nix_pid, None);
        let _ = ptrace::detach(nix_pid, None);
    }
    if report.result("ptrace seize", target, ptrace::seize(nix_pid, ptrace::Options::empty())) {
        let _ = ptrace::interrupt(nix_pid);
        let _ = nix::sys::wait::waitpid(nix_pid, None);
        let _ = ptrace::detach(nix_pid, None);
    }

    let (base, known) = match first_mapping(pid) {
        Some(base) => (base, true),
        // The permission is checked before the address: EFAULT would be a hole.
        None => (0x1000, false),
    };
    let mut buffer = [0; 8];
    let remote = [RemoteIoVec { base, len: buffer.len() }];
    let read = process_vm_readv(nix_pid, &mut [IoSliceMut::new(&mut buffer)], &remote);
    report.result("read its memory", target, read);
    if !known {
        let written = process_vm_writev(nix_pid, &[IoSlice::new(&buffer)], &remote);
        report.result("write its memory", target, written);
    }

    // Values that do no harm where the call works; the permission does not depend on them.
    let core = Rlimit { current: Some(0), maximum: Some(0) };
    report.result("set its limits", target, process::prlimit(Some(pid), Resource::Core, core));
    report.result("set its priority", target, process::setpriority_process(Some(pid), 1));
    let mut cpus = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| cpus.set(cpu));
    let bound = rustix::thread::sched_setaffinity(Some(pid), &cpus);
    report.result("bind it to processors", target, bound);
}

fn first_mapping(pid: Pid) -> Option<usize> {
    let maps = fs::read_to_string(procfs::path(pid, "maps")).ok()?;
    usize::from_str_radix(maps.split('-').next()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::Attempt;
    use crate::catalogue::Victim;

    fn run(f: impl FnOnce(&mut Report<'_>)) -> Vec<Attempt> {
        let mut out = Vec::new();
        f(&mut Report::new(&mut out));
        let text = String::from_utf8(out).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn on_an_unprotected_process_each_attack_succeeds() {
        let victim = Victim::start("600.125", None).unwrap();
        let pid = Pid::from_raw(victim.pid()).unwrap();
        // vfork's parent goes on a moment before the new image has its arguments.
        while !procfs::command_line(pid).unwrap().contains("600.125") {}
        let attempts = run(|report| all(pid, "600.125", report));
        assert_eq!(attempts.len(), 9);
        for attempt in attempts {
            assert_eq!(attempt.outcome, SUCCEEDED, "{attempt:?}");
        }
    }

    #[test]
    fn a_process_that_is_not_the_victim_is_left_alone() {
        let own = process::getpid();
        let attempts = run(|report| all(own, "no such command line", report));
        assert_eq!(attempts.len(), 1);
        assert_eq!(attempts[0].outcome, NOT_HERE);
    }
}
