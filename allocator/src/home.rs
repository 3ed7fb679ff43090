//! The home directory: its layout, its modes, the lock of the one allocator, the discovery file and the signing key.
//!
//! Owns nothing beyond a call but [`UpLock`], which is held for the allocator's life. Everything below is private to
//! its owner: the home itself is mode 0700 and that is checked, not assumed. Where the allocator is root, each slot's
//! worker is a user of its own who has to get to its directory: then the home and `slots` may be searched (0711), never
//! listed, and everything else in the home is 0600 or 0700.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::time::Duration;

use casemate_protocol::api::Endpoint;
use casemate_protocol::ids::{SessionId, SlotId};
use casemate_protocol::token::SigningSecret;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, Flock, FlockArg, OFlag};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat};

/// A client holds the allocator's lock for microseconds.
const LOCK_TRIES: u32 = 20;
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

/// Why the home cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// A file or directory could not be read or made.
    #[error("cannot use {path}: check that it is yours and that its disk has room")]
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
pub(crate) struct Home(PathBuf);

/// Held by the one allocator of a home, for its life.
#[derive(Debug)]
pub(crate) struct UpLock(#[expect(dead_code, reason = "dropping it unlocks")] Flock<File>);

fn io_at(path: &Path) -> impl FnOnce(io::Error) -> HomeError + '_ {
    move |source| HomeError::Io { path: path.to_owned(), source }
}

