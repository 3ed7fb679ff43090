//! Which step failed, and what to do about it.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

/// Why the namespaces are not to be had.
#[derive(Debug, thiserror::Error)]
#[error("{step}{}{}", shown(path), advice.as_ref().map(|text| format!("; {text}")).unwrap_or_default())]
pub struct NamespaceError {
    /// The step that failed.
    pub step: NamespaceStep,
    /// What it was about; empty where the step is about no path.
    pub path: PathBuf,
    /// What to do next, where this machine's settings explain the failure.
    pub advice: Option<String>,
    /// The errno of its system call.
    #[source]
    pub source: io::Error,
}

impl NamespaceError {
    pub(super) fn new(failure: Failure) -> Self {
        let Failure { step, errno, path } = failure;
        let advice = advise(step, errno, &Settings::of_this_machine()).map(str::to_owned);
        Self { step, path, advice, source: errno.into() }
    }
}

fn shown(path: &Path) -> String {
    if path.as_os_str().is_empty() { String::new() } else { format!(" {}", path.display()) }
}

/// A failure as it crosses from one process to the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) step: NamespaceStep,
    pub(super) errno: Errno,
    pub(super) path: PathBuf,
}

impl NamespaceStep {
    pub(super) fn failed(self, errno: Errno) -> Failure {
        Failure { step: self, errno, path: PathBuf::new() }
    }

    pub(super) fn failed_at(self, path: &Path, errno: Errno) -> Failure {
        Failure { step: self, errno, path: path.to_owned() }
    }

    /// For `map_err`.
    pub(super) fn at(self, path: &Path) -> impl FnOnce(Errno) -> Failure {
        move |errno| self.failed_at(path, errno)
    }
}

macro_rules! steps {
    ($($(#[$doc:meta])* $name:ident = $words:literal,)*) => {
        /// The steps, in the order in which they are taken.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum NamespaceStep { $($(#[$doc])* $name,)* }

        impl NamespaceStep {
            const ALL: &[Self] = &[$(Self::$name,)*];
        }

        impl fmt::Display for NamespaceStep {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$name => $words,)* })
            }
        }
    };
}

steps! {
    /// This process has threads already.
    Threads = "namespaces must be entered before any thread is started",
    /// Root without a dedicated uid for the worker.
    HostUid = "a worker started by root needs a dedicated unprivileged host uid in its configuration",
    /// A bind's source cannot be looked at.
    Source = "cannot find what to show inside:",
    /// fork(2) or the socket between the two sides.
    Fork = "cannot fork the worker",
    /// unshare(2).
    Unshare = "cannot create user, mount, pid, ipc and uts namespaces",
    /// `/proc/PID/setgroups`.
    Setgroups = "cannot forbid setgroups in the user namespace",
    /// `/proc/PID/uid_map`.
    UidMap = "cannot map the user id",
    /// `/proc/PID/gid_map`.
    GidMap = "cannot map the group id",
    /// setsid(2).
    Setsid = "cannot start a session",
    /// Mount propagation off.
    Private = "cannot make the mounts private",
    /// A tmpfs for the new root.
    RootTmpfs = "cannot mount a tmpfs",
    /// Attaching it somewhere.
    Staging = "cannot attach the new root",
    /// Copying a source's mounts.
    Copy = "cannot copy the mounts of",
    /// Making them read-only, nosuid, nodev.
    Attributes = "cannot restrict the mount of",
    /// A directory or file to mount on.
    Target = "cannot create the mount point",
    /// move_mount(2).
    Attach = "cannot mount at",
    /// A symbolic link of the root.
    Link = "cannot create the symbolic link",
    /// A new proc.
    Proc = "cannot mount a new proc",
    /// Parts of it read-only or hidden.
    ProcMask = "cannot hide",
    /// A device by bind.
    Device = "cannot show the device",
    /// A new devpts.
    Devpts = "cannot mount a new devpts",
    /// A new /dev/shm.
    Shm = "cannot mount a new /dev/shm",
    /// pivot_root(2).
    Pivot = "cannot change the root",
    /// The old root away.
    Detach = "cannot detach the old root",
    /// The new root read-only.
    ReadOnlyRoot = "cannot make the new root read-only",
    /// sethostname(2).
    Hostname = "cannot set the host name",
    /// The process that takes away what is shown for a while.
    Keeper = "cannot fork the keeper of what is shown for a while",
    /// Becoming the inside user.
    Identity = "cannot become the inside user",
    /// Capabilities and no_new_privs.
    Privileges = "cannot drop the privileges that came with the user namespace",
    /// PR_SET_PDEATHSIG.
    ParentDeath = "cannot tie the worker's life to its launcher's",
    /// The other side is gone without a word.
    Lost = "the other side of the start ended without a word",
}

