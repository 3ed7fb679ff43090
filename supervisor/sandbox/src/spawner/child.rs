//! The child between clone(2) and execve(2): code that shares its parent's memory.
//!
//! # Why it is sound
//!
//! [`start`] calls clone(2) with `CLONE_VM | CLONE_VFORK | CLONE_FILES | CLONE_PARENT | SIGCHLD`. The child runs
//! [`child`] in the *same address space* as the spawner. What makes that defensible, point by point:
//!
//! 1. **Who else runs.** `CLONE_VFORK` suspends the calling thread, and it alone, until the child has called execve or
//!    exited (clone(2)). Other session threads of the spawner run on. So the child may touch only what belongs to the
//!    suspended thread: the [`Plan`] and what it points to, and the child's stack. All of it is owned by that
//!    thread, outlives the suspension, and is named by nobody else.
//! 2. **Stack.** The child has a [`Stack`] of its own; the suspended thread's frames are not overwritten. A guard page lies
//!    below: an overflow faults, in the child, whose default disposition kills the child only. One stack is enough for
//!    a thread because one child at a time exists on it (point 1), and `&mut Stack` says so to the compiler.
//! 3. **Thread-local storage** is shared with the suspended thread (no `CLONE_SETTLS`). The C library's wrappers write
//!    `errno` there; the suspended thread reads its `errno` only after its own next failing call. Nothing else that the child calls
//!    uses TLS: no Rust `thread_local!`, no stdio, no pthread function.
//! 4. **No allocation, no locks, no panics.** Another thread may hold malloc's lock at this instant, and it is the same lock, not a
//!    copy. The child therefore makes system calls and nothing else: it iterates slices that were built before,
//!    never indexes, never formats, never drops (`_exit`, not `exit`; it owns no value with a destructor).
//! 5. **Signals.** Without `CLONE_SIGHAND` the child has its own copy of the dispositions; a handler's code and data
//!    would be shared. The spawner's dispositions are set to default (`process::quiet_signals`), but the C library installs a
//!    handler of its own (SIGSETXID, 33) with the first thread, and unblocks it. So the thread that starts children blocks all 64
//!    signals by system call (`starter::block_signals`), the child inherits that mask, and nothing is pending in a new task. It
//!    empties the mask last of all; from there to execve(2) only a process outside of the session may signal it (point 8), which
//!    are the supervisor and its user's own. execve sets caught signals to default.
//! 6. **Credentials, Landlock, seccomp.** All three are per task. The child copies the suspended thread's (so it is born
//!    inside the session's signal scope, with `no_new_privs` and behind the wall's seccomp programs, which [`super::starter`]
//!    has put on) and adds the Landlock layers to its own; the thread's stay as they are.
//! 7. **Descriptors.** `CLONE_FILES` shares the table: none is copied to be thrown away. The child leaves it by `close_range(CLOSE_RANGE_UNSHARE)` before it changes anything in
//!    it; until then it only passes numbers out of the plan. (unshare(2) would do as well, but container runtimes'
//!    filters refuse it.)
//! 8. **Being attacked in the window.** An agent of the same session and user might ptrace the child while it shares the spawner's memory.
//!    The memory is non-dumpable (`PR_SET_DUMPABLE` is a property of the address space; execve gives a new one), and a
//!    process in a Landlock domain may trace only its own and nested domains, while the child's domain is never nested
//!    in an earlier agent's. Non-dumpable also means that a fatal signal to the child writes no core of the spawner.
//! 9. **Results** come back through two atomics in the plan: same memory, and the suspension orders the accesses. A child that
//!    dies of a signal before execve leaves `step` at 0; the supervisor, its parent, reaps it as any other.
//! 10. **Parent.** `CLONE_PARENT` makes the supervisor the parent and takes the exit signal from the spawner's own
//!     (SIGCHLD). The supervisor is then the only process that can wait for the child.
//! 11. **The parent's death.** A fatal signal to the spawner takes all of its threads, the suspended one too, whose wait for
//!     the child is killable. The address space is counted by its users: it stays, plan and stack with it, until the child has
//!     left it by execve or exit, and dead threads run no code that could unmap anything. A thread of the spawner cannot end alone
//!     while it is suspended.
//! 12. **The kernel's memory of user addresses.** What a thread has registered does not act for the child: clone(2) with `CLONE_VM`
//!     drops the restartable sequence (rseq), gives an empty robust list, and without `CLONE_CHILD_CLEARTID` there is no word to
//!     clear. With a shadow stack (x86 CET) a vfork child pushes onto its parent's, above everything that the parent returns
//!     through, and never returns below its own first frame.
//! 13. **What the compiler assumes.** To it clone(2) is an opaque call that gets two pointers; memory that they reach may have changed
//!     when it returns, and what is written here are atomics. It returns once, in the parent: the child begins in a function of its
//!     own, so no local of the caller lives twice (vfork(3) called directly returns twice, which no compiler of Rust knows of).
//!     `child` is `extern "C"`: a panic, of which there is no source in it, would abort and not unwind into the C library.
//! 14. **Seccomp in the window.** The child makes its calls behind the wall's programs. One that a policy refuses fails with that
//!     errno and the step's name; one that kills ends the child alone (point 9).
//!
//! # What shows it
//!
//! `tests/vfork.rs`: an allocator that ends whoever allocates on another task's TLS (4); the mask of the threads (5); no
//! shared mapping and no environment in the agent (1); no setting of a thread of the spawner by an agent. `tests/spawner`: descriptors (7),
//! signals, traces and `/proc` from an agent of the same session, also behind a wall without scopes (8), a killed supervisor (11),
//! exit codes among failures (9, 10).

