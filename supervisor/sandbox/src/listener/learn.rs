//! What a run would be refused, noted and let through: learning.
//!
//! Not a wall. A process that changes a path behind the reader's back is not noted, and nothing is lost by that: what it does
//! is let through in any case, but for what the Landlock ruleset beside it keeps closed.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;

use casemate_protocol::policy::Access;
use nix::errno::Errno;

use super::notify::{self, Notification};
use super::tries::Asker;
use super::{Attempt, look};
use crate::wall::program::Action;
use crate::wall::{Verdicts, syscalls};

/// Hears what is tried, whether the policy would refuse it or not, while the one who tries waits.
pub trait Recorder: fmt::Debug + Send + Sync {
    /// A path, with all links followed, and what it takes there.
    fn path(&self, path: &Path, access: Access);
    /// Of TCP and UDP.
    fn network(&self, attempt: Attempt);
    /// A call, or a kind of socket, that the policy refuses.
    fn call(&self, name: &'static str, arguments: [u64; 6]);
    /// A call that could not be read.
    fn unread(&self, name: &'static str);
}

/// One listener's thread's own: unix sockets that were made and nothing done with, by thread.
#[derive(Debug, Default)]
pub(super) struct Learner {
    idle: BTreeMap<u32, Vec<[u64; 6]>>,
}

/// By the right to write at a socket's path, from Landlock ABI 9 on (LANDLOCK_ACCESS_FS_RESOLVE_UNIX).
fn restricts_connecting() -> bool {
    crate::landlock_abi().is_ok_and(|abi| abi >= 9)
}

/// Threads whose sockets are remembered.
const THREADS: usize = 1024;

impl Learner {
    pub(super) fn hear(
        &mut self,
        descriptor: &OwnedFd,
        asked: &Notification,
        refused: &Verdicts,
        recorder: &dyn Recorder,
    ) {
        let number = u32::try_from(asked.number).unwrap_or(u32::MAX);
        let name = usize::try_from(number).ok().and_then(syscalls::name).unwrap_or("unknown");
        self.note(name, number, asked, refused, recorder);
        while notify::go_on(descriptor, asked) == Err(Errno::EINTR) {}
    }

    fn note(
        &mut self,
        name: &'static str,
        number: u32,
        asked: &Notification,
        refused: &Verdicts,
        recorder: &dyn Recorder,
    ) {
        let verdict = refused.get(&number).map(|verdict| verdict.of(&asked.arguments));
        if matches!(verdict, Some(Action::Errno(_))) {
            // C libraries look for a name service by such a socket at each start, and nobody misses it.
            if name == "socket" && asked.arguments[0] == u64::from(libc::AF_UNIX.cast_unsigned()) {
                if self.idle.len() < THREADS {
                    self.idle.entry(asked.pid).or_default().push(asked.arguments);
                }
            } else {
                recorder.call(name, asked.arguments);
            }
        }
        let read = match name {
            "socket" | "socketpair" => Ok(()),
            "connect" | "bind" => self.address(name, asked, recorder),
            _ => Asker::of(asked).and_then(|asker| {
                let tries = asker.tries(name, &asked.arguments)?;
                tries.iter().for_each(|(path, access)| recorder.path(path, *access));
                Ok(())
            }),
        };
        if read.is_err() {
            recorder.unread(name);
        }
    }

    fn address(
        &mut self,
        name: &'static str,
        asked: &Notification,
        recorder: &dyn Recorder,
    ) -> std::io::Result<()> {
        if let Some(attempt) = look::at(asked)? {
            recorder.network(attempt);
            return Ok(());
        }
        let asker = Asker::of(asked)?;
        let [_, pointer, length, ..] = asked.arguments;
        let Some(path) = asker.unix(pointer, length)? else { return Ok(()) };
        let binds = name == "bind";
        if binds && let Some(directory) = asker.socket(pointer, length)? {
            recorder.path(&directory, Access::Write);
        }
        let real = path.canonicalize().ok();
        if let Some(real) = real.as_deref().filter(|_| !binds && restricts_connecting()) {
            recorder.path(real, Access::Write);
        }
        // Abstract ones have no path, and are taken as somebody's.
        if binds || path.file_name().is_none() || real.is_some() {
            for arguments in self.idle.remove(&asked.pid).into_iter().flatten() {
                recorder.call("socket", arguments);
            }
        }
        Ok(())
    }
}
