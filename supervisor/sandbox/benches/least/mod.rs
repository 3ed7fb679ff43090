//! The least wall there is, as a C programmer would build it by hand: one Landlock domain of eight paths, two ports and both scopes, and a
//! filter of 58 instructions that refuses fifty calls from front to back.
// Each benchmark uses its part.
#![allow(dead_code, clippy::unwrap_used, reason = "a benchmark that cannot go on ends there")]

use std::os::fd::OwnedFd;
use std::path::Path;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, NetPort, PathBeneath,
    PathFd, Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, Scope,
};

/// The domain's ruleset, opened once and to be enforced in each child.
pub(crate) fn ruleset(root: &Path, more: &Path) -> std::io::Result<OwnedFd> {
    let created: Option<OwnedFd> = created(root, more)?.into();
    Ok(created.unwrap())
}

/// This thread's, for good: eight paths, two ports, both scopes; one domain.
pub(crate) fn enclose(
    root: &Path,
    more: &Path,
    filter: &[libc::sock_filter],
) -> std::io::Result<()> {
    // It sets no_new_privs as well.
    created(root, more)?.restrict_self().map_err(failed)?;
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).unwrap(),
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: `program` describes a live slice; the kernel copies it.
    let set = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
    };
    if set < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

fn failed(error: landlock::RulesetError) -> std::io::Error {
    std::io::Error::other(error)
}

fn created(root: &Path, more: &Path) -> std::io::Result<RulesetCreated> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V5))
        .and_then(|ruleset| ruleset.handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp))
        .and_then(|ruleset| ruleset.scope(Scope::Signal | Scope::AbstractUnixSocket))
        .and_then(Ruleset::create)
        .map_err(failed)?;
    let read = AccessFs::from_read(ABI::V5);
    let all = AccessFs::from_all(ABI::V5);
    for (path, access) in [
        (Path::new("/usr"), read),
        (Path::new("/etc"), read),
        (Path::new("/proc"), read),
        (Path::new("/dev"), read | AccessFs::WriteFile | AccessFs::IoctlDev),
        (more, read),
        (&root.join("program"), read),
        (&root.join("work"), all),
        (&root.join("home"), all),
    ] {
        let path = PathFd::new(path).map_err(std::io::Error::other)?;
        ruleset = ruleset.add_rule(PathBeneath::new(path, access)).map_err(failed)?;
    }
    for port in [80, 443] {
        ruleset = ruleset.add_rule(NetPort::new(port, AccessNet::ConnectTcp)).map_err(failed)?;
    }
    Ok(ruleset)
}

/// The architecture, the x32 bit where there is one, then one comparison for each of fifty calls.
pub(crate) fn filter() -> Vec<libc::sock_filter> {
    const REFUSED: [&str; 50] = [
        "ptrace",
        "process_vm_readv",
        "process_vm_writev",
        "bpf",
        "perf_event_open",
        "userfaultfd",
        "keyctl",
        "add_key",
        "request_key",
        "mount",
        "umount2",
        "pivot_root",
        "move_mount",
        "open_tree",
        "fsopen",
        "fsconfig",
        "fsmount",
        "fspick",
        "mount_setattr",
        "setns",
        "unshare",
        "open_by_handle_at",
        "name_to_handle_at",
        "kexec_load",
        "kexec_file_load",
        "init_module",
        "finit_module",
        "delete_module",
        "io_uring_setup",
        "io_uring_enter",
        "io_uring_register",
        "reboot",
        "swapon",
        "swapoff",
        "acct",
        "quotactl",
        "settimeofday",
        "clock_settime",
        "adjtimex",
        "clock_adjtime",
        "sethostname",
        "setdomainname",
        "syslog",
        "lookup_dcookie",
        "pidfd_getfd",
        "vhangup",
        "chroot",
        "personality",
        "kcmp",
        "fanotify_init",
    ];
    const EPERM: u32 = libc::SECCOMP_RET_ERRNO | 1;
    let architecture = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = vec![
        step(0x20, 0, 0, 4),
        step(0x15, 1, 0, architecture),
        step(0x06, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
        step(0x20, 0, 0, 0),
        step(0x35, 0, 1, 0x4000_0000),
        step(0x06, 0, 0, EPERM),
    ];
    for (at, name) in (0_u8..).zip(REFUSED) {
        let number = casemate_sandbox::syscall_number(name).unwrap();
        filter.push(step(0x15, 50 - at, 0, u32::try_from(number).unwrap()));
    }
    filter.push(step(0x06, 0, 0, libc::SECCOMP_RET_ALLOW));
    filter.push(step(0x06, 0, 0, EPERM));
    filter
}
