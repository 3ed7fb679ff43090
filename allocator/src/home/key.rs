//! The key that worker tokens are signed with.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};

use casemate_protocol::token::SigningSecret;
use nix::errno::Errno;
use nix::fcntl::OFlag;

use super::private::{io_at, mend, write_private};
use super::{Home, HomeError};

const CURRENT: &str = "keys/signing.seed";
const NEXT: &str = "keys/signing.next";

impl Home {
    /// The key that signs worker tokens; made at the first start.
    ///
    /// # Errors
    /// [`HomeError::Key`] where it is not a file of 32 bytes of this user's; [`HomeError::Io`].
    pub(crate) fn signing_secret(&self) -> Result<SigningSecret, HomeError> {
        // No worker was ever told to take this one alone.
        self.forget_next_secret();
        let path = self.path.join(CURRENT);
        mend(&path, 0o600)?;
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let file = match OpenOptions::new().read(true).custom_flags(flags.bits()).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let secret = SigningSecret::generate();
                write_private(&path, &secret.seed())?;
                return Ok(secret);
            }
            Err(error) if error.raw_os_error() == Some(Errno::ELOOP as i32) => {
                return Err(HomeError::Key { path });
            }
            Err(error) => return Err(io_at(&path)(error)),
        };
        let meta = file.metadata().map_err(io_at(&path))?;
        let mut seed = Vec::with_capacity(33);
        file.take(33).read_to_end(&mut seed).map_err(io_at(&path))?;
        let is_own = meta.is_file() && meta.uid() == nix::unistd::geteuid().as_raw();
        match <[u8; 32]>::try_from(seed) {
            Ok(seed) if is_own => Ok(SigningSecret::from_seed(&seed)),
            _ => Err(HomeError::Key { path }),
        }
    }

    /// Makes the key durable that is to replace the one in use.
    ///
    /// # Errors
    /// [`HomeError::Io`].
    pub(crate) fn keep_next_secret(&self, secret: &SigningSecret) -> Result<(), HomeError> {
        write_private(&self.path.join(NEXT), &secret.seed())
    }

    /// The kept key is the one in use from now on.
    ///
    /// # Errors
    /// [`HomeError::Io`].
    pub(crate) fn use_next_secret(&self) -> Result<(), HomeError> {
        let (next, path) = (self.path.join(NEXT), self.path.join(CURRENT));
        std::fs::rename(&next, &path).map_err(io_at(&next))?;
        let directory = self.path.join("keys");
        File::open(&directory).and_then(|open| open.sync_all()).map_err(io_at(&directory))
    }

    /// The kept key is not to be used.
    pub(crate) fn forget_next_secret(&self) {
        // It opens nothing: where it cannot be removed the next start tries again.
        let _ = std::fs::remove_file(self.path.join(NEXT));
    }
}
