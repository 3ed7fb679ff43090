//! The kernel's side of a listener: its structures and ioctls (linux/seccomp.h, seccomp_unotify(2)).

use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// `SECCOMP_IOCTL_NOTIF_RECV`: `_IOWR('!', 0, struct seccomp_notif)`.
const RECV: libc::c_ulong = 0xc050_2100;
/// `SECCOMP_IOCTL_NOTIF_SEND`: `_IOWR('!', 1, struct seccomp_notif_resp)`.
const SEND: libc::c_ulong = 0xc018_2101;
/// `SECCOMP_IOCTL_NOTIF_ID_VALID`: `_IOW('!', 2, __u64)`.
const ID_VALID: libc::c_ulong = 0x4008_2102;
/// `SECCOMP_IOCTL_NOTIF_SET_FLAGS`: `_IOW('!', 4, __u64)`.
pub(crate) const SET_FLAGS: libc::c_ulong = 0x4008_2104;
/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP` (Linux 6.6): hand-over on one CPU, 14 times as fast.
pub(crate) const SYNC_WAKE_UP: libc::c_ulong = 1;
/// `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV` (Linux 5.19): once a call was read from the listener, signals that do not kill
/// wait for the answer, so that a timer cannot restart it for ever.
pub(crate) const WAIT_KILLABLE: libc::c_ulong = 1 << 5;
/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`.
const CONTINUE: u32 = 1;

/// `struct seccomp_notif`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Notification {
    pub(super) id: u64,
    pub(super) pid: u32,
    flags: u32,
    pub(super) number: i32,
    architecture: u32,
    instruction: u64,
    pub(super) arguments: [u64; 6],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
struct Response {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// What a wait came to.
pub(super) enum Woken {
    Asked(Notification),
    /// Whoever asked is gone again.
    Again,
    /// Nobody is left behind the filter.
    Over,
}

/// Where the kernel cannot (before Linux 6.6), it is slower and nothing else.
pub(super) fn wake_in_step(listener: &OwnedFd) {
    // SAFETY: this request takes its flags by value, although its number is built by _IOW.
    unsafe { libc::ioctl(listener.as_raw_fd(), SET_FLAGS as _, SYNC_WAKE_UP) };
}

/// Waits for the next call. By poll(2) first: only that tells that nobody is left (before Linux 6.11).
pub(super) fn next(listener: &OwnedFd) -> Result<Woken, Errno> {
    let mut polled = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    match poll(&mut polled, PollTimeout::NONE) {
        Ok(_) => {}
        Err(Errno::EINTR) => return Ok(Woken::Again),
        Err(errno) => return Err(errno),
    }
    let events = polled[0].revents().unwrap_or(PollFlags::empty());
    if !events.contains(PollFlags::POLLIN) {
        return if events.contains(PollFlags::POLLHUP) { Ok(Woken::Over) } else { Err(Errno::EIO) };
    }
    // Zeroes, or the kernel refuses it.
    let mut asked = Notification::default();
    // SAFETY: the kernel fills one `struct seccomp_notif`, for which the request's number gives the size of `Notification`.
    let read = unsafe { libc::ioctl(listener.as_raw_fd(), RECV as _, &raw mut asked) };
    match Errno::result(read) {
        Ok(_) => Ok(Woken::Asked(asked)),
        Err(Errno::ENOENT | Errno::EINTR) => Ok(Woken::Again),
        Err(errno) => Err(errno),
    }
}

/// Whether who asked still waits for the answer, and so still is who its number names.
pub(super) fn still_waits(listener: &OwnedFd, asked: &Notification) -> bool {
    // SAFETY: the kernel reads one number that lives as long as the call.
    unsafe { libc::ioctl(listener.as_raw_fd(), ID_VALID as _, &raw const asked.id) == 0 }
}

/// Lets the call be made, as if nobody had asked.
pub(super) fn go_on(listener: &OwnedFd, asked: &Notification) -> Result<(), Errno> {
    send(listener, &Response { id: asked.id, value: 0, error: 0, flags: CONTINUE })
}

/// Answers in the kernel's place: the call is not made.
pub(super) fn refuse(listener: &OwnedFd, asked: &Notification, errno: u16) -> Result<(), Errno> {
    send(listener, &Response { id: asked.id, value: 0, error: -i32::from(errno), flags: 0 })
}

fn send(listener: &OwnedFd, response: &Response) -> Result<(), Errno> {
    // SAFETY: the kernel reads one `struct seccomp_notif_resp` that lives as long as the call.
    let sent =
        unsafe { libc::ioctl(listener.as_raw_fd(), SEND as _, std::ptr::from_ref(response)) };
    Errno::result(sent).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structures_have_the_sizes_that_the_requests_name() {
        let size = |request: libc::c_ulong| usize::try_from((request >> 16) & 0x3fff).unwrap();
        assert_eq!(size_of::<Notification>(), size(RECV));
        assert_eq!(size_of::<Response>(), size(SEND));
        assert_eq!(size_of::<u64>(), size(ID_VALID));
    }
}
