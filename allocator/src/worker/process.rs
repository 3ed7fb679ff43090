//! A process that is known by more than its number: started and waited for by this allocator or by one before it.

use std::io;
use std::os::fd::OwnedFd;

use casemate_allocator_core::record::Process;
use rustix::process::{Pid, PidfdFlags, Signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A living process, held by a pidfd (pidfd_open(2)): signals through it never hit a later process of the same number.
#[derive(Debug)]
pub(crate) struct Handle(AsyncFd<OwnedFd>);

/// The identity of process `pid`; `None` where it does not exist or is a zombie.
pub(crate) fn identify(pid: i32) -> Option<Process> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name may hold spaces and parentheses: everything after the last one counts.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    // Field 22 of proc_pid_stat(5); `state` was field 3.
    let started = fields.nth(18)?.parse().ok()?;
    Some(Process { pid, started, kernel: kernel_boot()? })
}

fn kernel_boot() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}

/// Whether process `pid` was started as `casemate-supervisor worker`: for a number that was only read from a file.
pub(crate) fn looks_like_worker(pid: i32) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline"))
        .is_ok_and(|line| line.split(|&byte| byte == 0).any(|word| word == b"worker"))
}

/// What is left of the process group that the worker `leader` began: its namespace's first process, should that have
/// outlived it.
pub(crate) fn left_of_group(leader: &Process) -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|&pid| {
            let group = nix::unistd::getpgid(Some(nix::unistd::Pid::from_raw(pid)));
            group.is_ok_and(|group| group.as_raw() == leader.pid)
        })
        .filter(|&pid| looks_like_worker(pid))
        .filter_map(identify)
        .filter(|process| process.kernel == leader.kernel && process.started >= leader.started)
        .collect()
}

/// Whether that very process lives.
pub(crate) fn is_alive(process: &Process) -> bool {
    identify(process.pid).as_ref() == Some(process)
}

impl Handle {
    /// Opens that very process; `None` where it is gone. Needs a running tokio reactor.
    pub(crate) fn open(process: &Process) -> io::Result<Option<Self>> {
        let Some(pid) = Pid::from_raw(process.pid) else { return Ok(None) };
        let fd = match rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // After the open: what is identified now is what the descriptor holds.
        if !is_alive(process) {
            return Ok(None);
        }
        #[expect(
            deprecated,
            reason = "deprecated for types whose as_raw_fd lies; OwnedFd's does not, and the successor is unsafe"
        )]
        let watched = AsyncFd::with_interest(fd, Interest::READABLE)?;
        Ok(Some(Self(watched)))
    }

    /// Returns when the process has ended, waited for by its parent or not.
    pub(crate) async fn exited(&self) {
        // An error means that the reactor is going away: then nobody acts on the answer.
        let _ = self.0.readable().await;
    }

    /// Sends a signal; the process may be gone already.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = rustix::process::pidfd_send_signal(self.0.get_ref(), signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_process_is_known_by_its_start_too() {
        let mut child = tokio::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id().unwrap()).unwrap();
        let process = identify(pid).unwrap();
        assert!(is_alive(&process));
        let other = Process { started: process.started + 1, ..process.clone() };
        assert!(Handle::open(&other).unwrap().is_none());
        let handle = Handle::open(&process).unwrap().unwrap();
        handle.signal(Signal::KILL);
        handle.exited().await;
        child.wait().await.unwrap();
        assert!(!is_alive(&process));
    }
}
