//! Ways out by the kernel's own interfaces, and its doors that no software needs.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use casemate_raw::{Arg, Call, Ended, Page, call};
use nix::sched::CloneFlags;
use rustix::io::Errno;

use super::attack::{Attack, Defence::*, Run, Target};
use super::shot::{Shot, untried};

pub(super) const fn door(
    id: &'static str,
    does: &'static str,
    source: &'static str,
    run: Run,
) -> Attack {
    Attack::new(Target::Kernel, id, does, source, run)
}

pub(super) const ATTACKS: &[Attack] = &[
    door("ring-setup", "makes calls past the filter", "io_uring_setup(2), CVE-2022-29582", |_| {
        call(Call::IO_URING_SETUP, &mut [Arg::Number(8), Arg::Page(&mut Page::zeroed())]).map(drop)
    })
    .refused(&["ENOSYS"]),
    door("fault-handler", "holds the kernel in its own page faults", "userfaultfd(2)", |_| {
        // UFFD_USER_MODE_ONLY: what an unprivileged process may have.
        call(Call::USERFAULTFD, &mut [Arg::Number(1)]).map(drop)
    }),
    door("event-open", "counts events of its own", "perf_event_open(2), CVE-2013-2094", |_| {
        let mut attributes = Page::of(&1_u32.to_ne_bytes());
        attributes.0[4..8].copy_from_slice(&128_u32.to_ne_bytes());
        attributes.0[8..16].copy_from_slice(&1_u64.to_ne_bytes());
        attributes.0[40..48].copy_from_slice(&(1_u64 | 1 << 5 | 1 << 6).to_ne_bytes());
        let args = &mut [
            Arg::Page(&mut attributes),
            Arg::Number(0),
            Arg::Number(-1),
            Arg::Number(-1),
            Arg::Number(0),
        ];
        call(Call::PERF_EVENT_OPEN, args).map(drop)
    }),
    door("program-load", "loads a map into the kernel's machine", "bpf(2)", |_| {
        let mut attributes = Page::of(&1_u32.to_ne_bytes());
        for (at, value) in [(4, 4_u32), (8, 4), (12, 1)] {
            attributes.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        call(Call::BPF, &mut [Arg::Number(0), Arg::Page(&mut attributes), Arg::Number(64)])
            .map(drop)
    })
    .kernel(&["EPERM"]),
    door("module-remove", "removes a module", "delete_module(2)", |_| {
        call(Call::DELETE_MODULE, &mut [Arg::Text(c"casemate-none"), Arg::Number(0)]).map(drop)
    })
    .kernel(&["EPERM"]),
    door("kernel-log", "reads the kernel's log", "syslog(2)", |_| {
        let args = &mut [Arg::Number(3), Arg::Page(&mut Page::zeroed()), Arg::Number(64)];
        call(Call::SYSLOG, args).map(drop)
    })
    .kernel(&["EPERM"]),
    door("clone3", "starts a process with flags that no filter reads", "clone3(2)", |_| {
        ended(casemate_raw::clone3_child(|| 0))
    })
    .refused(&["ENOSYS"]),
    // ---- Namespaces
    door(
        "unshare-user",
        "becomes root of a user namespace",
        "user_namespaces(7), CVE-2022-0185",
        |_| unshare(CloneFlags::CLONE_NEWUSER),
    ),
    door("unshare-mount", "makes a mount namespace", "mount_namespaces(7)", |_| {
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)
    }),
    door("unshare-pid", "makes a pid namespace", "pid_namespaces(7)", |_| {
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWPID)
    }),
    door("unshare-network", "makes a network namespace", "network_namespaces(7)", |_| {
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)
    }),
    door("unshare-ipc", "makes an IPC namespace", "ipc_namespaces(7)", |_| {
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWIPC)
    }),
    door("unshare-uts", "makes a UTS namespace", "uts_namespaces(7)", |_| {
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWUTS)
    }),
    door(
        "unshare-cgroup",
        "makes a control group namespace",
        "cgroup_namespaces(7), CVE-2022-0492",
        |_| unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWCGROUP),
    ),
    door("unshare-time", "makes a time namespace", "time_namespaces(7)", |_| {
        const TIME: CloneFlags = CloneFlags::from_bits_retain(0x80);
        unshare(CloneFlags::CLONE_NEWUSER | TIME)
    }),
    door("clone-user", "starts a process in a user namespace", "clone(2) CLONE_NEWUSER", |_| {
        ended(casemate_raw::clone_child(CloneFlags::CLONE_NEWUSER.bits(), || 0))
    }),
    door("clone-mount", "starts a process in a mount namespace", "clone(2) CLONE_NEWNS", |_| {
        let flags = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS;
        ended(casemate_raw::clone_child(flags.bits(), || 0))
    }),
    door("clone-pid", "starts a process as pid 1", "clone(2) CLONE_NEWPID", |_| {
        let flags = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWPID;
        ended(casemate_raw::clone_child(flags.bits(), || 0))
    }),
    door(
        "clone-network",
        "starts a process in a network namespace",
        "clone(2) CLONE_NEWNET",
        |_| {
            let flags = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET;
            ended(casemate_raw::clone_child(flags.bits(), || 0))
        },
    ),
    door("enter-namespace", "enters a namespace that it made", "setns(2)", |_| {
        nix::sched::unshare(CloneFlags::CLONE_NEWUSER).map_err(|_| Errno::PERM)?;
        let own = File::open("/proc/self/ns/uts")?;
        // Its user namespace does not own this one: EPERM by the kernel. One that it made itself does.
        nix::sched::unshare(CloneFlags::CLONE_NEWUTS)?;
        drop(own);
        let own = File::open("/proc/self/ns/uts")?;
        Ok(nix::sched::setns(own.as_fd(), CloneFlags::CLONE_NEWUTS)?)
    }),
    // ---- Terminals
    door("terminal-type", "types into a terminal", "CVE-2017-5226, TIOCSTI", |shot| {
        terminal(shot, 0x5412, b"\n")
    })
    .by(&[CallRules, FileRules])
    .domain(&["EPERM", "EACCES"]),
    door(
        "terminal-type-wide",
        "hides the request in bits that the kernel drops",
        "CVE-2019-7303",
        |shot| terminal(shot, 0x1_0000_5412, b"\n"),
    )
    .by(&[CallRules, FileRules])
    .domain(&["EPERM", "EACCES"]),
    door("terminal-paste", "pastes into a console", "CVE-2023-28100, TIOCLINUX", |shot| {
        terminal(shot, 0x541c, b"\x03")
    })
    .kernel(&["EPERM", "EACCES"]),
    door("terminal-open", "opens a terminal's master", "pts(4)", |_| {
        File::options().read(true).write(true).open("/dev/ptmx").map(drop)
    })
    .by(&[FileRules])
    .domain(&["EACCES"])
    .own(),
    // ---- Other tables of calls
    #[cfg(target_arch = "x86_64")]
    door(
        "table-i386",
        "makes a call by another architecture's number",
        "CVE-2009-0835, seccomp(2)",
        |_| super::shot::holds(casemate_raw::i386_getpid() > 0, Errno::NOSYS),
    )
    .by(&[Architecture])
    .refused(&["SIGSYS"]),
    #[cfg(target_arch = "x86_64")]
    door("table-x32", "makes a call by its x32 number", "seccomp(2)", |_| {
        casemate_raw::x32_getpid().map(drop)
    })
    .kernel(&["SIGSYS"]),
    // ---- Privileges
    door(
        "setuid-program",
        "runs a program that becomes root",
        "execve(2), no_new_privs",
        setuid_program,
    )
    .by(&[NoNewPrivileges])
    .refused(&["EPERM"])
    .namespace(&["EPERM"]),
    door("core-limit", "lets its programs write their memory to disk", "core(5)", |_| {
        use rustix::process::{Resource, Rlimit};
        let any = Rlimit { current: Some(1 << 20), maximum: Some(1 << 20) };
        Ok(rustix::process::setrlimit(Resource::Core, any)?)
    })
    .by(&[Limit]),
    door("run-memory", "runs a program that is in no file", "memfd_create(2), MITRE T1620", |_| {
        use std::os::fd::AsRawFd as _;
        let file = rustix::fs::memfd_create("run", rustix::fs::MemfdFlags::empty())?;
        io::copy(&mut File::open("/bin/true")?, &mut File::from(file.try_clone()?))?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        std::process::Command::new(path).status().map(drop)
    })
    .leaks_always(),
    door(
        "own-memory-write",
        "writes its own memory past its protection",
        "proc_pid_mem(5)",
        |_| File::options().write(true).open("/proc/self/mem").map(drop),
    )
    .by(&[FileRules])
    .refused(&["EACCES"]),
];

