//! A supervisor that somebody else's code runs in: it is traced from its start, and once it serves, its next instruction is
//! made a system call that is not its own.
//!
//! Traced from the start, since it lets nobody trace it later. A traced process stops at each signal, so this is for a worker
//! without a session, which gets none.

use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use casemate_protocol::worker::StartEvent;
use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

use crate::harness::{Who, Worker, eventually};
use crate::many::Many;

/// The bytes of `syscall`, and the numbers of asm/unistd_64.h.
const SYSCALL: i64 = 0x050f;
const SOCKET: u64 = 41;
const EXECVE: u64 = 59;
const GETPID: u64 = 39;

/// Far more instructions than a handler of signals has.
const STEPS: usize = 2_000_000;

/// A worker of many sessions that serves, traced by the calling thread.
fn traced(many: &Many) -> Worker {
    let mut worker = many.start_after(|pid| ptrace::seize(pid, Options::empty()).unwrap());
    let event = worker.outcome();
    assert!(matches!(event, StartEvent::Ready { .. }), "{event:?}\n{}", worker.log());
    worker
}

/// Has the process make a call between two of its own; what the call gave, or `None` where the process ended over it.
fn call(pid: Pid, number: u64, arguments: [u64; 3]) -> Option<i64> {
    let own = stopped_in_a_call(pid);
    let mut regs = own;
    // It is made by the instruction that the process waits in; no call is there to be made again.
    (regs.rip, regs.rax, regs.orig_rax) = (own.rip - 2, number, u64::MAX);
    (regs.rdi, regs.rsi, regs.rdx) = (arguments[0], arguments[1], arguments[2]);
    ptrace::setregs(pid, regs).unwrap();
    let mut signal = None;
    for _ in 0..STEPS {
        ptrace::step(pid, signal.take()).unwrap();
        let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        if let WaitStatus::Signaled(..) = waitid(Id::Pid(pid), flags).unwrap() {
            return None;
        }
        match waitpid(pid, None).unwrap() {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => {}
            // The filter's; the handler of the process answers.
            WaitStatus::Stopped(_, other) => signal = Some(other),
            other => panic!("{other:?}"),
        }
        let now = ptrace::getregs(pid).unwrap();
        if signal.is_none() && now.rip == own.rip && now.rsp == own.rsp {
            ptrace::setregs(pid, own).unwrap();
            ptrace::cont(pid, None).unwrap();
            return Some(now.rax.cast_signed());
        }
    }
    panic!("the call does not come back");
}

/// Stops the process while it waits for the kernel; its registers.
fn stopped_in_a_call(pid: Pid) -> nix::libc::user_regs_struct {
    for _ in 0..1000 {
        ptrace::interrupt(pid).unwrap();
        let stop = waitpid(pid, None).unwrap();
        assert!(matches!(stop, WaitStatus::PtraceEvent(..)), "{stop:?}");
        let regs = ptrace::getregs(pid).unwrap();
        let before = std::ptr::without_provenance_mut(usize::try_from(regs.rip - 2).unwrap());
        if ptrace::read(pid, before).unwrap() & 0xffff == SYSCALL {
            return regs;
        }
        ptrace::cont(pid, None).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("it never waits");
}

#[test]
fn whoever_runs_code_in_a_supervisor_of_many_sessions_gets_no_socket_and_no_program() {
    let many = Many::new(Who::User);
    let mut worker = traced(&many);
    let pid = worker.pid();
    // It can be done: a call that is in the list gives what it gives.
    assert_eq!(call(pid, GETPID, [0; 3]), Some(i64::from(pid.as_raw())));
    let refused = call(pid, SOCKET, [2, 1, 0]);
    assert_eq!(refused, Some(-i64::from(Errno::EPERM as i32)));
    let line = r#"the process's own filter refused a system call","call":"socket""#;
    eventually("it is said", || worker.log().contains(line));
    assert_eq!(call(pid, EXECVE, [0; 3]), None);
    let status = worker.child.wait().unwrap();
    assert_eq!(status.signal(), Some(Signal::SIGSYS as i32), "{status:?}");
}
