//! The outer domain of a session: a Landlock layer that scopes signals, and refuses no file and no port.
//!
//! Every process of the session is born inside it. Landlock lets a process signal its own domain and those nested in
//! it, so for a thread in it `kill(-1)` means "everybody in my session" (landlock(7), scope flags; Linux 6.12), and
//! whom signal 0 reaches is of the session.

use std::fs;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, getpid, getppid};

/// `LANDLOCK_SCOPE_SIGNAL` of linux/landlock.h.
const SCOPE_SIGNAL: u64 = 1 << 1;
/// `LANDLOCK_ACCESS_FS_REFER`: a layer that does not allow it refuses it, whether it handles files or not, and then no
/// file is linked or moved from one folder to another (EXDEV) whatever the layers above say.
const REFER: u64 = 1 << 13;
/// `LANDLOCK_RULE_PATH_BENEATH`.
const PATH_BENEATH: u32 = 1;

/// Between two looks at who is left: the first, and the longest.
const LOOK: Duration = Duration::from_millis(1);
const LONGEST_LOOK: Duration = Duration::from_millis(64);

/// `struct landlock_ruleset_attr` as of ABI 6.
#[repr(C)]
struct RulesetAttr {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

/// `struct landlock_path_beneath_attr`, which is packed.
#[repr(C, packed)]
struct PathBeneathAttr {
    allowed_access: u64,
    parent_fd: RawFd,
}

/// Proof that the calling thread is in a signal scope. `kill(-1)` without one would end every process of the user, so
/// the call exists only as this type's method. Landlock restricts a thread, not a process: the proof stays in its thread.
#[derive(Debug)]
pub(crate) struct SignalScope {
    /// The scope alone, as a ruleset: a child adds one more layer of it, so that it cannot signal this thread, which is in
    /// the outer one, whatever its policy says of signals.
    ruleset: OwnedFd,
    /// Outside the scope by construction: the process that started the spawner.
    outsider: Pid,
    not_send: PhantomData<*const ()>,
}

impl SignalScope {
    /// Puts the calling thread into a new domain, for good. Needs `no_new_privs`.
    pub(crate) fn enter() -> Result<Self, Errno> {
        let attr =
            RulesetAttr { handled_access_fs: REFER, handled_access_net: 0, scoped: SCOPE_SIGNAL };
        // SAFETY: `attr` is a live, initialised structure of exactly the length that is passed; the kernel only reads.
        let ruleset = unsafe {
            libc::syscall(
                libc::SYS_landlock_create_ruleset,
                &raw const attr,
                size_of::<RulesetAttr>(),
                0u32,
            )
        };
        let ruleset = RawFd::try_from(Errno::result(ruleset)?).map_err(|_| Errno::EBADF)?;
        // SAFETY: the call above has just made this descriptor for us; nobody else knows it.
        let ruleset = unsafe { OwnedFd::from_raw_fd(ruleset) };
        allow_moves(&ruleset)?;
        // SAFETY: both arguments are plain numbers.
        let entered =
            unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0u32) };
        Errno::result(entered)?;
        let scope = Self { ruleset, outsider: getppid(), not_send: PhantomData };
        scope.verify()?;
        Ok(scope)
    }

    /// The kernel's own word that the scope holds: signalling the supervisor, same user or not, must be refused.
    fn verify(&self) -> Result<(), Errno> {
        match kill(self.outsider, None) {
            Err(Errno::EPERM) => Ok(()),
            // The supervisor has died in between: nothing can be proved, and nothing may be risked.
            Err(other) => Err(other),
            Ok(()) => Err(Errno::EOPNOTSUPP),
        }
    }

    /// The scope as a ruleset, for one more layer.
    pub(super) fn ruleset(&self) -> BorrowedFd<'_> {
        self.ruleset.as_fd()
    }

    /// Runs `body` in a new thread of this scope, with a proof of its own: threads inherit the domain of whoever starts
    /// them (landlock(7)), and the kernel's word is asked for again there. `body` gets none where it is not given.
    pub(super) fn in_thread(
        &self,
        name: &str,
        stack: usize,
        body: impl FnOnce(&SignalScope) + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let (ruleset, outsider) = (self.ruleset.try_clone()?, self.outsider);
        Builder::new().name(name.to_owned()).stack_size(stack).spawn(move || {
            let scope = Self { ruleset, outsider, not_send: PhantomData };
            if scope.verify().is_ok() {
                body(&scope);
            }
        })
    }

    /// SIGKILL to every process of the session.
    ///
    /// One pass leaves nobody: the kernel sends under the task list's lock, and a fork that takes that lock later sees
    /// the parent's pending SIGKILL and fails (`copy_process` in kernel/fork.c). The dead stay in the list until the
    /// supervisor reaps them, so there is no waiting for ESRCH here; a second pass costs a microsecond and covers
    /// kernels that were changed in this place.
    pub(super) fn kill_all(&self) -> Result<(), Errno> {
        for _ in 0..2 {
            match kill(Pid::from_raw(-1), Signal::SIGKILL) {
                // EPERM: everybody else is out of reach. ESRCH: there is nobody else.
                Ok(()) | Err(Errno::EPERM | Errno::ESRCH) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    /// Returns when no process of the session lives. SIGKILL was sent to them; one that hangs in the kernel holds this up
    /// until it is gone, and with it what the spawner keeps: what cannot be ended still occupies its slot.
    pub(super) fn wait_for_ends(&self) {
        let mut look = LOOK;
        while self.somebody_lives() {
            sleep(look);
            look = (look * 2).min(LONGEST_LOOK);
            // Whoever is new here comes from a fork that was under way; see `kill_all`.
            let _ = self.kill_all();
        }
    }

    /// kill(-1, 0) would not tell: it succeeds where everybody is out of reach. Without /proc nobody is seen, and the
    /// SIGKILL that was sent has to do.
    fn somebody_lives(&self) -> bool {
        self.members().any(|pid| stat(pid).is_some_and(|stat| stat.is_alive()))
    }

    /// The processes of the session, the dead that nobody has reaped among them.
    fn members(&self) -> impl Iterator<Item = Pid> + use<> {
        let own = getpid();
        fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .map(Pid::from_raw)
            .filter(move |pid| *pid != own && kill(*pid, None).is_ok())
    }

    /// How many processes and how many tasks (threads, of which a process has at least one) the session has: what the
    /// kernel's own limit counts. Stops a little above `enough` tasks: of a bomb there is no time to count more.
    ///
    /// Processes are looked into only where there are not too many of them by themselves. Among a thousand that run, this thread's
    /// turn is short and the next one is far: what takes ten milliseconds of it took four seconds, and the bomb had those.
    pub(super) fn count(&self, enough: u32) -> Count {
        let most = usize::try_from(enough).unwrap_or(usize::MAX).saturating_add(1);
        let members: Vec<Pid> = self.members().take(most).collect();
        if members.len() == most {
            let all = enough.saturating_add(1);
            return Count { processes: all, tasks: all };
        }
        let mut count = Count::default();
        for member in members.into_iter().filter_map(member) {
            count.add(&member);
            if count.tasks > enough {
                break;
            }
        }
        count
    }

    /// The same of those who were there at one moment, for a session that somebody else bounds.
    ///
    /// A listing is no snapshot: who ended and who began while it was made are both in it. Who is still there when it is over
    /// was there all the while.
    pub(super) fn present(&self) -> Count {
        let listed: Vec<Member> = self.members().filter_map(member).collect();
        stayed(&listed, member)
    }
}

fn member(pid: Pid) -> Option<Member> {
    stat(pid).map(|Stat { threads, began, .. }| Member { pid, began, threads: threads.max(1) })
}

/// A process of the session; `began` tells it from the next one with its pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Member {
    pid: Pid,
    began: u64,
    threads: u32,
}

/// Who is there still, with the threads that it had both times.
fn stayed(listed: &[Member], now: impl Fn(Pid) -> Option<Member>) -> Count {
    let mut count = Count::default();
    for before in listed {
        if let Some(now) = now(before.pid).filter(|now| now.began == before.began) {
            count.add(&Member { threads: now.threads.min(before.threads), ..now });
        }
    }
    count
}

/// Everywhere: where a file may go is the wall's to say.
fn allow_moves(ruleset: &OwnedFd) -> Result<(), Errno> {
    let root = open(c"/", OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?;
    let rule = PathBeneathAttr { allowed_access: REFER, parent_fd: root.as_raw_fd() };
    // SAFETY: `rule` is a live structure of the type that PATH_BENEATH reads; the kernel keeps no pointer to it.
    let added = unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset.as_raw_fd(),
            PATH_BENEATH,
            &raw const rule,
            0u32,
        )
    };
    Errno::result(added).map(drop)
}

