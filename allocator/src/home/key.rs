//! The key that worker tokens are signed with.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};

use casemate_protocol::token::SigningSecret;
use nix::errno::Errno;
use nix::fcntl::OFlag;

use super::private::{io_at, mend, write_private};
use super::{Home, HomeError};

impl Home {
    /// The key that signs worker tokens; made at the first start.
    ///
    /// # Errors
    /// [`HomeError::Key`] where it is not a file of 32 bytes of this user's; [`HomeError::Io`].
    pub(crate) fn signing_secret(&self) -> Result<SigningSecret, HomeError> {
        let path = self.0.join("keys/signing.seed");
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
}
