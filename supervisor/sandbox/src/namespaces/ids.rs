//! Who the worker is, inside and outside (user_namespaces(7)).

use std::fs;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{Gid, Pid, Uid};

use super::error::{Failure, NamespaceStep as Step};
use super::plan::Plan;

/// The id maps of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ids {
    /// An ordinary user can map exactly itself: the worker's kernel uid is the user's own.
    Own { inside: u32, uid: u32, gid: u32 },
    /// Root maps itself for the mounts and a dedicated unprivileged uid for the worker, which then has nothing of root's.
    Dedicated { inside: u32, host: u32 },
}

impl Ids {
    pub(super) fn of(plan: &Plan, uid: Uid, gid: Gid) -> Result<Self, Failure> {
        let inside = plan.inside_uid;
        match plan.host_uid {
            _ if !uid.is_root() => Ok(Self::Own { inside, uid: uid.as_raw(), gid: gid.as_raw() }),
            Some(host) if host != 0 && inside != 0 => Ok(Self::Dedicated { inside, host }),
            _ => Err(Step::HostUid.failed(Errno::EINVAL)),
        }
    }

    fn uid_map(self) -> String {
        match self {
            Self::Own { inside, uid, .. } => format!("{inside} {uid} 1\n"),
            Self::Dedicated { inside, host } => format!("0 0 1\n{inside} {host} 1\n"),
        }
    }

    fn gid_map(self) -> String {
        match self {
            Self::Own { inside, gid, .. } => format!("{inside} {gid} 1\n"),
            Self::Dedicated { inside, host } => format!("0 0 1\n{inside} {host} 1\n"),
        }
    }

    /// Writes the maps of a process that has just made its user namespace. Runs outside of it.
    pub(super) fn write(self, pid: Pid) -> Result<(), Failure> {
        let base = PathBuf::from(format!("/proc/{pid}"));
        if let Self::Own { .. } = self {
            // Dropping groups could win access that a group denies, so the kernel wants it forbidden first.
            put(&base.join("setgroups"), "deny", Step::Setgroups)?;
        }
        put(&base.join("uid_map"), &self.uid_map(), Step::UidMap)?;
        put(&base.join("gid_map"), &self.gid_map(), Step::GidMap)
    }

    /// Takes on the inside identity. Runs inside, after the mounts.
    pub(super) fn take_on(self) -> Result<(), Failure> {
        let Self::Dedicated { inside, .. } = self else { return Ok(()) };
        let (uid, gid) = (Uid::from_raw(inside), Gid::from_raw(inside));
        nix::unistd::setgroups(&[])
            .and_then(|()| nix::unistd::setresgid(gid, gid, gid))
            .and_then(|()| nix::unistd::setresuid(uid, uid, uid))
            .map_err(|errno| Step::Identity.failed(errno))
    }
}

/// One write(2): the kernel accepts a map only whole.
fn put(path: &Path, text: &str, step: Step) -> Result<(), Failure> {
    fs::write(path, text)
        .map_err(|error| step.failed(Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(host_uid: Option<u32>) -> Plan {
        Plan { host_uid, inside_uid: 1000, binds: Vec::new(), hostname: None, withdrawn: None }
    }

    #[test]
    fn an_ordinary_user_maps_itself_alone() {
        let ids = Ids::of(&plan(Some(5)), Uid::from_raw(1234), Gid::from_raw(99)).unwrap();
        assert_eq!((ids.uid_map(), ids.gid_map()), ("1000 1234 1\n".into(), "1000 99 1\n".into()));
    }

    #[test]
    fn root_maps_a_dedicated_user_and_never_itself_as_the_worker() {
        let root = (Uid::from_raw(0), Gid::from_raw(0));
        let ids = Ids::of(&plan(Some(70_000)), root.0, root.1).unwrap();
        assert_eq!(ids.uid_map(), "0 0 1\n1000 70000 1\n");
        for wrong in [None, Some(0)] {
            assert_eq!(Ids::of(&plan(wrong), root.0, root.1).unwrap_err().step, Step::HostUid);
        }
    }
}
