//! Ends a command that is not to go on: TERM, grace, KILL.
//!
//! TERM goes to its process group, KILL to whoever is left of its session (setsid(2)), so to every job of a shell on a
//! terminal. What began a session of its own lives on, as behind any shell, until the worker's session ends.
//!
//! A command's number is the kernel's to give away once the command was reaped and its group is empty, and a client may say
//! signals long after (it need not read the last output). So [`Leader`] looks whose number it is before each signal.

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};
use tokio::time::{Instant, sleep};

use crate::process::agent::signal_group;

/// Between two looks at who is left.
const LOOK: Duration = Duration::from_millis(20);
/// How long the kernel may take to end what was killed.
const KILLED_WITHIN: Duration = Duration::from_secs(5);

/// A command, which leads a process group and a session of its own number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leader {
    pid: i32,
    /// When it started, in the kernel's ticks; two processes of one number have different ones.
    since: Option<u64>,
}

// === impl Leader ===

impl Leader {
    /// A process that was started just now and that nobody has reaped.
    pub(super) fn of(pid: i32) -> Self {
        Self { pid, since: started(pid) }
    }

    /// Its number.
    pub(super) fn pid(self) -> i32 {
        self.pid
    }

    /// Sends a signal to its group, unless the number is another process's by now. That cannot change in between while it is not
    /// reaped, and it is reaped by this thread.
    pub(super) fn signal_group(self, signal: Signal) {
        if self.is_itself() {
            signal_group(self.pid, signal);
        }
    }

    /// It is there, or is gone and left its number to its group at most.
    fn is_itself(self) -> bool {
        started(self.pid).is_none_or(|since| Some(since) == self.since)
    }
}

/// Ends the session that `leader` began; returns when nobody of it lives.
pub(super) async fn end(leader: Leader, grace: Duration) {
    leader.signal_group(Signal::SIGTERM);
    if left_within(leader, grace).await {
        return;
    }
    let killed = Instant::now();
    while killed.elapsed() < KILLED_WITHIN {
        let members = members(leader);
        if members.is_empty() {
            return;
        }
        members.into_iter().for_each(|pid| kill(pid, leader.pid));
        sleep(LOOK).await;
    }
    tracing::error!(leader = leader.pid, "a killed command has not ended: it hangs in the kernel");
}

async fn left_within(leader: Leader, time: Duration) -> bool {
    let deadline = Instant::now() + time;
    loop {
        if members(leader).is_empty() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        sleep(LOOK).await;
    }
}

/// Who lives in the session that it began.
fn members(leader: Leader) -> Vec<i32> {
    let proc = leader.is_itself().then(|| fs::read_dir("/proc").ok()).flatten();
    proc.into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| is_member(*pid, leader.pid))
        .collect()
}

fn is_member(pid: i32, session: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| living_session(&stat) == Some(session))
}

/// Field 22 of proc_pid_stat(5); `None` where there is no such process.
fn started(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Field 6 of proc_pid_stat(5); `None` for what is dead.
fn living_session(stat: &str) -> Option<i32> {
    let mut fields = stat.rsplit(')').next()?.split_ascii_whitespace();
    let state = fields.next()?;
    let session = fields.nth(2)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(session)
}

/// By a descriptor, and looked at once more through the number behind it: it names the same process, or none, whatever
/// becomes of the number.
fn kill(pid: i32, session: i32) {
    let Some(handle) = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
    else {
        return;
    };
    if is_member(pid, session) {
        // Gone in between is what was wanted.
        let _ = pidfd_send_signal(&handle, rustix::process::Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    use super::*;

    /// A sleeper in a group of its own.
    fn sleeper() -> std::process::Child {
        Command::new("sleep").arg("60").process_group(0).spawn().unwrap()
    }

    #[test]
    fn a_number_that_another_process_has_by_now_gets_no_signal() {
        let mut other = sleeper();
        let leader = Leader::of(i32::try_from(other.id()).unwrap());
        let reused = Leader { since: leader.since.map(|since| since - 1), ..leader };
        reused.signal_group(Signal::SIGKILL);
        assert!(members(reused).is_empty());
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(other.try_wait().unwrap(), None, "another's process was ended");
        leader.signal_group(Signal::SIGKILL);
        assert!(!other.wait().unwrap().success());
        assert!(leader.is_itself(), "what is left of its group may be signalled");
    }

    #[test]
    fn a_session_is_read_past_any_name_and_the_dead_have_none() {
        let stat = |state: &str| format!("7 (a) b) {state} 1 9 8 34816 9 4194304 0 0 0 0");
        assert_eq!(living_session(&stat("S")), Some(8));
        assert_eq!(living_session(&stat("Z")), None);
        assert_eq!(living_session(""), None);
        let own = fs::read_to_string("/proc/self/stat").unwrap();
        assert!(living_session(&own).is_some());
    }
}
