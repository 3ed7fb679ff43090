//! Tries a thing in a child process and brings its word back.

use std::io::{Read as _, Write as _};

use nix::errno::Errno;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::ForkResult;

use crate::single::require_single_thread;

/// What was found, or why it is not to be had.
pub(super) type Outcome = Result<String, String>;

/// Runs the trial in a forked child.
pub(super) fn attempt(trial: fn() -> Outcome) -> Outcome {
    require_single_thread().map_err(|_| "not tried: this process has threads".to_owned())?;
    let failed = |error: std::io::Error| format!("not tried: {error}");
    let (mut reader, mut writer) = std::io::pipe().map_err(failed)?;
    // SAFETY: this process has one thread, so the child's copy of every lock is free and it may run any code.
    match unsafe { nix::unistd::fork() }.map_err(|errno| failed(errno.into()))? {
        ForkResult::Child => {
            drop(reader);
            let (mark, text) = match trial() {
                Ok(found) => (b"+", found),
                Err(found) => (b"-", found),
            };
            // A parent that is gone needs no answer.
            let _ = writer.write_all(mark).and_then(|()| writer.write_all(text.as_bytes()));
            leave(0)
        }
        ForkResult::Parent { child } => {
            drop(writer);
            let mut said = String::new();
            let read = reader.read_to_string(&mut said);
            let ended = waitpid(child, None);
            read.map_err(failed)?;
            match (said.split_at_checked(1), ended) {
                (Some(("+", found)), _) => Ok(found.to_owned()),
                (Some(("-", found)), _) => Err(found.to_owned()),
                (_, Ok(WaitStatus::Signaled(_, signal, _))) => Err(format!(
                    "the trial was killed by {signal}: a filter around this process forbids it"
                )),
                _ => Err("the trial ended without a word".to_owned()),
            }
        }
    }
}

/// Ends a trial's process.
pub(super) fn leave(code: i32) -> ! {
    // SAFETY: leaves without the caller's atexit handlers and buffers, which are not this process's.
    unsafe { libc::_exit(code) }
}

pub(super) fn no_new_privs() -> Outcome {
    nix::sys::prctl::set_no_new_privs().map_err(words)?;
    match nix::sys::prctl::get_no_new_privs() {
        Ok(true) => Ok("set".to_owned()),
        Ok(false) => Err("set, and did not stay".to_owned()),
        Err(errno) => Err(words(errno)),
    }
}

pub(super) fn deny_write_execute() -> Outcome {
    use crate::shield::Mdwe;
    match crate::shield::deny_write_execute() {
        Ok(Mdwe::On) => Ok("set, not inherited by agents".to_owned()),
        Ok(Mdwe::Unsupported) => Err("not for this process alone".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

pub(super) fn words(errno: Errno) -> String {
    format!("{errno:?} ({})", errno.desc())
}
