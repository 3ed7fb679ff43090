//! Counts what a session runs, and ends it above its bound.
//!
//! Without a cgroup nobody else counts a session: RLIMIT_NPROC counts a user (of a user namespace), all of its sessions
//! together. A thread in the session's signal scope can tell who belongs to it, and its SIGKILL reaches them all at once.
//!
//! Looking is cheap, so it is often: `/proc/loadavg` names the pid that was given out last, every new task takes one, so
//! the number of tasks is at most the last count and the pids given out since. Only where that passes the bound (or a count
//! is old) are processes listed. The thread decides nothing else; it owns the numbers that [`Usage`] shows.
//!
//! The session's trees are measured here as well, by a thread that lives for one walk: the supervisor has no threads, and must
//! not wait for a disk.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::{Builder, JoinHandle, park_timeout};
use std::time::{Duration, Instant};

use crate::beneath::{Dir, Measured};

use super::scope::{Count, SignalScope};
use super::wire;

/// Between two looks: while pids are given out, and at most while none is.
const LOOK: Duration = Duration::from_millis(25);
const LONGEST_LOOK: Duration = Duration::from_millis(200);
/// How old a count may be where something was started, and where nothing was: then there can only be less.
const OLD: Duration = Duration::from_secs(1);
const OLDER: Duration = Duration::from_secs(10);
const STACK: usize = 256 << 10;

/// What a session runs. At most ten seconds old, and at most one where it started something in the last one.
///
/// Above the bound everything is killed within 200 ms and what it takes to count, so a fork bomb may pass the bound by what
/// it can start in that time, where nothing else of the kernel's stops it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processes, those that ended and nobody has waited for among them.
    pub processes: u32,
    /// Threads of all of them.
    pub tasks: u32,
    /// The most tasks that were ever counted.
    pub peak: u32,
    /// How often the session was ended for passing its bound.
    pub exceeded: u32,
    /// How many walks over its trees have ended.
    pub walks: u32,
    /// How long the last one took, in milliseconds.
    pub walk_ms: u32,
    /// What the last one found.
    pub measured: Measured,
}

/// Who bounds what a session runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bound {
    /// The watch: with more tasks than these the session is ended.
    Watch(u32),
    /// The kernel, at so many: they are counted for people, and only those who were there at one moment.
    Elsewhere(u32),
}

/// The running watch. Dropping it ends it.
pub(super) struct Watch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    usage: RwLock<Usage>,
    over: AtomicBool,
    walking: AtomicBool,
}

// === impl Usage ===

impl Usage {
    pub(super) fn encode(self) -> Vec<u8> {
        let Measured { bytes, files, unread } = self.measured;
        let small =
            [self.processes, self.tasks, self.peak, self.exceeded, self.walks, self.walk_ms];
        let small = small.iter().flat_map(|number| number.to_ne_bytes());
        small
            .chain([bytes, files, unread].iter().flat_map(|n| n.to_ne_bytes()).collect::<Vec<_>>())
            .collect()
    }

    pub(super) fn decode(numbers: &[i32]) -> Option<Self> {
        let numbers = <[i32; wire::USAGE as usize]>::try_from(numbers).ok()?;
        let [processes, tasks, peak, exceeded, walks, walk_ms, large @ ..] =
            numbers.map(i32::cast_unsigned);
        let [b1, b2, f1, f2, u1, u2] = large.map(u32::to_ne_bytes);
        let whole = |first: [u8; 4], second: [u8; 4]| {
            let [a, b, c, d] = first;
            let [e, f, g, h] = second;
            u64::from_ne_bytes([a, b, c, d, e, f, g, h])
        };
        let measured =
            Measured { bytes: whole(b1, b2), files: whole(f1, f2), unread: whole(u1, u2) };
        Some(Self { processes, tasks, peak, exceeded, walks, walk_ms, measured })
    }

    fn counted(&mut self, count: Count, limit: u32) {
        self.processes = count.processes;
        self.tasks = count.tasks;
        self.peak = self.peak.max(count.tasks);
        self.exceeded += u32::from(count.tasks > limit);
    }
}

// === impl Watch ===

impl Watch {
    /// Watches from a thread of its own in the scope.
    pub(super) fn start(scope: &SignalScope, bound: Bound) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let thread = scope.in_thread("watch", STACK, move |scope| own.watch(scope, bound))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Begins a walk, unless one is under way. Its thread is not waited for: it ends by itself or with the process.
    pub(super) fn measure(&self, trees: Vec<PathBuf>) -> io::Result<()> {
        if self.shared.walking.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let thread = Builder::new().name("measure".to_owned()).stack_size(STACK);
        let started = thread.spawn(move || shared.walk(&trees)).map(drop);
        if started.is_err() {
            self.shared.walking.store(false, Ordering::Release);
        }
        started
    }

    /// As last counted and measured.
    pub(super) fn usage(&self) -> Usage {
        *self.shared.usage.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // One that panicked counts no more, and the session ends now in any case.
            let _ = thread.join();
        }
    }
}

// === impl Shared ===