/// How much is running.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) processes: u32,
    pub(super) tasks: u32,
}

impl Count {
    fn add(&mut self, member: &Member) {
        self.processes += 1;
        self.tasks = self.tasks.saturating_add(member.threads);
    }
}

/// What matters here of proc_pid_stat(5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    /// Field 3 is Z or X.
    dead: bool,
    /// Field 20.
    threads: u32,
    /// Field 22: when it started, in clock ticks since boot.
    began: u64,
}

fn stat(pid: Pid) -> Option<Stat> {
    Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

impl Stat {
    fn parse(stat: &str) -> Option<Self> {
        let mut fields = stat.rsplit(')').next()?.split_ascii_whitespace();
        let dead = matches!(fields.next()?, "Z" | "X");
        let threads = fields.nth(16).and_then(|field| field.parse().ok()).unwrap_or(0);
        let began = fields.nth(1).and_then(|field| field.parse().ok()).unwrap_or(0);
        Some(Self { dead, threads, began })
    }

    /// Neither gone nor dead and waiting to be reaped. A first thread that left before the others is shown as dead as well.
    fn is_alive(self) -> bool {
        !self.dead || self.threads > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_still_there_was_there_at_one_moment() {
        let member = |pid, began, threads| Member { pid: Pid::from_raw(pid), began, threads };
        // 7 ended and another took its number; 8 began a thread; 9 ended.
        let listed = [member(7, 1, 1), member(8, 1, 2), member(9, 1, 1)];
        let now = |pid: Pid| match pid.as_raw() {
            7 => Some(member(7, 2, 1)),
            8 => Some(member(8, 1, 3)),
            _ => None,
        };
        assert_eq!(stayed(&listed, now), Count { processes: 1, tasks: 2 });
    }

    #[test]
    fn a_process_without_its_first_thread_is_alive() {
        let stat = |state: &str, threads: u32| {
            format!(
                "7 (a) R (b) {state} 1 7 7 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 {threads} 0 100 0 0"
            )
        };
        let is_alive = |stat: &str| Stat::parse(stat).is_some_and(Stat::is_alive);
        assert!(is_alive(&stat("S", 1)) && is_alive(&stat("D", 1)) && is_alive(&stat("Z", 2)));
        assert!(!is_alive(&stat("Z", 1)) && !is_alive(&stat("X", 0)) && !is_alive(""));
        assert_eq!(Stat::parse(&stat("S", 5)), Some(Stat { dead: false, threads: 5, began: 100 }));
        let own = fs::read_to_string("/proc/self/stat").unwrap();
        assert!(is_alive(&own));
    }
}
