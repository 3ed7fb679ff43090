//! Every process that a test starts, however far it ran away.
//!
//! The test process is made a child subreaper (prctl(2) `PR_SET_CHILD_SUBREAPER`): what daemonises or loses its
//! parent becomes our child, so one walk over `/proc` finds all of them and nothing of anybody else.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

/// One living process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Process {
    /// Its pid.
    pub pid: i32,
    /// Its parent's.
    pub parent: i32,
    /// Its command line, blanks between the words.
    pub command: String,
}

impl Process {
    /// It is `casemate COMMAND`, whatever options stand between.
    #[must_use]
    pub fn is_casemate(&self, command: &str) -> bool {
        let mut words = self.command.split(' ');
        // What follows `--` is the agent's.
        words.next().is_some_and(|program| program.ends_with("/casemate"))
            && words.take_while(|word| *word != "--").any(|word| word == command)
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.pid, self.command)
    }
}

/// From now on orphans below this process become its children.
///
/// # Panics
/// Where the kernel refuses, which it never does.
pub fn adopt_orphans() {
    nix::sys::prctl::set_child_subreaper(true).expect("any process may be a subreaper");
}

/// A line of `/proc/PID/stat`: parent and state.
fn stat(pid: i32) -> Option<(i32, char)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, blanks and parentheses included.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((fields.next()?.parse().ok()?, state))
}

fn all() -> HashMap<i32, (i32, char)> {
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, stat(pid)?)))
        .collect()
}

/// Living descendants of a process, zombies left out.
#[must_use]
pub fn below(root: i32) -> Vec<Process> {
    let all = all();
    let mut family = HashSet::from([root]);
    loop {
        let more: Vec<i32> = all
            .iter()
            .filter(|(pid, (parent, _))| family.contains(parent) && !family.contains(pid))
            .map(|(pid, _)| *pid)
            .collect();
        if more.is_empty() {
            break;
        }
        family.extend(more);
    }
    let mut found: Vec<Process> = family
        .into_iter()
        .filter(|pid| *pid != root && all.get(pid).is_some_and(|(_, state)| !"ZX".contains(*state)))
        .map(|pid| Process {
            pid,
            parent: all[&pid].0,
            command: std::fs::read(format!("/proc/{pid}/cmdline"))
                .map(|raw| String::from_utf8_lossy(&raw).replace('\0', " ").trim().to_owned())
                .unwrap_or_default(),
        })
        .collect();
    found.sort_by_key(|process| process.pid);
    found
}

/// Living descendants of this process.
#[must_use]
pub fn ours() -> Vec<Process> {
    below(std::process::id().cast_signed())
}

/// Takes the exit status of adopted orphans that have ended, `except` children that somebody else waits for.
///
/// Without it an adopted worker stays a zombie, and whoever asks whether its pid lives is told yes.
pub fn reap(except: &HashSet<i32>) {
    let me = std::process::id().cast_signed();
    for (pid, (parent, state)) in all() {
        if parent == me && state == 'Z' && !except.contains(&pid) {
            waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG)).ok();
        }
    }
}

/// Sends a signal; false where there is no such process.
#[must_use]
pub fn signal(pid: i32, signal: Signal) -> bool {
    kill(Pid::from_raw(pid), signal).is_ok()
}

/// Looks every 20 ms until `look` finds something, or gives up.
pub fn until<T>(within: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + within;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() > deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
