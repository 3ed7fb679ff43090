//! The range that is shot at: decoys of another session, and the attacking program.
//!
//! Made while the machine's own paths are in view and before the supervisor confines itself. Owned by the worker until its
//! wall has been measured; the decoys go with it, by a descriptor, since in tier `namespace` their path is gone by then.
//!
//! Where other agents live beside it (`sharing: user`), none of them may know where a decoy lies: to change its mode would
//! make a wall look better than it is. So it lies in a [`Ground`] of a random name, which is made before any of them is
//! there. Nothing opens or lists the ground itself later, for whoever watches the directory above (inotify(7)) would learn
//! its name.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, chown};
use std::path::{Path, PathBuf};

use casemate_inside::catalogue::{Decoys, Planted};
use casemate_protocol::ids::PlaceId;
use casemate_protocol::worker::StartError;
use casemate_sandbox::beneath::Dir;
use casemate_sandbox::porter::Errand;
use rustix::fs::{MemfdFlags, SealFlags};

use crate::words::chain;

/// How the names of grounds begin in the slot's `run/`.
pub const PREFIX: &str = "range-";

/// Where ranges are made. It goes with this.
#[derive(Debug)]
pub struct Ground {
    /// The slot's `run/`.
    run: Dir,
    /// In it.
    name: String,
    path: PathBuf,
    owner: Option<u32>,
}

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
    /// Where they lie, where nothing else does.
    _ground: Option<Ground>,
}

// === impl Ground ===

impl Ground {
    /// Makes it below `run`, and removes what earlier ones left there. `owner`: whose it and its decoys are to be, where
    /// that is not this process's user.
    ///
    /// # Errors
    /// [`StartError::Volume`].
    pub fn make(run: &Path, owner: Option<u32>) -> Result<Self, StartError> {
        let volume = |error: &dyn std::error::Error| StartError::Volume {
            message: format!(
                "{}: {}: check the volume's space and owner",
                run.display(),
                chain(error)
            ),
        };
        let parent = Dir::open(run).map_err(|error| volume(&error))?;
        for entry in fs::read_dir(run).map_err(|error| volume(&error))?.flatten() {
            let name = entry.file_name();
            if name.to_string_lossy().starts_with(PREFIX) {
                parent.remove_tree(&name).map_err(|error| volume(&error))?;
            }
        }
        let name = format!("{PREFIX}{}", PlaceId::random().as_str());
        let path = run.join(&name);
        DirBuilder::new().mode(0o700).create(&path).map_err(|error| volume(&error))?;
        if let Some(owner) = owner {
            chown(&path, Some(owner), Some(owner)).map_err(|error| volume(&error))?;
        }
        Ok(Self { run: parent, name, path, owner })
    }

    /// Its path, which is told to nobody.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if let Err(error) = self.run.remove_tree(&self.name) {
            tracing::debug!(%error, "the place of the decoys is removed by the next worker");
        }
    }
}

// === impl Range ===

impl Range {
    /// Makes it in a ground of its own.
    ///
    /// # Errors
    /// [`StartError::Volume`] where the files cannot be made, [`StartError::Other`] for the program.
    pub fn make(ground: Ground) -> Result<Self, StartError> {
        let planted = plant(&ground.path, &PlaceId::random(), ground.owner)?;
        Self::of(Planting { planted, _ground: Some(ground) })
    }

    /// Makes it in a ground that was there before any agent was, and that stays, at a place that whoever asks has drawn: a forked process
    /// draws none, for in a static file the random source may be a descriptor that the fork has closed. Its path stays in view as
    /// well.
    ///
    /// # Errors
    /// As [`Self::make`]'s.
    pub fn make_below(ground: &Path, place: &PlaceId) -> Result<Self, StartError> {
        Self::of(Planting { planted: plant(ground, place, None)?, _ground: None })
    }

    fn of(planting: Planting) -> Result<Self, StartError> {
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

fn plant(ground: &Path, place: &PlaceId, owner: Option<u32>) -> Result<Planted, StartError> {
    // Its path is told to nobody, a log included.
    let volume = |error: io::Error| StartError::Volume {
        message: format!("the probe's decoys: {error}: check the volume's space and owner"),
    };
    Planted::plant(&ground.join(place.as_str()), owner).map_err(volume)
}

/// A copy that nobody can change.
fn own_program() -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut copy = File::from(rustix::fs::memfd_create("casemate-probe", flags)?);
    io::copy(&mut File::open("/proc/self/exe")?, &mut copy)?;
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    // EBUSY while somebody in the kernel still has a page of it in hand (fcntl(2)), which on a loaded machine takes a while.
    let mut tries = 0;
    while let Err(error) = rustix::fs::fcntl_add_seals(&copy, seals) {
        tries += 1;
        if error != rustix::io::Errno::BUSY || tries == 50 {
            return Err(error.into());
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    Ok(copy)
}