impl NamespaceStep {
    pub(super) fn from_wire(number: u32) -> Self {
        Self::ALL.iter().copied().find(|step| *step as u32 == number).unwrap_or(Self::Lost)
    }
}

/// This machine's settings that forbid user namespaces to ordinary users; `None` where it has no such setting.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Ubuntu 23.10 and later.
    apparmor_restricts: Option<u64>,
    /// Debian before 11 and some hardened kernels.
    unprivileged_clone: Option<u64>,
    max_user_namespaces: Option<u64>,
}

impl Settings {
    pub(crate) fn of_this_machine() -> Self {
        let number = |path| fs::read_to_string(path).ok()?.trim().parse().ok();
        Self {
            apparmor_restricts: number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
            unprivileged_clone: number("/proc/sys/kernel/unprivileged_userns_clone"),
            max_user_namespaces: number("/proc/sys/user/max_user_namespaces"),
        }
    }
}

/// What to do next. Pure.
pub(crate) fn advise(
    step: NamespaceStep,
    errno: Errno,
    settings: &Settings,
) -> Option<&'static str> {
    use NamespaceStep as S;
    let refused = matches!(errno, Errno::EPERM | Errno::EACCES);
    let userns = matches!(
        step,
        S::Unshare
            | S::UidMap
            | S::GidMap
            | S::Setgroups
            | S::Private
            | S::RootTmpfs
            | S::Staging
            | S::Copy
    );
    if userns && settings.max_user_namespaces == Some(0) {
        return Some("user namespaces are switched off: sysctl user.max_user_namespaces=10000");
    }
    if userns && refused && settings.unprivileged_clone == Some(0) {
        return Some(
            "ordinary users may not make user namespaces here: sysctl kernel.unprivileged_userns_clone=1",
        );
    }
    if userns && refused && settings.apparmor_restricts == Some(1) {
        return Some(
            "AppArmor restricts user namespaces here: give casemate-supervisor a profile with `userns,` in /etc/apparmor.d, \
             or sysctl kernel.apparmor_restrict_unprivileged_userns=0",
        );
    }
    match step {
        S::Unshare if errno == Errno::ENOSPC => {
            Some("too many namespaces: raise the sysctl user.max_user_namespaces and its siblings")
        }
        S::Unshare if refused => {
            Some("a seccomp filter or a container runtime forbids them: choose tier domain here")
        }
        S::Unshare if errno == Errno::EINVAL => {
            Some("this kernel has no user namespaces (CONFIG_USER_NS): choose tier domain here")
        }
        S::Proc if refused => Some(
            "the container that this runs in hides parts of its own /proc: start it with an unmasked one, or choose tier domain",
        ),
        S::Source | S::Copy if errno == Errno::ENOENT => {
            Some("create it or take it out of the configuration")
        }
        S::Target if errno == Errno::EROFS => {
            Some("it lies below something that is shown as it is: create it there first")
        }
        S::Device if refused => Some("this /dev is mounted nodev: choose tier domain here"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_names_the_setting_that_forbids_it() {
        let none = Settings::default();
        let ubuntu = Settings { apparmor_restricts: Some(1), ..Settings::default() };
        let debian = Settings { unprivileged_clone: Some(0), ..Settings::default() };
        let off = Settings { max_user_namespaces: Some(0), ..Settings::default() };
        let advice = |step, errno, settings| advise(step, errno, settings).unwrap_or("nothing");
        use NamespaceStep as S;
        assert!(
            advice(S::Private, Errno::EACCES, &ubuntu)
                .contains("kernel.apparmor_restrict_unprivileged_userns=0")
        );
        assert!(advice(S::UidMap, Errno::EPERM, &ubuntu).contains("profile"));
        assert!(
            advice(S::Unshare, Errno::EPERM, &debian)
                .contains("kernel.unprivileged_userns_clone=1")
        );
        assert!(advice(S::Unshare, Errno::ENOSPC, &off).contains("user.max_user_namespaces=10000"));
        assert!(advice(S::Unshare, Errno::EPERM, &none).contains("tier domain"));
        assert_eq!(advice(S::Pivot, Errno::EPERM, &ubuntu), "nothing");
    }

    #[test]
    fn every_step_survives_the_wire() {
        for step in NamespaceStep::ALL {
            assert_eq!(NamespaceStep::from_wire(*step as u32), *step);
        }
        assert_eq!(NamespaceStep::from_wire(9999), NamespaceStep::Lost);
    }

    #[test]
    fn the_text_has_step_path_and_advice() {
        let path = Path::new("/no/such");
        let error = NamespaceError::new(NamespaceStep::Copy.failed_at(path, Errno::ENOENT));
        assert_eq!(
            error.to_string(),
            "cannot copy the mounts of /no/such; create it or take it out of the configuration"
        );
    }
}
