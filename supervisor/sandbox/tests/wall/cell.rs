//! A session's places on disk, and threads that are put behind a wall.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use casemate_inside::catalogue::Victim;
use casemate_protocol::policy::{DEVELOPER, Policy};
use casemate_protocol::tier::Tier;
use casemate_sandbox::{Places, Wall};

use super::places::places;

/// Whom the attacker is; this process may be root (CI) or an ordinary user.
const USER: u32 = 1000;

/// A session A (`work`, `home`, `scratch`, `state`) and what it must not touch (`other`).
pub(crate) struct Site {
    _directory: tempfile::TempDir,
    pub(crate) root: PathBuf,
    pub(crate) places: Places,
}

impl Site {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let places = places(&root, Tier::Domain);
        fs::create_dir_all(root.join("other/dir")).unwrap();
        for name in ["state/key", "other/secret", "other/dir/deep", "work/mine"] {
            fs::write(root.join(name), "sentinel").unwrap();
        }
        for name in ["other/program", "work/program"] {
            fs::write(root.join(name), "#!/bin/sh\nexit 0\n").unwrap();
            fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        give(&root);
        Self { _directory: directory, root, places }
    }

    /// With the rules of that tier. Only the rules: the mounts are this machine's.
    pub(crate) fn in_tier(tier: Tier) -> Self {
        let mut site = Self::new();
        site.places.tier = tier;
        site
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Behind the default policy.
    pub(crate) fn confined<T: Send>(&self, attack: impl FnOnce() -> T + Send) -> T {
        confined(&self.wall(), attack)
    }

    pub(crate) fn wall(&self) -> Wall {
        Wall::build(&Policy::parse(DEVELOPER).unwrap(), &self.places).unwrap()
    }
}

/// Runs on a thread of its own, as an ordinary user, without a wall.
pub(crate) fn free<T: Send>(attack: impl FnOnce() -> T + Send) -> T {
    on_a_thread(|| {
        become_user();
        attack()
    })
}

/// Runs on a thread of its own, as an ordinary user, behind a wall.
pub(crate) fn confined<T: Send>(wall: &Wall, attack: impl FnOnce() -> T + Send) -> T {
    on_a_thread(|| {
        become_user();
        enforce(wall);
        attack()
    })
}

/// One at a time: between two calls of `become_user` the whole process cannot read its own /proc.
static TURN: Mutex<()> = Mutex::new(());

fn on_a_thread<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    std::thread::scope(|scope| match scope.spawn(body).join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Puts the calling thread behind a wall, in the order that the spawner uses.
pub(crate) fn enforce(wall: &Wall) {
    call(libc::SYS_prctl, [libc::PR_SET_NO_NEW_PRIVS as u64, 1, 0, 0, 0, 0]).unwrap();
    let fd = wall.ruleset_fd().unwrap().as_raw_fd() as u64;
    call(libc::SYS_landlock_restrict_self, [fd, 0, 0, 0, 0, 0]).unwrap();
    for program in wall.programs() {
        install(program.instructions());
    }
}

pub(crate) fn install(instructions: &[libc::sock_filter]) {
    let program = libc::sock_fprog {
        len: u16::try_from(instructions.len()).unwrap(),
        filter: instructions.as_ptr().cast_mut(),
    };
    let mode = u64::from(libc::SECCOMP_SET_MODE_FILTER);
    call(libc::SYS_seccomp, [mode, 0, &raw const program as u64, 0, 0, 0]).unwrap();
}

/// Raw calls change this thread's ids only; libc's would change the whole process.
fn become_user() {
    if !is_root() {
        return;
    }
    let user = u64::from(USER);
    call(libc::SYS_setgroups, [0; 6]).unwrap();
    call(libc::SYS_setresgid, [user, user, user, 0, 0, 0]).unwrap();
    call(libc::SYS_setresuid, [user, user, user, 0, 0, 0]).unwrap();
    // Changing ids made the process non-dumpable, and /proc/self unreadable with it.
    call(libc::SYS_prctl, [libc::PR_SET_DUMPABLE as u64, 1, 0, 0, 0, 0]).unwrap();
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Hands a tree to the attacker's uid, so that only the wall stands between.
pub(crate) fn give(path: &Path) {
    if is_root() {
        chown(path, Some(USER), Some(USER)).unwrap();
        if path.is_dir() {
            fs::read_dir(path).unwrap().for_each(|entry| give(&entry.unwrap().path()));
        }
    }
}

/// A raw system call.
pub(crate) fn call(number: i64, arguments: [u64; 6]) -> Result<i64, i32> {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: pointers among the arguments are of the caller's live values or null; the calls that the tests make
    // write to nothing else, and those that a wall refuses do nothing.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if result < 0 { Err(errno(&io::Error::last_os_error())) } else { Ok(result) }
}

pub(crate) fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(-1)
}

/// A process of the attacker's uid outside the session.
pub(crate) fn victim() -> Victim {
    Victim::start("600", is_root().then_some(USER)).unwrap()
}

/// Its number, as a raw call takes it.
pub(crate) fn pid(victim: &Victim) -> u64 {
    victim.pid().try_into().unwrap()
}
