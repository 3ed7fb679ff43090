//! The most memory that bridge and worker have had, in MiB.

use casemate_suite::processes;

/// Five times the longest line, and what a program has without one (in a debug build).
const MOST: u64 = 5 * 64 + 80;

/// `VmHWM` of proc_pid_status(5) by program: the bridge's, the largest worker's.
pub(crate) fn peaks(bridge: Option<i32>) -> Vec<(&'static str, u64)> {
    let workers = processes::ours();
    let workers = workers.iter().filter(|process| process.command.contains("casemate-supervisor"));
    let worker = workers.map(|process| peak(process.pid)).max().expect("there is a worker");
    bridge.map(|pid| ("bridge", peak(pid))).into_iter().chain([("worker", worker)]).collect()
}

fn peak(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

pub(crate) fn check(peaks: &[(&str, u64)]) {
    for (name, peak) in peaks {
        assert!((1..MOST).contains(peak), "{name} has had {peak} MiB");
    }
}
