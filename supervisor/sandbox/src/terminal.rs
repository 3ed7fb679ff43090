//! The terminal that this process leads a session on, handed on to the one command that it starts.
//!
//! A container's PID 1 has the terminal as its controlling one. A command in a session of its own could read and write it, but
//! ^C and job control would be this process's. So it lets go of the terminal, and the command takes it
//! ([`crate::Command::terminal`]).

use std::io;
use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::unistd::{getpid, getsid};

/// Lets go of the terminal behind `fd` where this process leads the session that has it; whether it did. With another
/// leader the terminal stays, and with it ^C, for this process to pass on.
///
/// # Errors
/// What ioctl(2) answers.
pub fn release(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let own = getpid();
    let leads = getsid(None) == Ok(own);
    let has = nix::sys::termios::tcgetsid(fd).is_ok_and(|session| session == own);
    if !leads || !has {
        return Ok(false);
    }
    // The foreground group, so this process, gets SIGHUP and SIGCONT for it (tty_ioctl(4)).
    // SAFETY: no handler is installed, an ignored signal runs no code.
    let before = unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
    // SAFETY: no argument; the descriptor is live for the call.
    let released = unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&fd), libc::TIOCNOTTY) };
    let released = Errno::result(released).map(drop);
    // SAFETY: what was there before comes back.
    unsafe { libc::signal(libc::SIGHUP, before) };
    released?;
    Ok(true)
}
