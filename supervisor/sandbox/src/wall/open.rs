//! Opening a path as a place, not as a file.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

/// `O_PATH`: no permission on the file itself is needed, and no device is woken (open(2)).
pub(super) fn open_path(path: &Path) -> io::Result<OwnedFd> {
    open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).map_err(io::Error::from)
}
