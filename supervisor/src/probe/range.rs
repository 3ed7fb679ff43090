//! The range that is shot at: decoys of another session, and the attacking program.
//!
//! Made while the machine's own paths are in view and before the supervisor confines itself. Owned by the worker until its
//! wall has been measured; the decoys go with it, by a descriptor, since in tier `namespace` their path is gone by then.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use casemate_inside::catalogue::{Decoys, Planted};
use casemate_protocol::worker::StartError;
use casemate_sandbox::beneath::Dir;
use casemate_sandbox::porter::Errand;
use rustix::fs::{MemfdFlags, SealFlags};

use crate::words::chain;

/// Its name in the slot's `run/`.
const NAME: &str = "range";

/// Decoys and program.
#[derive(Debug)]
pub struct Range {
    /// The other session's files and listeners; nobody's processes yet.
    pub(super) decoys: Decoys,
    /// This program, sealed, in no file system.
    pub(super) program: File,
    /// This process, as the machine counts: in tier `namespace` it stays outside.
    pub(super) outside: i32,
    /// Where this process keeps the decoys.
    _own: Option<Planting>,
    /// Where the porter does.
    _porters: Option<Errand>,
}

/// Decoys of this process.
#[derive(Debug)]
struct Planting {
    planted: Planted,
    /// Where they lie.
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
        let planting = Planting::make(folder, owner)?;
        Ok(Self {
            decoys: planting.planted.decoys(0, "", 0),
            program: own_program().map_err(|error| StartError::Other {
                message: format!("no program for the probe: {error}: leave more memory free"),
            })?,
            outside: i32::try_from(std::process::id()).unwrap_or(0),
            _own: Some(planting),
            _porters: None,
        })
    }

    /// One that the porter has made, and keeps as long as this lives.
    #[must_use]
    pub fn of_porter(decoys: Decoys, program: File, errand: Errand) -> Self {
        let outside = i32::try_from(std::process::id()).unwrap_or(0);
        Self { decoys, program, outside, _own: None, _porters: Some(errand) }
    }

    /// What the porter hands over of one that it made.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn handed_over(&self) -> io::Result<(&Decoys, OwnedFd)> {
        Ok((&self.decoys, self.program.try_clone()?.into()))
    }
}

// === impl Planting ===

impl Planting {
    fn make(folder: &Path, owner: Option<u32>) -> Result<Self, StartError> {
        let place = folder.join(NAME);
        let volume = |error: io::Error| StartError::Volume {
            message: format!("{}: {error}: check the volume's space and owner", place.display()),
        };
        match fs::remove_dir_all(&place) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(volume(error)),
            _ => {}
        }
        Ok(Self {
            planted: Planted::plant(&place, owner).map_err(volume)?,
            folder: Dir::open(folder)
                .map_err(|error| StartError::Volume { message: chain(&error) })?,
        })
    }
}

impl Drop for Planting {
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
