//! On what belongs to the machine or the user as a whole, and on what the spawner might have left open.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::attack::{Attack, Defence::*, Run, Target};
use super::procfs::{list, open};
use super::shot::{Shot, holds};

const fn machine(id: &'static str, does: &'static str, source: &'static str, run: Run) -> Attack {
    Attack::new(Target::Machine, id, does, source, run)
        .by(&[FileRules])
        .domain(&["EACCES"])
        .namespace(&["ENOENT"])
}

pub(super) const ATTACKS: &[Attack] = &[
    machine(
        "temporary-plant",
        "plants a file where everybody's programs write",
        "CWE-377",
        |shot| plant(shot, "/var/tmp"),
    )
    .own(),
    machine("temporary-list", "lists what everybody's programs write", "CWE-377", |_| {
        fs::read_dir("/var/tmp").map(drop)
    })
    .own(),
    machine("log-list", "lists the machine's logs", "hier(7)", |_| {
        fs::read_dir("/var/log").map(drop)
    }),
    machine("run-list", "lists the sockets of daemons", "hier(7)", |_| {
        fs::read_dir("/run").map(drop)
    })
    .namespace(&["ENOENT", "EACCES"]),
    machine("home-list", "lists who has a home", "hier(7)", |_| fs::read_dir("/home").map(drop))
        .namespace(&["EACCES", "ENOENT"]),
    machine("root-list", "lists the root", "hier(7)", |_| fs::read_dir("/").map(drop))
        .namespace(&["EACCES"]),
    machine("device-list", "lists devices", "hier(7)", |_| fs::read_dir("/dev").map(drop))
        .namespace(&["EACCES"]),
    machine("terminal-list", "lists everybody's terminals", "pts(4)", |_| {
        fs::read_dir("/dev/pts").map(drop)
    })
    .own(),
    machine("sys-devices", "lists the machine's block devices", "sysfs(5)", |_| list("/sys/block")),
    machine("sys-network", "lists the machine's networks", "sysfs(5)", |_| list("/sys/class/net")),
    machine("sys-modules", "lists the kernel's modules", "sysfs(5)", |_| list("/sys/module")),
    machine("log-device", "reads the kernel's log device", "dmesg(1)", |_| open("/dev/kmsg"))
        .kernel(&["EACCES", "EPERM", "ENOENT"]),
    machine("autofs-device", "opens a device that mounts", "autofs", |_| open("/dev/autofs")),
    machine(
        "own-oom-score",
        "makes itself the last that the memory killer takes",
        "proc_pid_oom_score_adj(5)",
        |_| File::options().write(true).open("/proc/self/oom_score_adj").map(drop),
    )
    .namespace(&["EACCES"]),
    machine("own-coredump-filter", "puts more of its memory into its dumps", "core(5)", |_| {
        File::options().write(true).open("/proc/self/coredump_filter").map(drop)
    })
    .namespace(&["EACCES"]),
    machine("own-autogroup", "raises its own share of the processor", "sched(7)", |_| {
        File::options().write(true).open("/proc/self/autogroup").map(drop)
    })
    .namespace(&["EACCES"]),
    machine("own-id-map", "writes its own map of users", "user_namespaces(7)", |_| {
        File::options().write(true).open("/proc/self/uid_map").map(drop)
    })
    .namespace(&["EACCES"]),
    machine(
        "own-descriptor",
        "goes back into a descriptor that it inherited",
        "CVE-2024-21626",
        inherited,
    )
    .by(&[CleanStart])
    .refused(&["EBADF"]),
    machine(
        "own-directory",
        "goes up from a directory that it inherited",
        "CVE-2024-21626",
        |shot| {
            let own = std::env::current_dir()?;
            holds(own.starts_with(shot.tree("")), Errno::NOENT)
        },
    )
    .by(&[CleanStart])
    .refused(&["ENOENT"]),
    machine(
        "own-variable",
        "finds what the supervisor was told in its variables",
        "CWE-526",
        |_| {
            let handed = std::env::vars_os().any(|(name, _)| name == "CASEMATE_DECOY");
            holds(handed, Errno::NOENT)
        },
    )
    .by(&[CleanStart])
    .refused(&["ENOENT"]),
    machine(
        "mounts",
        "reads where on the machine its folders come from",
        "proc_pid_mountinfo(5)",
        |_| open("/proc/self/mountinfo"),
    )
    .leaks_always(),
    machine("processes", "lists the machine's processes", "proc(5)", |_| {
        // In a pid namespace of the session's own there are its own processes only.
        list("/proc")
    })
    .leaks()
    .own(),
    machine(
        "control-group",
        "moves itself into another control group",
        "CVE-2022-0492, cgroups(7)",
        |_| File::options().write(true).open("/sys/fs/cgroup/cgroup.procs").map(drop),
    )
    .kernel(&["EACCES", "ENOENT"]),
    machine("core-pattern", "names the program that gets every crash", "core(5)", |_| {
        File::options().write(true).open("/proc/sys/kernel/core_pattern").map(drop)
    })
    .kernel(&["EACCES", "EROFS"]),
    machine("disk-device", "opens a disk", "CVE-2020-13401", |_| open("/dev/loop0"))
        .kernel(&["EACCES", "ENOENT"]),
];

fn plant(shot: &Shot<'_>, folder: &str) -> io::Result<()> {
    let file: PathBuf = Path::new(folder).join(format!("{}-planted", shot.decoys.name));
    File::create_new(&file)?;
    fs::remove_file(file)
}

/// Any descriptor behind the three that is not this process's own.
fn inherited(_shot: &Shot<'_>) -> io::Result<()> {
    let listing = fs::read_dir("/proc/self/fd")?;
    for entry in listing.flatten() {
        let number: Option<i32> = entry.file_name().to_str().and_then(|name| name.parse().ok());
        // The listing's own descriptor leads to this very folder of proc.
        let leads = fs::read_link(entry.path()).unwrap_or_default();
        if number.is_some_and(|number| number > 2) && !leads.starts_with("/proc/") {
            return Ok(());
        }
    }
    Err(Errno::BADF.into())
}
