//! Ways out by the kernel's own interfaces: namespaces, mounts, devices, socket families that no wall watches.

use std::fs::File;
use std::io;

use rustix::fs::{CWD, FileType, Mode};
use rustix::mount::{FsOpenFlags, MountFlags, OpenTreeFlags, UnmountFlags};
use rustix::net::{AddressFamily, Protocol, RawProtocol, SocketFlags, SocketType};

use crate::attempt::Report;
use crate::files;

/// What changes this process for good where it works comes last.
pub(crate) fn all(report: &mut Report<'_>) {
    sockets(report);
    devices(report);
    mounts(report);
    namespaces(report);
}

fn namespaces(report: &mut Report<'_>) {
    use nix::sched::CloneFlags;
    for (name, flag) in [
        ("user", CloneFlags::CLONE_NEWUSER),
        ("mount", CloneFlags::CLONE_NEWNS),
        ("pid", CloneFlags::CLONE_NEWPID),
        ("network", CloneFlags::CLONE_NEWNET),
        ("ipc", CloneFlags::CLONE_NEWIPC),
    ] {
        report.result("unshare", &format!("{name} namespace"), nix::sched::unshare(flag));
    }
    for name in ["mnt", "pid", "net", "user"] {
        let entered = File::open(format!("/proc/1/ns/{name}"))
            .and_then(|file| Ok(nix::sched::setns(file, CloneFlags::empty())?));
        report.result("enter a namespace", &format!("/proc/1/ns/{name}"), entered);
    }
    // Changes nothing but this process.
    report.result("chroot", "/proc", rustix::process::chroot("/proc"));
}

/// On a folder of this program's own, and taken back at once: without a wall, as root, the machine would have it.
fn mounts(report: &mut Report<'_>) {
    let folder = files::own_folder();
    let target = folder.display().to_string();
    let mounted = rustix::mount::mount("tmpfs", &folder, "tmpfs", MountFlags::empty(), None);
    if report.result("mount", &target, mounted) {
        let _ = rustix::mount::unmount(&folder, UnmountFlags::DETACH);
    }
    report.result("fsopen", "tmpfs", rustix::mount::fsopen("tmpfs", FsOpenFlags::empty()));
    let tree = rustix::mount::open_tree(CWD, "/", OpenTreeFlags::OPEN_TREE_CLONE);
    report.result("open_tree", "/", tree);
    let _ = std::fs::remove_dir(&folder);
}

fn devices(report: &mut Report<'_>) {
    let path = std::env::temp_dir().join("inside-device");
    let made = rustix::fs::mknodat(
        CWD,
        &path,
        FileType::BlockDevice,
        Mode::RUSR,
        rustix::fs::makedev(8, 0),
    );
    let opened = made.map_err(io::Error::from).and_then(|()| File::open(&path));
    report.result("make and open a block device", &path.display().to_string(), opened);
    let _ = std::fs::remove_file(&path);
    for path in ["/dev/mem", "/dev/kmsg", "/proc/kcore", "/proc/sysrq-trigger"] {
        report.result("open for writing", path, File::options().write(true).open(path));
    }
}

/// Families and protocols that Landlock's port rules do not see.
fn sockets(report: &mut Report<'_>) {
    const VSOCK: AddressFamily = AddressFamily::from_raw(40);
    const ALG: AddressFamily = AddressFamily::from_raw(38);
    const XDP: AddressFamily = AddressFamily::from_raw(44);
    let protocol = |number: u32| RawProtocol::new(number).map(Protocol::from_raw);
    for (name, family, kind, protocol) in [
        ("packet", AddressFamily::PACKET, SocketType::RAW, None),
        ("vsock", VSOCK, SocketType::STREAM, None),
        ("alg", ALG, SocketType::SEQPACKET, None),
        ("xdp", XDP, SocketType::RAW, None),
        ("raw", AddressFamily::INET, SocketType::RAW, protocol(1)),
        ("udp", AddressFamily::INET, SocketType::DGRAM, None),
        ("udplite", AddressFamily::INET, SocketType::DGRAM, protocol(136)),
        ("ping", AddressFamily::INET, SocketType::DGRAM, protocol(1)),
        ("mptcp", AddressFamily::INET, SocketType::STREAM, protocol(262)),
        ("sctp", AddressFamily::INET, SocketType::STREAM, protocol(132)),
        ("netlink kobject", AddressFamily::NETLINK, SocketType::RAW, protocol(15)),
        ("netlink audit", AddressFamily::NETLINK, SocketType::RAW, protocol(9)),
    ] {
        let made = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, protocol);
        report.result("socket", name, made);
    }
}
