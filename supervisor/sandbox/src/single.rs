//! Is this process still alone with itself?
//!
//! fork(2) copies the calling thread only: locks that other threads hold stay locked for ever in the child. unshare(2)
//! refuses a user namespace to a threaded process. So both are done before any thread exists, and this checks it.

use std::io;

/// `EBUSY` where this process has more than one thread.
pub(crate) fn require_single_thread() -> io::Result<()> {
    match std::fs::read_dir("/proc/self/task")?.count() {
        1 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::EBUSY)),
    }
}
