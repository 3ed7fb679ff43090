//! A worker in user, mount, pid, ipc and uts namespaces of its own: tier `namespace`.
//!
//! Three processes for an instant, two for good:
//!
//! - the **launcher** is the process that calls [`enter`]. It stays outside, writes the id maps, waits for the worker and
//!   passes signals on.
//! - the **middle** makes the namespaces, forks the worker into them and is gone. It exists because only fork(2) of the C library
//!   keeps the library's own record of thread ids right, and it has no flags; a raw clone(2) would leave a stale one.
//!   The launcher, a child subreaper, inherits the worker from it.
//! - the **worker** is PID 1 in the new pid namespace. It builds its root, sheds every privilege, ties its life to the
//!   launcher's, and returns from [`enter`] as [`Entered::Inside`].
//!
//! Call it before any thread exists and before the shield is raised (a non-dumpable process's maps cannot be written by
//! an ordinary user). Whatever goes wrong inside is told to the launcher, whose [`enter`] returns the error; no process is left.

mod error;
mod ids;
mod launcher;
mod mount;
mod plan;
mod root;
mod sync;
mod withdraw;

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

use caps::CapSet;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::CloneFlags;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid};

pub use error::{NamespaceError, NamespaceStep};
pub use launcher::{LauncherError, LauncherHandle};
pub use plan::{Access, Bind, Plan};
pub use withdraw::{WithdrawError, Withdrawal};

use crate::single::require_single_thread;
use error::{Failure, NamespaceStep as Step};
use ids::Ids;
use plan::Layout;
use sync::Word;

/// Which of the two processes this is now.
#[derive(Debug)]
pub enum Entered {
    /// PID 1 inside, without any capability; with the means to take [`Plan::withdrawn`] away.
    Inside(Option<Withdrawal>),
    /// Outside; [`LauncherHandle::wait_forwarding_signals`] is all that is left to do.
    Launcher(LauncherHandle),
}

/// Makes the namespaces and forks the worker into them. Returns twice: in the worker, and here once the worker stands.
///
/// # Errors
/// [`NamespaceError`] with the step that failed; then there is no worker, and the caller is where it was.
pub fn enter(plan: &Plan) -> Result<Entered, NamespaceError> {
    let fail = NamespaceError::new;
    require_single_thread().map_err(|error| fail(Step::Threads.failed(io_errno(&error))))?;
    let ids = Ids::of(plan, nix::unistd::geteuid(), nix::unistd::getegid()).map_err(fail)?;
    let layout = Layout::of(plan).map_err(fail)?;
    let fork_failed = |errno| fail(Step::Fork.failed(errno));
    let (ours, theirs) = UnixStream::pair().map_err(|error| fork_failed(io_errno(&error)))?;
    nix::sys::prctl::set_child_subreaper(true).map_err(fork_failed)?;
    // From here on a signal for the worker waits until there is one.
    let signals = launcher::signals();
    let before =
        signals.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK).map_err(fork_failed)?;
    // SAFETY: this process has one thread, so the child's copy of every lock is free and it may run any code.
    match unsafe { nix::unistd::fork() } {
        Ok(ForkResult::Child) => {
            drop(ours);
            Ok(middle(plan, ids, &layout, &theirs, &before))
        }
        Ok(ForkResult::Parent { child }) => {
            drop(theirs);
            let worker = guide(child, ids, &ours);
            if worker.is_err() {
                // The signal mask of a caller that goes on without a worker.
                before.thread_set_mask().map_err(fork_failed)?;
            }
            worker.map(|pid| Entered::Launcher(LauncherHandle::new(pid))).map_err(fail)
        }
        Err(errno) => {
            before.thread_set_mask().map_err(fork_failed)?;
            Err(fork_failed(errno))
        }
    }
}

