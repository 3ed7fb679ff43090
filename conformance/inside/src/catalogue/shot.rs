//! One attack under way: its decoys, its victim, and a place of its own.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::process::Pid;

use super::decoys::Decoys;

/// What an attack is given.
#[derive(Debug)]
pub(crate) struct Shot<'a> {
    pub(super) decoys: &'a Decoys,
    pub(super) id: &'a str,
    /// This run's folder, which the session may write.
    pub(super) own: &'a Path,
}

impl Shot<'_> {
    /// A file that only this attack touches: it may be destroyed.
    pub(crate) fn victim(&self) -> PathBuf {
        self.decoys.victim(self.id)
    }

    /// In the other session's tree.
    pub(crate) fn tree(&self, name: &str) -> PathBuf {
        self.decoys.tree.join(name)
    }

    /// The file that everybody may look at and nobody may destroy.
    pub(crate) fn secret(&self) -> PathBuf {
        self.tree("secret")
    }

    /// A path of the session's own that is not there yet.
    pub(crate) fn own(&self, name: &str) -> PathBuf {
        self.own.join(format!("{}-{name}", self.id))
    }

    /// A folder of the session's own.
    pub(crate) fn own_folder(&self) -> io::Result<PathBuf> {
        let folder = self.own("folder");
        fs::create_dir(&folder)?;
        Ok(folder)
    }

    /// A file of the session's own.
    pub(crate) fn own_file(&self, name: &str) -> io::Result<PathBuf> {
        let file = self.own(name);
        fs::write(&file, "bait")?;
        Ok(file)
    }

    /// The other session's process. In a pid namespace its number may be a process of this very session, which is not
    /// the victim and not to be hurt: ESRCH.
    pub(crate) fn process(&self) -> io::Result<Pid> {
        let pid = pid(self.decoys.process)?;
        match fs::read(format!("/proc/{pid}/cmdline")) {
            Ok(line)
                if self.is_own(pid, &line) || !contains(&line, self.decoys.mark.as_bytes()) =>
            {
                Err(rustix::io::Errno::SRCH.into())
            }
            _ => Ok(pid),
        }
    }

    /// Where an attacker, one of its attacks or the supervisor has the victim's number in a namespace: each has its mark as
    /// well. An attacker's command line is this very process's, up to the part that it tries.
    fn is_own(&self, pid: Pid, line: &[u8]) -> bool {
        const ATTACKER: &[u8] = b"\0probe\0attack\0";
        let own = [Some(rustix::process::getpid()), rustix::process::getppid()];
        own.contains(&Some(pid))
            || contains(line, ATTACKER)
            || self.decoys.process == self.decoys.supervisor
    }

    /// The same by its entry in proc.
    pub(crate) fn process_entry(&self, name: &str) -> io::Result<PathBuf> {
        match self.process() {
            Ok(pid) => entry(pid, name),
            Err(_) => Err(rustix::io::Errno::NOENT.into()),
        }
    }

    pub(crate) fn supervisor(&self) -> io::Result<Pid> {
        pid(self.decoys.supervisor)
    }

    pub(crate) fn supervisor_entry(&self, name: &str) -> io::Result<PathBuf> {
        entry(self.supervisor()?, name)
    }
}

/// An entry of a process in proc. A kernel that is built without it has none of anybody's. Where the mount hides others'
/// (`hidepid`, proc(5)) it names no such path of a process that there is: that is its refusal.
fn entry(pid: Pid, name: &str) -> io::Result<PathBuf> {
    if fs::symlink_metadata(Path::new("/proc/self").join(name)).is_err() {
        return Err(untried("this kernel has no such entry"));
    }
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let exists = || nix::unistd::getsid(Some(super::calls::raw(pid))).is_ok();
    if fs::symlink_metadata(folder.join("stat")).is_err() && exists() {
        return Err(rustix::io::Errno::ACCESS.into());
    }
    Ok(folder.join(name))
}

fn pid(number: i32) -> io::Result<Pid> {
    Pid::from_raw(number).ok_or_else(|| rustix::io::Errno::SRCH.into())
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len().max(1)).any(|window| window == part)
}

/// As a system call wants it.
pub(super) fn text(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// There is nothing on this machine to try it on.
pub(super) fn untried(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, why)
}

/// True is success; else this errno.
pub(super) fn holds(condition: bool, otherwise: rustix::io::Errno) -> io::Result<()> {
    if condition { Ok(()) } else { Err(otherwise.into()) }
}

#[cfg(test)]
mod tests {
    use super::super::{Planted, Victim};
    use super::*;

    #[test]
    fn a_number_of_the_attackers_own_is_not_the_victims() {
        let place = tempfile::tempdir().unwrap();
        let planted = Planted::plant(&place.path().join("tree"), None).unwrap();
        let victim = Victim::start("86399", None).unwrap();
        let (it, own) = (victim.pid(), std::process::id().cast_signed());
        let found = |process, mark, supervisor| {
            let decoys = planted.decoys(process, mark, supervisor);
            let shot = Shot { decoys: &decoys, id: "any", own: place.path() };
            shot.process().map(|pid| pid.as_raw_nonzero().get())
        };
        assert_eq!(found(it, "86399", own).unwrap(), it);
        for (process, mark, supervisor) in [(own, "", it), (it, "86399", it), (it, "another", own)]
        {
            let error = found(process, mark, supervisor).unwrap_err();
            assert_eq!(
                error.raw_os_error(),
                Some(rustix::io::Errno::SRCH.raw_os_error()),
                "{mark}"
            );
        }
    }
}
