//! The spawner process: forked from the supervisor before it has grown, a thread for each session.
//!
//! It holds its control socket, /dev/null and what it was told to keep, nothing else of the supervisor's: no key, no
//! listener. It lives until the control socket's other end is closed and the last process of the last session is gone.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread::{Builder, JoinHandle};

use nix::errno::Errno;

use super::channel;
use super::command::Step;
use super::requests::answer;
use super::session;
use crate::forked::{Standard, place_descriptors, quiet_signals};

/// What is sent with the socket of a session that has no scope.
pub(super) const UNSCOPED: [u8; 1] = [1];

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
    let control = place_descriptors(control, kept, Standard::None)?;
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
