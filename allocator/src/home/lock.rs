//! The lock that makes an allocator the one of its home.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::private::{io_at, mend};
use super::{Home, HomeError};

/// A client holds the allocator's lock for microseconds.
const LOCK_TRIES: u32 = 20;
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

/// Held by the one allocator of a home, for its life.
#[derive(Debug)]
pub(crate) struct UpLock(#[expect(dead_code, reason = "dropping it unlocks")] Flock<File>);

impl Home {
    /// Takes the home for this process.
    ///
    /// # Errors
    /// [`HomeError::AlreadyRunning`] where another allocator lives.
    pub(crate) fn lock(&self) -> Result<UpLock, HomeError> {
        let path = self.up_lock();
        mend(&path, 0o600)?;
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(io_at(&path))?;
        let mut lock = match lock_soon(file) {
            Ok(lock) => lock,
            Err((mut file, Errno::EWOULDBLOCK)) => {
                let mut text = String::new();
                file.read_to_string(&mut text).map_err(io_at(&path))?;
                let pid = text.trim().parse().unwrap_or(0);
                return Err(HomeError::AlreadyRunning { home: self.path.clone(), pid });
            }
            Err((_, errno)) => return Err(io_at(&path)(errno.into())),
        };
        lock.set_len(0)
            .and_then(|()| lock.rewind())
            .and_then(|()| writeln!(lock, "{}", std::process::id()))
            .map_err(io_at(&path))?;
        Ok(UpLock(lock))
    }
}

impl Home {
    fn up_lock(&self) -> PathBuf {
        self.path.join("run/up.lock")
    }

    /// Runs `look` while no allocator can take the home, which must be short; `None` where one has it.
    ///
    /// # Errors
    /// [`HomeError::Io`].
    pub(crate) fn while_free<T>(
        &self,
        look: impl FnOnce() -> Result<T, HomeError>,
    ) -> Result<Option<T>, HomeError> {
        let path = self.up_lock();
        let file = match File::open(&path) {
            Ok(file) => file,
            // No allocator was ever here.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return look().map(Some),
            Err(error) => return Err(io_at(&path)(error)),
        };
        match Flock::lock(file, FlockArg::LockSharedNonblock) {
            Ok(_held) => look().map(Some),
            Err((_, Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, errno)) => Err(io_at(&path)(errno.into())),
        }
    }
}

/// Clients try the lock, shared and for a moment, to find out whether the discovery file counts: they are no allocator.
fn lock_soon(mut file: File) -> Result<Flock<File>, (File, Errno)> {
    for _ in 0..LOCK_TRIES {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Err((same, Errno::EWOULDBLOCK)) => file = same,
            outcome => return outcome,
        }
        std::thread::sleep(BETWEEN_TRIES);
    }
    Flock::lock(file, FlockArg::LockExclusiveNonblock)
}
