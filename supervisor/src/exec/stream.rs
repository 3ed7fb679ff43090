//! One end of a pipe or a terminal's master, without waiting in the kernel.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

/// A descriptor that is ours alone.
#[derive(Debug)]
pub(super) struct Stream(AsyncFd<OwnedFd>);

// === impl Stream ===

impl Stream {
    pub(super) fn over(fd: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe for what may close its descriptor early; an OwnedFd does not"
        )]
        let fd = AsyncFd::new(fd)?;
        Ok(Self(fd))
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        self.0.get_ref()
    }

    /// Reads once; 0 at the end. A terminal whose other end is closed everywhere says EIO.
    pub(super) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.0.readable().await?;
            match ready.try_io(|fd| Ok(rustix::io::read(fd, &mut *buffer)?)) {
                Ok(Err(error)) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => {
                    return Ok(0);
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(outcome) => return outcome,
                Err(_) => {}
            }
        }
    }

    pub(super) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let mut ready = self.0.writable().await?;
            match ready.try_io(|fd| Ok(rustix::io::write(fd, bytes)?)) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(outcome) => bytes = &bytes[outcome?..],
                Err(_) => {}
            }
        }
        Ok(())
    }
}
