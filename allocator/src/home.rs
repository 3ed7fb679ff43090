//! The home directory: its layout, its modes, the discovery file; the lock of the one allocator and the signing key.
//!
//! Owns nothing beyond a call but [`UpLock`], which is held for the allocator's life. Everything below is private to
//! its owner: the home itself is mode 0700 and that is checked, not assumed. Where the allocator is root, each slot's
//! worker is a user of its own who has to get to its directory: then the home and `slots` may be searched (0711), never
//! listed, and everything else in the home is 0600 or 0700.

mod key;
mod lock;
mod private;
#[cfg(test)]
mod tests;

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use casemate_protocol::api::Endpoint;
use casemate_protocol::ids::{PlaceId, SessionId, SlotId};

pub(crate) use lock::UpLock;
use private::{io_at, private_dir};
pub(crate) use private::{mend, write_private};

/// Why the home cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// A file or directory could not be read or made.
    #[error("cannot use {path}; check that it is yours and that its disk has room")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Others may enter it.
    #[error("{path} is open to others (mode {mode:o}); run `chmod 700 {path}`")]
    Open {
        /// The home.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It belongs to somebody else.
    #[error("{path} belongs to user {owner}; choose another home with --home")]
    Foreign {
        /// The home.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// Another allocator lives here.
    #[error("an allocator already runs in {home} (pid {pid}); use it, or stop it first")]
    AlreadyRunning {
        /// The home.
        home: PathBuf,
        /// The other one's process id.
        pid: u32,
    },
    /// The users of the slots cannot get to their slots.
    #[error(
        "{closed} is closed to the users that slots have in tier domain (mode {mode:o}), and so is {home}; choose a home \
         that they can get to with --home, such as /var/lib/casemate"
    )]
    Unreachable {
        /// The home.
        home: PathBuf,
        /// The directory above it that may not be searched by others.
        closed: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The signing key is damaged, or not this user's file.
    #[error("{path} is not a 32-byte key of this user's; stop all workers, then remove it")]
    Key {
        /// The key file.
        path: PathBuf,
    },
}

/// The paths below one home.
#[derive(Debug, Clone)]
pub(crate) struct Home {
    path: PathBuf,
    /// The home of whoever runs this one and throws it away.
    beside: Option<PathBuf>,
}

/// The mode of the directories above the slots.
fn above_slots() -> u32 {
    if nix::unistd::geteuid().is_root() { 0o711 } else { 0o700 }
}

// === impl Home ===

impl Home {
    /// Makes the home where it is missing and checks that it is the caller's and nobody else's.
    ///
    /// # Errors
    /// [`HomeError`]: not makeable, open to others, or another user's.
    pub(crate) fn open(path: &Path) -> Result<Self, HomeError> {
        private_dir(path)?;
        // Resolved once: workers, rules and refusals must all mean the same place.
        let path = path.canonicalize().map_err(io_at(path))?;
        let meta = path.metadata().map_err(io_at(&path))?;
        if meta.uid() != nix::unistd::geteuid().as_raw() {
            return Err(HomeError::Foreign { path, owner: meta.uid() });
        }
        let mode = meta.mode() & 0o7777;
        if mode & 0o777 & !above_slots() != 0 {
            return Err(HomeError::Open { path, mode });
        }
        let home = Self { path, beside: None };
        let mode = Permissions::from_mode(above_slots());
        std::fs::set_permissions(&home.path, mode).map_err(io_at(&home.path))?;
        let private = ["run", "keys", "profiles", "values"].map(|dir| (dir, 0o700));
        for (dir, mode) in private.into_iter().chain([("slots", above_slots())]) {
            let dir = home.path.join(dir);
            if !dir.exists() {
                private_dir(&dir)?;
                let mode = Permissions::from_mode(mode);
                std::fs::set_permissions(&dir, mode).map_err(io_at(&dir))?;
            }
            mend(&dir, mode)?;
        }
        mend(&home.store(), 0o600)?;
        Ok(home)
    }

    /// One that is only looked at: nothing is made, checked or set right.
    pub(crate) fn seen(path: &Path) -> Self {
        Self { path: path.to_owned(), beside: None }
    }

    /// The home itself, absolute and resolved.
    #[must_use]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// With another home, whose keys and sessions are as little for anybody here.
    #[must_use]
    pub(crate) fn beside(mut self, other: Option<PathBuf>) -> Self {
        self.beside = other.map(|other| other.canonicalize().unwrap_or(other));
        self
    }

    /// This home and the one beside it: nothing of them is granted, shown or cloned.
    #[must_use]
    pub(crate) fn closed(&self) -> Vec<PathBuf> {
        std::iter::once(&self.path).chain(&self.beside).cloned().collect()
    }