use std::ffi::c_void;
use std::ffi::{c_char, c_int};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, Ordering};

use nix::errno::Errno;

use super::command::Step;
use super::stack::Stack;
use crate::wall::Rlimit;

/// What the child reads, and the two numbers that it writes. Every pointer is into memory of the suspended thread.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    wall: Wall<'a>,
    errand: Errand<'a>,
    failed_step: AtomicI32,
    failed_errno: AtomicI32,
}

/// What the child puts around itself. Rulesets stay open in the spawner.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wall<'a> {
    /// A signal scope of the child's own: the outer one it shares with the spawner's thread. -1: none.
    pub(super) scope: RawFd,
    /// -1: none.
    pub(super) ruleset: RawFd,
    pub(super) rlimits: &'a [Rlimit],
    /// What Landlock is told about its log.
    pub(super) log: u32,
    /// The nice value, not below the suspended thread's.
    pub(super) nice: c_int,
}

/// What the child does behind the wall.
#[derive(Debug)]
pub(super) enum Errand<'a> {
    /// Becomes a program. `argv` and `env` end with a null pointer.
    Exec {
        program: *const c_char,
        cwd: *const c_char,
        argv: *const *const c_char,
        env: *const *const c_char,
        stdio: [RawFd; 3],
        /// Descriptor 0 becomes the controlling terminal.
        terminal: bool,
    },
    /// Opens each path for reading and for writing and notes the errno, 0 where it opened.
    Probe { paths: &'a [*const c_char], answers: &'a [[AtomicI32; 2]] },
}

impl<'a> Plan<'a> {
    pub(super) fn new(wall: Wall<'a>, errand: Errand<'a>) -> Self {
        Self { wall, errand, failed_step: AtomicI32::new(0), failed_errno: AtomicI32::new(0) }
    }
}

/// Runs the plan in a new child of the supervisor. Returns when the child has become its program, has done its
/// probe, or has failed: then the step and its errno.
pub(super) fn start(plan: &Plan<'_>, stack: &mut Stack) -> Result<i32, (Step, Errno)> {
    let flags =
        libc::CLONE_PARENT | libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES | libc::SIGCHLD;
    let argument = std::ptr::from_ref(plan).cast_mut().cast::<c_void>();
    // SAFETY: the module's head argues it. In short: `top` is the end of a live mapping that nothing else uses while the
    // child exists, `argument` points to a `Plan` that outlives the suspension, and `child` casts it back to that type.
    let pid = unsafe { libc::clone(child, stack.top(), flags, argument) };
    let pid = Errno::result(pid).map_err(|errno| (Step::Clone, errno))?;
    match plan.failed_step.load(Ordering::Acquire) {
        0 => Ok(pid),
        step => {
            let errno = Errno::from_raw(plan.failed_errno.load(Ordering::Acquire));
            Err((Step::from_wire(step), errno))
        }
    }
}

/// Exit code of a child that failed before its program ran; the supervisor sees it when it reaps the child.
const FAILED: c_int = 127;

