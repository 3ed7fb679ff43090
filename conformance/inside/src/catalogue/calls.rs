//! The calls that attacks make on a process, whoever's it is.
//!
//! Values are harmless where the call works: the permission does not depend on them.

use std::io;
use std::os::fd::OwnedFd;

use casemate_raw::{Arg, Call, Page, call};
use nix::sys::ptrace;
use rustix::process::{self, Pid, PidfdFlags, PidfdGetfdFlags, Resource, Signal};
use rustix::thread::CpuSet;

/// Ignored unless somebody asked for it.
pub(super) const HARMLESS: Signal = Signal::URG;
const URG: i64 = 23;

pub(super) fn number(pid: Pid) -> Arg<'static> {
    Arg::Number(pid.as_raw_nonzero().get().into())
}

pub(super) fn raw(pid: Pid) -> nix::unistd::Pid {
    nix::unistd::Pid::from_raw(pid.as_raw_nonzero().get())
}

pub(super) fn pidfd(pid: Pid) -> io::Result<OwnedFd> {
    Ok(process::pidfd_open(pid, PidfdFlags::empty())?)
}

pub(super) fn tkill(pid: Pid) -> io::Result<()> {
    call(Call::TKILL, &mut [number(pid), Arg::Number(URG)]).map(drop)
}

pub(super) fn tgkill(pid: Pid) -> io::Result<()> {
    call(Call::TGKILL, &mut [number(pid), number(pid), Arg::Number(URG)]).map(drop)
}

pub(super) fn queue_signal(pid: Pid) -> io::Result<()> {
    let args = &mut [number(pid), Arg::Number(URG), Arg::Page(&mut queued())];
    call(Call::RT_SIGQUEUEINFO, args).map(drop)
}

pub(super) fn queue_signal_to_thread(pid: Pid) -> io::Result<()> {
    let args = &mut [number(pid), number(pid), Arg::Number(URG), Arg::Page(&mut queued())];
    call(Call::RT_TGSIGQUEUEINFO, args).map(drop)
}

/// siginfo_t of sigqueue(3): number, no errno, SI_QUEUE.
fn queued() -> Box<Page> {
    let mut info = Page::of(&23_i32.to_ne_bytes());
    info.0[8..12].copy_from_slice(&(-1_i32).to_ne_bytes());
    info
}

pub(super) fn signal_by_pidfd(pid: Pid) -> io::Result<()> {
    Ok(process::pidfd_send_signal(pidfd(pid)?, HARMLESS)?)
}

/// The tracer's end, which follows at once, lets it go.
pub(super) fn seize(pid: Pid) -> io::Result<()> {
    Ok(ptrace::seize(raw(pid), ptrace::Options::empty())?)
}

pub(super) fn take_descriptor(pid: Pid) -> io::Result<()> {
    Ok(process::pidfd_getfd(pidfd(pid)?, 0, PidfdGetfdFlags::empty()).map(drop)?)
}

/// With this process, by KCMP_VM.
pub(super) fn compare(pid: Pid) -> io::Result<()> {
    let own = number(process::getpid());
    let args = &mut [own, number(pid), Arg::Number(1), Arg::Number(0), Arg::Number(0)];
    call(Call::KCMP, args).map(drop)
}

pub(super) fn robust_list(pid: Pid) -> io::Result<()> {
    let args = &mut [number(pid), Arg::Page(&mut Page::zeroed()), Arg::Page(&mut Page::zeroed())];
    call(Call::GET_ROBUST_LIST, args).map(drop)
}

pub(super) fn move_pages(pid: Pid) -> io::Result<()> {
    let none = || Arg::Number(0);
    call(Call::MOVE_PAGES, &mut [number(pid), none(), none(), none(), none(), none()]).map(drop)
}

/// This process's own limit for another one: to raise one takes a privilege, and who started both may have set any.
pub(super) fn limit(pid: Pid, resource: Resource) -> io::Result<()> {
    Ok(process::prlimit(Some(pid), resource, process::getrlimit(resource)).map(drop)?)
}

/// Of the process alone (IOPRIO_WHO_PROCESS).
pub(super) fn io_priority(pid: Pid, priority: i64) -> io::Result<()> {
    call(Call::IOPRIO_SET, &mut [Arg::Number(1), number(pid), Arg::Number(priority)]).map(drop)
}

/// To every processor that there can be.
pub(super) fn pin(pid: Pid) -> io::Result<()> {
    let mut cpus = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| cpus.set(cpu));
    Ok(rustix::thread::sched_setaffinity(Some(pid), &cpus)?)
}

/// To what it is: out of SCHED_IDLE there is no way without a privilege (sched(7)).
pub(super) fn scheduler(pid: Pid) -> io::Result<()> {
    let policy = Arg::Number(policy(pid).into());
    call(Call::SCHED_SETSCHEDULER, &mut [number(pid), policy, Arg::Page(&mut Page::zeroed())])
        .map(drop)
}

/// Its scheduling policy by proc_pid_stat(5); the usual one where that is not to be read.
pub(super) fn policy(pid: Pid) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name is in parentheses and may hold anything; the policy is the 39th field behind it.
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    fields.split(' ').nth(38).and_then(|field| field.parse().ok()).unwrap_or(0)
}
