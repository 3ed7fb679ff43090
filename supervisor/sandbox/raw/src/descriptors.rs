//! Settings of descriptors that no safe crate has.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// asm-generic/fcntl.h; libc does not have it for every C library.
const F_SETSIG: i32 = 10;
/// linux/tcp.h; likewise.
const TCP_FASTOPEN_CONNECT: i32 = 30;

/// Makes `pid` the one that gets `signal` when `descriptor` becomes ready, once that has `O_ASYNC`.
///
/// # Errors
/// fcntl(2)'s: `ESRCH` where there is no such process.
pub fn signal_owner(descriptor: BorrowedFd<'_>, pid: i32, signal: i32) -> io::Result<()> {
    for (command, value) in [(F_SETSIG, signal), (libc::F_SETOWN, pid)] {
        // SAFETY: both commands take a number and touch no memory.
        if unsafe { libc::fcntl(descriptor.as_raw_fd(), command, value) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Lets the first write of a TCP socket connect (tcp(7), TCP_FASTOPEN_CONNECT).
///
/// # Errors
/// setsockopt(2)'s.
pub fn connect_by_write(socket: BorrowedFd<'_>) -> io::Result<()> {
    let on: i32 = 1;
    let length = libc::socklen_t::try_from(size_of_val(&on)).unwrap_or(4);
    // SAFETY: the kernel reads one `int` at `on`, which lives as long as the call.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            TCP_FASTOPEN_CONNECT,
            (&raw const on).cast(),
            length,
        )
    };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