impl Shared {
    fn walk(&self, trees: &[PathBuf]) {
        // Whatever else wants a processor goes first (sched(7)).
        let _ = rustix::process::setpriority_process(None, 19);
        let began = Instant::now();
        let measured = Dir::measure(trees);
        let mut usage = self.usage.write().unwrap_or_else(PoisonError::into_inner);
        usage.walks += 1;
        usage.walk_ms = u32::try_from(began.elapsed().as_millis()).unwrap_or(u32::MAX);
        usage.measured = measured;
        drop(usage);
        self.walking.store(false, Ordering::Release);
    }

    fn watch(&self, scope: &SignalScope, bound: Bound) {
        let (Bound::Watch(limit) | Bound::Elsewhere(limit)) = bound;
        let mut gate = Gate::default();
        let mut look = LOOK;
        while !self.over.load(Ordering::Acquire) {
            let now = Instant::now();
            let moved = match gate.look(last_pid(), limit, now) {
                Look::Nothing => false,
                Look::Started => true,
                Look::Count => {
                    let count = match bound {
                        Bound::Watch(limit) => scope.count(limit),
                        Bound::Elsewhere(_) => scope.present(),
                    };
                    self.usage
                        .write()
                        .unwrap_or_else(PoisonError::into_inner)
                        .counted(count, limit);
                    if count.tasks > limit && matches!(bound, Bound::Watch(_)) {
                        // It fails only for a bad signal number, which this is not.
                        let _ = scope.kill_all();
                    }
                    gate.counted(count.tasks, Instant::now());
                    true
                }
            };
            look = if moved { LOOK } else { (look * 2).min(LONGEST_LOOK) };
            park_timeout(look);
        }
    }
}

/// The pid given out last, in this process's pid namespace (proc_loadavg(5)); `None` where /proc does not tell.
fn last_pid() -> Option<u32> {
    fs::read_to_string("/proc/loadavg").ok()?.split_ascii_whitespace().next_back()?.parse().ok()
}

/// Decides whether a count is due. Pure.
#[derive(Debug, Default)]
struct Gate {
    seen: Option<u32>,
    /// At the last count.
    tasks: u32,
    at: Option<Instant>,
    /// Pids given out since.
    since: u32,
}

#[derive(Debug, PartialEq, Eq)]
enum Look {
    Nothing,
    Started,
    Count,
}

impl Gate {
    fn look(&mut self, last: Option<u32>, limit: u32, now: Instant) -> Look {
        let started = match (self.seen, last) {
            (Some(seen), Some(last)) if last >= seen => last - seen,
            // The numbers began again, or are not to be had: as many as it takes.
            _ => u32::MAX,
        };
        self.seen = last;
        self.since = self.since.saturating_add(started);
        let age = self.at.map(|at| now.duration_since(at));
        let old = if self.since > 0 { OLD } else { OLDER };
        let due = age.is_none_or(|age| age >= old);
        if due || self.tasks.saturating_add(self.since) > limit {
            Look::Count
        } else if started > 0 {
            Look::Started
        } else {
            Look::Nothing
        }
    }

    fn counted(&mut self, tasks: u32, now: Instant) {
        self.tasks = tasks;
        self.since = 0;
        self.at = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_due_exactly_when_the_bound_may_have_been_passed_or_it_is_old() {
        let start = Instant::now();
        let mut gate = Gate::default();
        assert_eq!(gate.look(Some(1000), 10, start), Look::Count);
        gate.counted(4, start);
        assert_eq!(gate.look(Some(1000), 10, start), Look::Nothing);
        assert_eq!(gate.look(Some(1006), 10, start), Look::Started);
        assert_eq!(gate.look(Some(1007), 10, start), Look::Count, "4 and 7");
        gate.counted(5, start);
        assert_eq!(gate.look(Some(300), 10, start), Look::Count, "the numbers began again");
        gate.counted(5, start);
        assert_eq!(gate.look(Some(300), 10, start + OLD), Look::Nothing);
        assert_eq!(gate.look(Some(301), 10, start + OLD), Look::Count);
        gate.counted(5, start);
        assert_eq!(gate.look(Some(301), 10, start + OLDER), Look::Count);
        gate.counted(5, start);
        assert_eq!(
            gate.look(None, 10, start),
            Look::Count,
            "without /proc/loadavg each look counts"
        );
    }

    #[test]
    fn usage_survives_the_way_and_remembers_its_peak() {
        let mut usage = Usage::default();
        usage.counted(Count { processes: 3, tasks: 12 }, 10);
        usage.counted(Count { processes: 1, tasks: 2 }, 10);
        usage.measured = Measured { bytes: 1 << 40, files: 7, unread: u64::MAX };
        let counted = Usage { processes: 1, tasks: 2, peak: 12, exceeded: 1, ..usage };
        assert_eq!(usage, counted);
        let bytes = usage.encode();
        let numbers: Vec<i32> = bytes
            .chunks_exact(4)
            .map(|four| i32::from_ne_bytes(<[u8; 4]>::try_from(four).unwrap()))
            .collect();
        assert_eq!(Usage::decode(&numbers), Some(usage));
        assert!(last_pid().is_some());
    }
}
