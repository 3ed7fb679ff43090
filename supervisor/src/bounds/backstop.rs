//! Where a session's processes are held by count: what the kernel is to hold all the same.
//!
//! The count is a thread's, and a machine on which thousands want to run may leave that thread without a turn for seconds (sched(7)). The
//! kernel's own limit needs none, but counts all of the user in its user namespace: this session, the others, whatever a person runs.
//! So it lies well above all that they have, and stops what nobody else does.

use std::fs;

/// Processes and threads that the user may come to have beside the session, after it was begun, before the session is refused more.
const BESIDE: u32 = 2048;

/// The limit (RLIMIT_NPROC) for a session with this bound, begun now; `None` without a bound, and where /proc does not tell what runs.
#[must_use]
pub fn backstop(processes: Option<u32>) -> Option<u32> {
    let bound = processes?;
    let running = running(&fs::read_to_string("/proc/loadavg").ok()?)?;
    Some(above(bound, running))
}

/// Pure. What the whole machine runs is at most too much for what the user has, and one look instead of one at each process.
fn above(bound: u32, running: u32) -> u32 {
    running.saturating_add(bound).saturating_add(BESIDE)
}

/// Processes and threads that there are, of everybody: the number after the slash (proc_loadavg(5)).
fn running(loadavg: &str) -> Option<u32> {
    let (_, all) = loadavg.split_ascii_whitespace().nth(3)?.split_once('/')?;
    all.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lies_above_all_that_runs_by_the_bound_and_what_others_may_start() {
        assert_eq!(running("0.52 0.31 0.24 3/731 42123\n"), Some(731));
        assert_eq!((running("0.52 0.31"), running("")), (None, None));
        assert_eq!(above(400, 731), 400 + 731 + BESIDE);
        assert_eq!(above(u32::MAX, 731), u32::MAX);
        assert_eq!(backstop(None), None);
        assert!(backstop(Some(400)).is_some_and(|limit| limit > 400 + BESIDE));
    }
}