extern "C" fn child(argument: *mut c_void) -> c_int {
    // SAFETY: `start` passes a live `Plan` and is suspended; the plan is only read, but for its atomics.
    let plan = unsafe { &*argument.cast_const().cast::<Plan<'_>>() };
    let code = match run(plan) {
        Ok(()) => 0,
        Err((step, errno)) => {
            plan.failed_errno.store(errno, Ordering::Release);
            plan.failed_step.store(step as i32, Ordering::Release);
            FAILED
        }
    };
    // SAFETY: ends this task at once: no destructors, no atexit handlers, no flushing of buffers we share.
    unsafe { libc::_exit(code) }
}

type Failure = (Step, c_int);

fn run(plan: &Plan<'_>) -> Result<(), Failure> {
    // SAFETY: no arguments.
    check(Step::Setsid, unsafe { libc::setsid() })?;
    if let Errand::Exec { cwd, .. } = plan.errand {
        // Before the wall: it is the supervisor's choice, and the wall may forbid a component on the way.
        // SAFETY: `cwd` is a NUL-terminated string in the request's body, which outlives the suspension.
        check(Step::Chdir, unsafe { libc::chdir(cwd) })?;
    }
    for limit in plan.wall.rlimits {
        let value = libc::rlimit { rlim_cur: limit.soft, rlim_max: limit.hard };
        // SAFETY: the kernel reads one live, initialised structure.
        check(Step::Rlimit, unsafe { libc::setrlimit(limit.resource, &raw const value) })?;
    }
    // Relative to the supervisor, whom the session must not starve; nobody unprivileged lowers it again (setpriority(2)).
    // SAFETY: plain numbers; the priority is this task's own.
    check(Step::Priority, unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, plan.wall.nice) })?;
    for ruleset in [plan.wall.scope, plan.wall.ruleset] {
        if ruleset < 0 {
            continue;
        }
        // SAFETY: plain numbers.
        let walled =
            unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, plan.wall.log) };
        check_long(Step::Landlock, walled)?;
    }
    descriptors(&plan.errand)?;
    if let Errand::Exec { terminal: true, .. } = plan.errand {
        // The child leads the session that setsid made above. 0: a terminal is not taken from another session.
        // SAFETY: plain numbers; descriptor 0 is in a table of this task's own.
        check(Step::Terminal, unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) })?;
    }
    unblock_signals()?;
    match plan.errand {
        Errand::Exec { program, argv, env, .. } => {
            // SAFETY: NUL-terminated strings and null-terminated lists that outlive the suspension. Success does not return.
            unsafe { libc::execve(program, argv, env) };
            Err((Step::Exec, errno()))
        }
        Errand::Probe { paths, answers } => {
            for (path, answer) in paths.iter().zip(answers) {
                for (mode, slot) in [libc::O_RDONLY, libc::O_WRONLY].into_iter().zip(answer) {
                    slot.store(try_open(*path, mode), Ordering::Release);
                }
            }
            Ok(())
        }
    }
}

/// A table of the child's own, in which only 0, 1 and 2 are open.
fn descriptors(errand: &Errand<'_>) -> Result<(), Failure> {
    // Nothing is at the highest number: this call leaves the shared table and closes nothing.
    // SAFETY: plain numbers.
    let left = unsafe {
        libc::syscall(libc::SYS_close_range, u32::MAX, u32::MAX, libc::CLOSE_RANGE_UNSHARE)
    };
    check_long(Step::Descriptors, left)?;
    if let Errand::Exec { stdio, .. } = errand {
        for (target, source) in (0..).zip(stdio) {
            // The sources are above 2 (`session::stdio` sees to it), so no dup2 overwrites a later source.
            // SAFETY: plain numbers, in a table that is this task's alone now.
            check(Step::Descriptors, unsafe { libc::dup2(*source, target) })?;
        }
    }
    // SAFETY: plain numbers; the table is this task's alone.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32) };
    check_long(Step::Descriptors, closed)
}

fn unblock_signals() -> Result<(), Failure> {
    let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set that it is given.
    unsafe { libc::sigemptyset(none.as_mut_ptr()) };
    // SAFETY: the set was initialised just above; the old one is not asked for.
    let set = unsafe { libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut()) };
    check(Step::SignalMask, set)
}

/// The errno of an open, 0 where it succeeded.
fn try_open(path: *const c_char, mode: c_int) -> c_int {
    // O_NONBLOCK: a FIFO must not hold the spawner. No O_CREAT, no O_TRUNC: a probe changes nothing.
    // SAFETY: a NUL-terminated string that outlives the suspension.
    let fd =
        unsafe { libc::open(path, mode | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY) };
    if fd < 0 {
        return errno();
    }
    // SAFETY: the descriptor was made above, in a table of this task's own.
    unsafe { libc::close(fd) };
    0
}

fn check(step: Step, result: c_int) -> Result<(), Failure> {
    if result < 0 { Err((step, errno())) } else { Ok(()) }
}

fn check_long(step: Step, result: libc::c_long) -> Result<(), Failure> {
    if result < 0 { Err((step, errno())) } else { Ok(()) }
}

fn errno() -> c_int {
    Errno::last_raw()
}
