//! Seccomp: a filter that refuses, and a notification that arrives as the egress work needs it (seccomp(2)).

use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

use nix::errno::Errno;

use super::trial::{Outcome, words};
use crate::listener::{SET_FLAGS, SYNC_WAKE_UP, WAIT_KILLABLE};

/// The answer of the filter, unlike any that the system call gives by itself.
const MARK: Errno = Errno::EDOM;

/// A filter on one harmless system call answers it.
pub(super) fn filter() -> Outcome {
    install(libc::SYS_sched_yield, libc::SECCOMP_RET_ERRNO | (MARK as i32).cast_unsigned(), 0)
        .map_err(words)?;
    // SAFETY: no arguments.
    match Errno::result(unsafe { libc::sched_yield() }) {
        Err(MARK) => Ok("a filtered call refused".to_owned()),
        Err(errno) => Err(format!("the filtered call failed otherwise: {}", words(errno))),
        Ok(_) => Err("the filter does not refuse".to_owned()),
    }
}

/// A listener with both flags that mediation needs.
pub(super) fn notification() -> Outcome {
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | WAIT_KILLABLE;
    let listener = install(libc::SYS_sched_yield, libc::SECCOMP_RET_USER_NOTIF, flags)
        .map_err(|errno| format!("no listener: {}", words(errno)))?;
    let listener = RawFd::try_from(listener).map_err(|error| error.to_string())?;
    // SAFETY: seccomp(2) has just made this descriptor for us; nobody else knows it.
    let listener = unsafe { OwnedFd::from_raw_fd(listener) };
    // SAFETY: this request takes its flags by value (linux/seccomp.h), although its number is built by _IOW.
    let set = unsafe { libc::ioctl(listener.as_raw_fd(), SET_FLAGS as _, SYNC_WAKE_UP) };
    Errno::result(set).map_err(|errno| format!("no synchronous wake-up: {}", words(errno)))?;
    Ok("listener, killable wait, synchronous wake-up".to_owned())
}

/// Installs a filter that gives one system call an action and allows all others.
fn install(number: libc::c_long, action: u32, flags: libc::c_ulong) -> Result<libc::c_long, Errno> {
    nix::sys::prctl::set_no_new_privs()?;
    let number = u32::try_from(number).map_err(|_| Errno::ENOSYS)?;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    // Load `seccomp_data.nr`; if it is not the number, skip the action.
    let program = [
        step(0x20, 0, 0, 0),
        step(0x15, 0, 1, number),
        step(0x06, 0, 0, action),
        step(0x06, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let header = libc::sock_fprog { len: 4, filter: program.as_ptr().cast_mut() };
    // SAFETY: the header describes a live array of four instructions; the kernel copies them.
    let installed = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const header)
    };
    Errno::result(installed)
}