/// The launcher's side: maps, then the worker's word that it stands.
fn guide(middle: Pid, ids: Ids, socket: &UnixStream) -> Result<Pid, Failure> {
    let mut born = None;
    let outcome = (|| {
        sync::expect(socket, Word::Unshared)?;
        ids.write(middle)?;
        sync::say(socket, Word::Mapped)?;
        let pid = sync::expect_pid(socket)?;
        born = Some(pid);
        // The worker is the launcher's child only once the middle is gone.
        waitpid(middle, None).map_err(|errno| Step::Fork.failed(errno))?;
        sync::say(socket, Word::Go)?;
        sync::expect(socket, Word::Standing)?;
        Ok(pid)
    })();
    if outcome.is_err() {
        for pid in [Some(middle), born].into_iter().flatten() {
            // Gone already, in most cases; reaped in any.
            let _ = nix::sys::signal::kill(pid, Signal::SIGKILL);
            let _ = waitpid(pid, None);
        }
    }
    outcome
}

/// Makes the namespaces, forks the worker, ends. Returns in the worker only.
fn middle(plan: &Plan, ids: Ids, layout: &Layout, socket: &UnixStream, before: &SigSet) -> Entered {
    let flags = CloneFlags::CLONE_NEWUSER
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS;
    let outcome = (|| {
        nix::sched::unshare(flags).map_err(|errno| Step::Unshare.failed(errno))?;
        sync::say(socket, Word::Unshared)?;
        sync::expect(socket, Word::Mapped)?;
        // SAFETY: as in `enter`: still one thread.
        unsafe { nix::unistd::fork() }.map_err(|errno| Step::Fork.failed(errno))
    })();
    match outcome {
        Ok(ForkResult::Child) => match inside(plan, ids, layout, socket, before) {
            Ok(withdrawal) => return Entered::Inside(withdrawal),
            Err(failure) => sync::fail(socket, &failure),
        },
        Ok(ForkResult::Parent { child }) => sync::say_pid(socket, child),
        Err(failure) => sync::fail(socket, &failure),
    }
    // SAFETY: leaves without the launcher's atexit handlers and buffers, which are not this process's.
    unsafe { libc::_exit(0) }
}

/// The worker's side.
fn inside(
    plan: &Plan,
    ids: Ids,
    layout: &Layout,
    socket: &UnixStream,
    before: &SigSet,
) -> Result<Option<Withdrawal>, Failure> {
    sync::expect(socket, Word::Go)?;
    // The terminal's signals reach the launcher, which passes them on: once, not twice.
    nix::unistd::setsid().map_err(|errno| Step::Setsid.failed(errno))?;
    root::build(layout)?;
    if let Some(name) = &plan.hostname {
        nix::unistd::sethostname(name).map_err(|errno| Step::Hostname.failed(errno))?;
    }
    // While CAP_SETPCAP is still here: the identity takes it away.
    caps::clear(None, CapSet::Bounding).map_err(|_| Step::Privileges.failed(Errno::EPERM))?;
    let withdrawal =
        plan.withdrawn.as_deref().map(|place| Withdrawal::prepare(place, ids)).transpose()?;
    ids.take_on()?;
    nix::sys::prctl::set_no_new_privs().map_err(|errno| Step::Privileges.failed(errno))?;
    crate::shield::drop_capabilities().map_err(|_| Step::Privileges.failed(Errno::EPERM))?;
    // After the last change of identity, which clears it (prctl(2)).
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)
        .map_err(|errno| Step::ParentDeath.failed(errno))?;
    launcher_lives(socket)?;
    before.thread_set_mask().map_err(|errno| Step::Fork.failed(errno))?;
    sync::say(socket, Word::Standing)?;
    Ok(withdrawal)
}

/// A launcher that died before the line above set the signal never sends it. From inside a pid namespace getppid(2)
/// answers 0 whether it lives or not; the socket that only it holds tells.
fn launcher_lives(socket: &UnixStream) -> Result<(), Failure> {
    let mut watched = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    match poll(&mut watched, PollTimeout::ZERO) {
        Ok(0) => Ok(()),
        Ok(_) => Err(Step::ParentDeath.failed(Errno::ESRCH)),
        Err(errno) => Err(Step::ParentDeath.failed(errno)),
    }
}

fn io_errno(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}
