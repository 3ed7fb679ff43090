//! Children by fork, by clone(2) with flags, and by clone3(2).

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with this code.
    Code(u8),
    /// By this signal.
    Signal(i32),
}

/// Runs `body` in a forked child and waits for its end; what it returns becomes the child's exit code, 255 where it
/// panics. Nothing that it does to itself reaches the caller.
///
/// # Errors
/// `EBUSY` where this process has more than one thread; fork(2)'s and waitpid(2)'s.
pub fn child(body: impl FnOnce() -> u8) -> io::Result<Ended> {
    alone()?;
    // SAFETY: this process has one thread, so the child's copy of every lock is free and it may run any code.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => leave(body),
        pid => wait(pid),
    }
}

/// As [`child`], by clone(2) with these flags (`CLONE_NEWUSER` and the like); those that share memory are refused.
///
/// # Errors
/// As [`child`]'s; `EINVAL` for a flag that shares something with the child.
pub fn clone_child(flags: i32, body: impl FnOnce() -> u8) -> io::Result<Ended> {
    const NAMESPACES: i32 = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;
    if flags & !NAMESPACES != 0 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    alone()?;
    let flags = libc::c_long::from(flags | libc::SIGCHLD);
    // SAFETY: without CLONE_VM and with a null stack this is fork(2), in new namespaces; as there, one thread.
    match unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) } {
        -1 => Err(io::Error::last_os_error()),
        0 => leave(body),
        pid => wait(i32::try_from(pid).unwrap_or(-1)),
    }
}

/// As [`child`], by clone3(2), whose flags no filter can read.
///
/// # Errors
/// As [`child`]'s.
pub fn clone3_child(body: impl FnOnce() -> u8) -> io::Result<Ended> {
    alone()?;
    // struct clone_args of clone(2): eleven words, of which the fifth is the exit signal.
    let mut args = [0_u64; 11];
    args[4] = libc::SIGCHLD.unsigned_abs().into();
    // SAFETY: without flags and stack this is fork(2), of one thread; the kernel reads `args`, which are numbers.
    match unsafe { libc::syscall(libc::SYS_clone3, args.as_ptr(), size_of_val(&args)) } {
        -1 => Err(io::Error::last_os_error()),
        0 => leave(body),
        pid => wait(i32::try_from(pid).unwrap_or(-1)),
    }
}

/// The child's whole life.
fn leave(body: impl FnOnce() -> u8) -> ! {
    let code = catch_unwind(AssertUnwindSafe(body)).unwrap_or(255);
    // SAFETY: ends this process without the parent's destructors, buffers and exit handlers.
    unsafe { libc::_exit(code.into()) }
}

fn wait(pid: i32) -> io::Result<Ended> {
    let mut status = 0;
    loop {
        // SAFETY: waits for one child of this process and fills one number.
        if unsafe { libc::waitpid(pid, &raw mut status, 0) } == pid {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    if libc::WIFSIGNALED(status) {
        return Ok(Ended::Signal(libc::WTERMSIG(status)));
    }
    Ok(Ended::Code(u8::try_from(libc::WEXITSTATUS(status)).unwrap_or(255)))
}

/// A directory of a task each: two links and one for each thread (proc(5)).
fn alone() -> io::Result<()> {
    match std::fs::metadata("/proc/self/task")?.nlink() {
        3 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::EBUSY)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// libtest runs this in a thread of its own.
    #[test]
    fn beside_threads_nothing_is_forked() {
        for refused in [child(|| 0), clone_child(0, || 0), clone3_child(|| 0)] {
            assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EBUSY));
        }
        let shared = clone_child(libc::CLONE_VM, || 0);
        assert_eq!(shared.unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}