fn unshare(flags: CloneFlags) -> io::Result<()> {
    Ok(nix::sched::unshare(flags)?)
}

pub(super) fn ended(how: io::Result<Ended>) -> io::Result<()> {
    match how? {
        Ended::Code(0) => Ok(()),
        Ended::Code(errno) => Err(io::Error::from_raw_os_error(errno.into())),
        Ended::Signal(_) => Err(untried("a signal ended it")),
    }
}

/// On a terminal of its own, where it gets one; else on its descriptor 0, where the filter answers before the kernel
/// looks at what it is.
fn terminal(_shot: &Shot<'_>, request: i64, bytes: &[u8]) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;
    let master =
        rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY);
    let slave = master.map_err(io::Error::from).and_then(|master| {
        rustix::pty::unlockpt(&master)?;
        let name = rustix::pty::ptsname(&master, Vec::new())?;
        // Its session's first terminal becomes its controlling one: TIOCSTI asks for that.
        let _ = rustix::process::setsid();
        let path = Path::new(std::ffi::OsStr::new(name.to_str().unwrap_or_default())).to_owned();
        Ok((master, File::options().read(true).write(true).open(path)?))
    });
    let fd = slave.as_ref().map_or(0, |(_, slave)| slave.as_raw_fd());
    let args = &mut [Arg::Number(fd.into()), Arg::Number(request), Arg::Page(&mut Page::of(bytes))];
    let done = call(Call::IOCTL_TERMINAL, args).map(drop);
    // Closing the master first would hang this process up.
    std::mem::forget(slave);
    done
}

/// Starts one that says its version, and looks whose it was when it has ended: until it is waited for, its ids are there.
fn setuid_program(_shot: &Shot<'_>) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::{Command, Stdio};

    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
    let setuid =
        |path: &&str| fs::metadata(path).is_ok_and(|data| data.permissions().mode() & 0o4000 != 0);
    let program = ["/usr/bin/su", "/bin/su"].into_iter().find(setuid);
    let program = program.ok_or_else(|| untried("no such program"))?;
    let mut child = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let ended =
        waitid(WaitId::Pid(Pid::from_child(&child)), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
    let status = fs::read_to_string(format!("/proc/{}/status", child.id()));
    let _ = child.wait();
    ended?;
    let status = status?;
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    super::shot::holds(ids.split_whitespace().nth(1) == Some("0"), Errno::PERM)
}
