//! The spawner process: forked from the supervisor before it has grown, a thread for each session.
//!
//! It holds its control socket, /dev/null and what it was told to keep, nothing else of the supervisor's: no key, no
//! listener. It lives until the control socket's other end is closed and the last process of the last session is gone.

use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, IntoRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::thread::{Builder, JoinHandle};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};

use super::channel;
use super::command::Step;
use super::requests::answer;
use super::session;

/// What is sent with the socket of a session that has no scope.
pub(super) const UNSCOPED: [u8; 1] = [1];

/// Where the control socket is put: the first number after the standard ones.
const CONTROL: RawFd = 3;

/// Takes over the forked process. Returns its exit code when all is over.
pub(super) fn run(control: OwnedFd, kept: &[BorrowedFd<'_>]) -> i32 {
    match prepare(control, kept) {
        Ok(control) => {
            serve(&control);
            0
        }
        // The supervisor reads the errno off the control socket's end, and the code off the reaped child.
        Err(_) => 1,
    }
}

/// Sheds what came along with the fork.
fn prepare(control: OwnedFd, kept: &[BorrowedFd<'_>]) -> Result<UnixStream, Errno> {
    die_first();
    nix::sys::prctl::set_dumpable(false)?;
    nix::sys::prctl::set_no_new_privs()?;
    // Whatever the supervisor still holds, no agent is born with it.
    crate::shield::drop_capabilities().map_err(|_| Errno::EPERM)?;
    nix::sys::prctl::set_name(c"casemate-spawn")?;
    // Its group may get the terminal's signals; ours are blocked, and its children have sessions of their own.
    nix::unistd::setsid()?;
    quiet_signals()?;
    let control = place_descriptors(control, kept)?;
    // One byte: everything above worked.
    channel::send(&control, &[0], &[], &[])?;
    Ok(control)
}

/// When memory is short, the kernel ends what a session runs and not the supervisor: processes inherit this process's place,
/// which is half of the machine's memory before the supervisor's (proc_pid_oom_score_adj(5)). Whoever is unprivileged may come
/// forward. What cannot be set leaves the order by size, which the report shows as it is.
fn die_first() {
    const FORWARD: i32 = 500;
    const PATH: &str = "/proc/self/oom_score_adj";
    // The supervisor is not dumpable, hence neither is its copy, and /proc/self belongs to root then. No agent of this worker
    // exists yet, and others are kept out by their own walls.
    if nix::sys::prctl::set_dumpable(true).is_err() {
        return;
    }
    let own = std::fs::read_to_string(PATH).ok().and_then(|text| text.trim().parse::<i32>().ok());
    if let Some(own) = own {
        let _ = std::fs::write(PATH, (own + FORWARD).min(1000).to_string());
    }
}

/// All signals at their defaults and blocked, for this thread and all that it starts. What a child then inherits is what a
/// program expects, and no handler of the supervisor's ever runs here.
fn quiet_signals() -> Result<(), Errno> {
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), None)?;
    // `struct sigaction` as the kernel takes it: handler, flags, restorer, mask, each a word. All zero is SIG_DFL.
    let default = [0_u64; 4];
    for number in 1..=64 {
        // By system call: the C library refuses 32 and 33, which it keeps for itself, and a caller may have ignored them.
        // SAFETY: the kernel reads one action of the given mask size. SIG_DFL is no handler, so no code is installed. KILL
        // and STOP are refused with EINVAL, and are at their defaults.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                number,
                default.as_ptr(),
                std::ptr::null_mut::<u64>(),
                size_of::<u64>(),
            )
        };
    }
    Ok(())
}

/// /dev/null at 0, 1, 2, the control socket at 3, what is kept behind it, nothing else. Occupying the standard numbers keeps
/// received descriptors above them. What is kept has close-on-exec set, and the children close it before that.
fn place_descriptors(control: OwnedFd, kept: &[BorrowedFd<'_>]) -> Result<UnixStream, Errno> {
    let first_free = CONTROL + 1 + RawFd::try_from(kept.len()).map_err(|_| Errno::EMFILE)?;
    // First out of the way: a descriptor's place may be where another is now.
    // Its number is given up, not closed: another descriptor will be there.
    let aside = std::iter::once(control.into_raw_fd())
        .chain(kept.iter().map(|fd| fd.as_raw_fd()))
        // SAFETY: plain numbers; the copy is this process's own.
        .map(|fd| Errno::result(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, first_free) }))
        .collect::<Result<Vec<RawFd>, Errno>>()?;
    for (target, fd) in (CONTROL..).zip(aside) {
        // SAFETY: plain numbers, and different ones. Whatever the supervisor had at the target is only this process's copy,
        // of which no value here is dropped: the process leaves by _exit.
        Errno::result(unsafe { libc::dup3(fd, target, libc::O_CLOEXEC) })?;
    }
    let null = nix::fcntl::open(
        "/dev/null",
        nix::fcntl::OFlag::O_RDWR | nix::fcntl::OFlag::O_CLOEXEC,
        nix::sys::stat::Mode::empty(),
    )?
    .into_raw_fd();
    for target in 0..CONTROL {
        // SAFETY: as above.
        Errno::result(unsafe { libc::dup2(null, target) })?;
    }
    let first_free = libc::c_uint::try_from(first_free).map_err(|_| Errno::EMFILE)?;
    // SAFETY: plain numbers; closes this process's copies of everything else, the first ones of the above included.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first_free, u32::MAX, 0u32) };
    Errno::result(closed)?;
    // SAFETY: the descriptor was put there above and belongs to nobody else.
    Ok(unsafe { UnixStream::from_raw_fd(CONTROL) })
}

/// Takes a session's socket, and what that is to keep, with each byte, and gives both to a thread.
fn serve(control: &UnixStream) {
    let mut sessions: Vec<JoinHandle<()>> = Vec::new();
    let mut byte = [0];
    loop {
        let mut handed = Vec::new();
        match channel::receive(control, &mut byte, &mut handed) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        sessions.retain(|session| !session.is_finished());
        let mut handed = handed.into_iter();
        if let Some(socket) = handed.next() {
            sessions.extend(start(UnixStream::from(socket), handed.collect(), byte != UNSCOPED));
        }
    }
    for session in sessions {
        // A thread that panicked has lost its session already; the others still have theirs to end.
        let _ = session.join();
    }
}

fn start(socket: UnixStream, kept: Vec<OwnedFd>, scoped: bool) -> Option<JoinHandle<()>> {
    let refusal = socket.try_clone();
    let thread = Builder::new().name("session".to_owned()).stack_size(session::THREAD_STACK).spawn(
        move || {
            session::serve(&socket, scoped);
            // Before the socket: whoever sees its end may rely on what was kept being free.
            drop(kept);
        },
    );
    match thread {
        Ok(thread) => Some(thread),
        Err(error) => {
            if let Ok(socket) = refusal {
                let errno = Errno::from_raw(error.raw_os_error().unwrap_or(libc::EAGAIN));
                // A supervisor that is gone needs no refusal.
                let _ = answer(&socket, Err((Step::Clone, errno)), &[]);
            }
            None
        }
    }
}