    /// Checks that users who are neither owner nor in the group of anything above can get to the slots: each directory on the
    /// way may be searched by others.
    ///
    /// # Errors
    /// [`HomeError::Unreachable`] naming the first that may not.
    pub(crate) fn check_the_way(&self) -> Result<(), HomeError> {
        let above: Vec<&Path> = self.path.ancestors().skip(1).collect();
        for directory in above.into_iter().rev() {
            let mode = directory.metadata().map_err(io_at(directory))?.mode() & 0o7777;
            if mode & 0o001 == 0 {
                let (home, closed) = (self.path.clone(), directory.to_owned());
                return Err(HomeError::Unreachable { home, closed, mode });
            }
        }
        Ok(())
    }

    /// The discovery file.
    #[must_use]
    pub(crate) fn discovery(&self) -> PathBuf {
        self.path.join("run/allocator.json")
    }

    /// The store.
    #[must_use]
    pub(crate) fn store(&self) -> PathBuf {
        self.path.join("store.redb")
    }

    /// Profiles besides the built-in one.
    #[must_use]
    pub(crate) fn profiles(&self) -> PathBuf {
        self.path.join("profiles")
    }

    /// What agents are handed by `--env`, a file a session.
    #[must_use]
    pub(crate) fn values(&self) -> PathBuf {
        self.path.join("values")
    }

    /// The newest durable line of the audit log.
    #[must_use]
    pub(crate) fn audit_head(&self) -> PathBuf {
        self.path.join("audit.head")
    }

    /// The audit logs of deleted sessions, a directory a session.
    #[must_use]
    pub(crate) fn kept_logs(&self) -> PathBuf {
        self.path.join("audit")
    }

    /// All slots.
    #[must_use]
    pub(crate) fn slots(&self) -> PathBuf {
        self.path.join("slots")
    }

    /// One slot's directory.
    #[must_use]
    pub(crate) fn slot(&self, slot: &SlotId) -> PathBuf {
        self.slots().join(slot.as_str())
    }

    /// The lock that a slot's live worker holds.
    #[must_use]
    pub(crate) fn slot_lock(&self, slot: &SlotId) -> PathBuf {
        self.slot(slot).join("run/lock")
    }

    /// The log of a slot's workers.
    #[must_use]
    pub(crate) fn slot_log(&self, slot: &SlotId) -> PathBuf {
        self.slot(slot).join("run/worker.log")
    }

    /// A session's trees on this machine's own paths, where it has its slot to itself.
    #[must_use]
    pub(crate) fn trees(&self, slot: &SlotId, session: &SessionId) -> PathBuf {
        self.slot(slot).join("sessions").join(session.as_str())
    }

    /// Its worktree.
    #[must_use]
    pub(crate) fn worktree(&self, slot: &SlotId, session: &SessionId) -> PathBuf {
        self.trees(slot, session).join("work")
    }

    /// Where a session that shares its slot has its trees: at a random place, which its worker has written down. `None` before
    /// that.
    ///
    /// # Errors
    /// Reading; what is no place is [`io::ErrorKind::InvalidData`].
    pub(crate) fn place(&self, slot: &SlotId, session: &SessionId) -> io::Result<Option<PathBuf>> {
        let slot = self.slot(slot);
        match std::fs::read_to_string(slot.join("state").join(session.as_str()).join("place")) {
            // The power was lost before it was on the disk, and so before there was anything in it.
            Ok(text) if text.bytes().all(|byte| byte == 0) => Ok(None),
            Ok(text) => {
                let place: PlaceId = text
                    .parse()
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                Ok(Some(slot.join("sessions").join(place.as_str())))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a slot's directories; with a user id, those that the worker writes are that user's.
    ///
    /// # Errors
    /// [`HomeError::Io`].
    pub(crate) fn make_slot(&self, slot: &SlotId, uid: Option<u32>) -> Result<(), HomeError> {
        let dir = self.slot(slot);
        private_dir(&dir)?;
        for part in ["sessions", "state", "run"] {
            let part = dir.join(part);
            private_dir(&part)?;
            if uid.is_some() {
                std::os::unix::fs::chown(&part, uid, uid).map_err(io_at(&part))?;
            }
        }
        if uid.is_some() {
            std::os::unix::fs::chown(&dir, uid, uid).map_err(io_at(&dir))?;
        }
        Ok(())
    }

    /// Publishes the endpoint: whole or not at all, and readable by the owner only.
    ///
    /// # Errors
    /// [`HomeError::Io`].
    pub(crate) fn publish(&self, endpoint: &Endpoint) -> Result<(), HomeError> {
        let text = serde_json::to_vec(endpoint).expect("an endpoint is plain data");
        write_private(&self.discovery(), &text)
    }

    /// Takes the endpoint back.
    pub(crate) fn unpublish(&self) {
        let _ = std::fs::remove_file(self.discovery());
    }
}