fn private_dir(path: &Path) -> Result<(), HomeError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io_at(path))
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
        let home = Self(path);
        let mode = Permissions::from_mode(above_slots());
        std::fs::set_permissions(&home.0, mode).map_err(io_at(&home.0))?;
        let private = ["run", "keys", "profiles", "values"].map(|dir| (dir, 0o700));
        for (dir, mode) in private.into_iter().chain([("slots", above_slots())]) {
            let dir = home.0.join(dir);
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

    /// The home itself, absolute and resolved.
    #[must_use]
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Checks that users who are neither owner nor in the group of anything above can get to the slots: each directory on the
    /// way may be searched by others.
    ///
    /// # Errors
    /// [`HomeError::Unreachable`] naming the first that may not.
    pub(crate) fn check_the_way(&self) -> Result<(), HomeError> {
        let above: Vec<&Path> = self.0.ancestors().skip(1).collect();
        for directory in above.into_iter().rev() {
            let mode = directory.metadata().map_err(io_at(directory))?.mode() & 0o7777;
            if mode & 0o001 == 0 {
                let (home, closed) = (self.0.clone(), directory.to_owned());
                return Err(HomeError::Unreachable { home, closed, mode });
            }
        }
        Ok(())
    }

    /// The discovery file.
    #[must_use]
    pub(crate) fn discovery(&self) -> PathBuf {
        self.0.join("run/allocator.json")
    }

    /// The store.
    #[must_use]
    pub(crate) fn store(&self) -> PathBuf {
        self.0.join("store.redb")
    }

    /// Profiles besides the built-in one.
    #[must_use]
    pub(crate) fn profiles(&self) -> PathBuf {
        self.0.join("profiles")
    }

    /// What agents are handed by `--env`, a file a session.
    #[must_use]
    pub(crate) fn values(&self) -> PathBuf {
        self.0.join("values")
    }

    /// The newest durable line of the audit log.
    #[must_use]
    pub(crate) fn audit_head(&self) -> PathBuf {
        self.0.join("audit.head")
    }

    /// The audit logs of deleted sessions, a directory a session.
    #[must_use]
    pub(crate) fn kept_logs(&self) -> PathBuf {
        self.0.join("audit")
    }

    /// All slots.
    #[must_use]
    pub(crate) fn slots(&self) -> PathBuf {
        self.0.join("slots")
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

    /// A session's worktree on this machine's own paths.
    #[must_use]
    pub(crate) fn worktree(&self, slot: &SlotId, session: &SessionId) -> PathBuf {
        self.slot(slot).join("sessions").join(session.as_str()).join("work")
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

    /// Takes the home for this process.
    ///
    /// # Errors
    /// [`HomeError::AlreadyRunning`] where another allocator lives.
    pub(crate) fn lock(&self) -> Result<UpLock, HomeError> {
        let path = self.0.join("run/up.lock");
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
            Err((mut file, nix::errno::Errno::EWOULDBLOCK)) => {
                let mut text = String::new();
                file.read_to_string(&mut text).map_err(io_at(&path))?;
                let pid = text.trim().parse().unwrap_or(0);
                return Err(HomeError::AlreadyRunning { home: self.0.clone(), pid });
            }
            Err((_, errno)) => return Err(io_at(&path)(errno.into())),
        };
        lock.set_len(0)
            .and_then(|()| lock.rewind())
            .and_then(|()| writeln!(lock, "{}", std::process::id()))
            .map_err(io_at(&path))?;
        Ok(UpLock(lock))
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

/// Clients try the lock, shared and for a moment, to find out whether the discovery file counts: they are no allocator.
fn lock_soon(mut file: File) -> Result<Flock<File>, (File, nix::errno::Errno)> {
    for _ in 0..LOCK_TRIES {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Err((same, nix::errno::Errno::EWOULDBLOCK)) => file = same,
            outcome => return outcome,
        }
        std::thread::sleep(BETWEEN_TRIES);
    }
    Flock::lock(file, FlockArg::LockExclusiveNonblock)
}

/// Sets the mode of one of this user's files or directories right, with a warning. In tier `domain` an agent can change
/// it by the path, though not look inside, and would otherwise keep the next allocator from starting.
pub(crate) fn mend(path: &Path, mode: u32) -> Result<(), HomeError> {
    let meta = match path.symlink_metadata() {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io_at(path)(error)),
    };
    let found = meta.mode() & 0o7777;
    let is_own = meta.uid() == nix::unistd::geteuid().as_raw();
    // What is not ours is refused where it is used.
    if found == mode || !is_own || !(meta.is_file() || meta.is_dir()) {
        return Ok(());
    }
    // Not through a link that took its place meanwhile.
    fchmodat(AT_FDCWD, path, Mode::from_bits_truncate(mode), FchmodatFlags::NoFollowSymlink)
        .map_err(|errno| io_at(path)(errno.into()))?;
    tracing::warn!(
        path = %path.display(),
        found = format!("{found:o}"),
        set = format!("{mode:o}"),
        "the mode of a private file was changed and is set right: if that was not you, it was an agent in tier domain, \
         or another program of yours; if it was open to others, stop all workers and replace what they may have read"
    );
    Ok(())
}

/// Writes a file of mode 0600 so that a reader, or a crash, sees the old one or the new one.
pub(crate) fn write_private(path: &Path, content: &[u8]) -> Result<(), HomeError> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    let write = || {
        // A left-over of a crash may have any mode.
        match std::fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file =
            OpenOptions::new().create_new(true).write(true).mode(0o600).open(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
    };
    write().map_err(io_at(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_that_others_may_enter_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("home");
        drop(Home::open(&path).unwrap());
        std::fs::set_permissions(&path, Permissions::from_mode(0o750)).unwrap();
        assert!(matches!(Home::open(&path), Err(HomeError::Open { mode: 0o750, .. })));
    }

    #[test]
    fn only_the_way_to_the_slots_may_be_searched_and_only_where_root_gives_them_away() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(&dir.path().join("home")).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
        assert_eq!(mode(home.path()), above_slots());
        assert_eq!(mode(&home.slots()), above_slots());
        assert_eq!(above_slots() == 0o711, nix::unistd::geteuid().is_root());
        for private in ["run", "keys", "profiles", "values"] {
            assert_eq!(mode(&home.path().join(private)), 0o700);
        }
    }

    #[test]
    fn a_closed_directory_above_the_home_is_named() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let set =
            |mode| std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode));
        set(0o711).unwrap();
        let home = Home::open(&dir.path().join("home")).unwrap();
        home.check_the_way().unwrap();
        set(0o710).unwrap();
        let error = home.check_the_way().unwrap_err();
        assert!(error.to_string().contains("--home"), "{error}");
        let HomeError::Unreachable { closed, mode: 0o710, .. } = error else { panic!("{error}") };
        assert_eq!(closed, dir.path().canonicalize().unwrap());
    }

    #[test]
    fn the_second_lock_names_the_first_ones_pid() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(&dir.path().join("home")).unwrap();
        let held = home.lock().unwrap();
        let error = home.lock().unwrap_err();
        assert!(
            matches!(error, HomeError::AlreadyRunning { pid, .. } if pid == std::process::id())
        );
        drop(held);
        home.lock().unwrap();
    }

    #[test]
    fn the_signing_key_stays_and_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(&dir.path().join("home")).unwrap();
        let first = home.signing_secret().unwrap();
        assert_eq!(first.seed(), home.signing_secret().unwrap().seed());
        let path = home.path().join("keys/signing.seed");
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
    }

    /// In tier `domain` an agent can do that much to a path that it knows.
    #[test]
    fn a_signing_keys_mode_is_set_right_and_its_content_is_not_doubted() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(&dir.path().join("home")).unwrap();
        let first = home.signing_secret().unwrap();
        let path = home.path().join("keys/signing.seed");
        for mode in [0o644, 0o000, 0o200, 0o4755, 0o400] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(first.seed(), home.signing_secret().unwrap().seed(), "{mode:o}");
            assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o600, "{mode:o}");
        }
    }

    #[test]
    fn no_mode_of_what_lies_in_it_keeps_a_home_from_opening() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(&dir.path().join("home")).unwrap();
        drop(home.lock().unwrap());
        let seed = home.signing_secret().unwrap().seed();
        std::fs::write(home.store(), "").unwrap();
        let modes = |mode: Option<u32>| {
            [
                "keys/signing.seed",
                "run/up.lock",
                "store.redb",
                "keys",
                "run",
                "profiles",
                "slots",
                "",
            ]
            .map(|name| {
                let path = home.path().join(name);
                if let Some(mode) = mode {
                    std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
                    return 0;
                }
                path.metadata().unwrap().mode() & 0o7777
            })
        };
        modes(Some(0o000));
        let again = Home::open(home.path()).unwrap();
        drop(again.lock().unwrap());
        assert_eq!(again.signing_secret().unwrap().seed(), seed);
        let above = above_slots();
        assert_eq!(modes(None), [0o600, 0o600, 0o600, 0o700, 0o700, 0o700, above, above]);
    }

    #[test]
    fn what_is_no_key_of_this_users_is_refused_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(&dir.path().join("home")).unwrap();
        let path = home.path().join("keys/signing.seed");
        let refused = || matches!(home.signing_secret(), Err(HomeError::Key { .. }));
        for content in [&[7_u8; 31][..], &[7; 33], &[]] {
            std::fs::write(&path, content).unwrap();
            assert!(refused(), "{} bytes", content.len());
            assert_eq!(std::fs::read(&path).unwrap(), content);
        }
        std::fs::remove_file(&path).unwrap();
        let elsewhere = dir.path().join("elsewhere");
        std::fs::write(&elsewhere, [7; 32]).unwrap();
        std::fs::set_permissions(&elsewhere, Permissions::from_mode(0o644)).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert!(refused(), "a link");
        assert_eq!(elsewhere.metadata().unwrap().mode() & 0o777, 0o644);
        if nix::unistd::geteuid().is_root() {
            std::fs::remove_file(&path).unwrap();
            std::fs::rename(&elsewhere, &path).unwrap();
            std::os::unix::fs::chown(&path, Some(1000), Some(1000)).unwrap();
            assert!(refused(), "somebody else's");
        }
    }
}
