//! Ends a command that is not to go on: TERM, grace, KILL.
//!
//! TERM goes to its process group, KILL to whoever is left of its session (setsid(2)), so to every job of a shell on a
//! terminal. What began a session of its own lives on, as behind any shell, until the worker's session ends.

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

/// Ends the session that `leader` began; returns when nobody of it lives.
pub(super) async fn end(leader: i32, grace: Duration) {
    signal_group(leader, Signal::SIGTERM);
    if left_within(leader, grace).await {
        return;
    }
    let killed = Instant::now();
    while killed.elapsed() < KILLED_WITHIN {
        let members = members(leader);
        if members.is_empty() {
            return;
        }
        members.into_iter().for_each(|pid| kill(pid, leader));
        sleep(LOOK).await;
    }
    tracing::error!(leader, "a killed command has not ended: it hangs in the kernel");
}

async fn left_within(leader: i32, time: Duration) -> bool {
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

/// Who lives in the session of this number.
fn members(session: i32) -> Vec<i32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| is_member(*pid, session))
        .collect()
}

fn is_member(pid: i32, session: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| living_session(&stat) == Some(session))
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
    use super::*;

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
