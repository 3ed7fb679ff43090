//! What every process that is forked off the supervisor does first: it lets go of signals and descriptors that came along.

use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, IntoRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};

/// Where the control socket is put: the first number after the standard ones.
const CONTROL: RawFd = 3;

/// What stays of the standard descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standard {
    /// Nothing.
    None,
    /// Standard error, where the supervisor logs.
    Log,
}

/// All signals at their defaults and blocked, for this thread and all that it starts. What a child then inherits is what a
/// program expects, and no handler of the supervisor's ever runs here.
pub(crate) fn quiet_signals() -> Result<(), Errno> {
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
pub(crate) fn place_descriptors(
    control: OwnedFd,
    kept: &[BorrowedFd<'_>],
    standard: Standard,
) -> Result<UnixStream, Errno> {
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
    let silent = match standard {
        Standard::None => 0..libc::STDERR_FILENO + 1,
        Standard::Log => 0..libc::STDERR_FILENO,
    };
    for target in silent {
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
