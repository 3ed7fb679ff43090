//! The range that is shot at: decoys of another session, and the attacking program.
//!
//! Made while the machine's own paths are in view and before the supervisor confines itself. Owned by the worker until its
//! wall has been measured; the decoys go with it, by a descriptor, since in tier `namespace` their path is gone by then.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use casemate_inside::catalogue::Planted;
use casemate_protocol::worker::StartError;
use casemate_sandbox::beneath::Dir;
use rustix::fs::{MemfdFlags, SealFlags};

use crate::words::chain;

/// Its name in the slot's `run/`.
const NAME: &str = "range";

/// Decoys and program.
#[derive(Debug)]
pub struct Range {
    /// The other session's files and listeners.
    pub(super) planted: Planted,
    /// This program, sealed, in no file system.
    pub(super) program: File,
    /// This process, as the machine counts: in tier `namespace` it stays outside.
    pub(super) outside: i32,
    /// Where the decoys lie.
    folder: Dir,
}

// === impl Range ===

impl Range {
    /// Makes it below `folder`, in the place of what an earlier one left. `owner`: whose the decoys are to be, where that
    /// is not this process's user.
    ///
    /// # Errors
    /// [`StartError::Volume`] where the files cannot be made, [`StartError::Other`] for the program.
    pub fn make(folder: &Path, owner: Option<u32>) -> Result<Self, StartError> {
        let place = folder.join(NAME);
        let volume = |error: io::Error| StartError::Volume {
            message: format!("{}: {error}: check the volume's space and owner", place.display()),
        };
        match fs::remove_dir_all(&place) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(volume(error)),
            _ => {}
        }
        let planted = Planted::plant(&place, owner).map_err(volume)?;
        let program = own_program().map_err(|error| StartError::Other {
            message: format!("no program for the probe: {error}: leave more memory free"),
        })?;
        Ok(Self {
            planted,
            program,
            outside: i32::try_from(std::process::id()).unwrap_or(0),
            folder: Dir::open(folder)
                .map_err(|error| StartError::Volume { message: chain(&error) })?,
        })
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        if let Err(error) = self.folder.remove_tree(NAME) {
            tracing::debug!(%error, "the decoys are removed with the slot");
        }
    }
}

/// A copy that nobody can change.
fn own_program() -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut copy = File::from(rustix::fs::memfd_create("casemate-probe", flags)?);
    io::copy(&mut File::open("/proc/self/exe")?, &mut copy)?;
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    rustix::fs::fcntl_add_seals(&copy, seals)?;
    Ok(copy)
}
