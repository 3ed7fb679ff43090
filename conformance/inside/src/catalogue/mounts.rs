//! Mounts, roots and what else takes a privilege.
//!
//! Each is tried twice: as it is, and in a user namespace of its own, where the privilege is to be had by whoever may
//! make one.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use nix::sched::CloneFlags;
use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, OpenTreeFlags,
};

use super::attack::{Attack, Defence::*, Run};
use super::kernel::{door, ended};

/// By new namespaces and what they allow: without a privilege the kernel refuses it, and unshare(2) is refused.
const fn mount(id: &'static str, does: &'static str, source: &'static str, run: Run) -> Attack {
    door(id, does, source, run).by(&[CallRules, DomainBorder])
}

pub(super) const ATTACKS: &[Attack] = &[
    mount("mount-tmpfs", "mounts a file system over a path", "mount(2)", |shot| {
        let folder = shot.own_folder()?;
        in_mounts(|| {
            Ok(rustix::mount::mount("tmpfs", &folder, "tmpfs", MountFlags::empty(), None)?)
        })
    }),
    mount(
        "mount-bind",
        "binds another session's folder into its own",
        "mount(2) MS_BIND",
        |shot| {
            let (folder, tree) = (shot.own_folder()?, shot.tree("folder"));
            in_mounts(|| Ok(rustix::mount::mount_bind(&tree, &folder)?))
        },
    ),
    mount(
        "mount-overlay",
        "reads another session's folder through an overlay",
        "overlayfs, CVE-2023-0386",
        |shot| {
            let folder = shot.own_folder()?;
            for part in ["upper", "work", "merged"] {
                fs::create_dir(folder.join(part))?;
            }
            let options = format!(
                "lowerdir={},upperdir={f}/upper,workdir={f}/work,userxattr",
                shot.tree("folder").display(),
                f = folder.display()
            );
            let options = std::ffi::CString::new(options)?;
            in_mounts(|| {
                let at = folder.join("merged");
                Ok(rustix::mount::mount(
                    "overlay",
                    &at,
                    "overlay",
                    MountFlags::empty(),
                    Some(options.as_c_str()),
                )?)
            })
        },
    ),
    mount("mount-proc", "mounts a proc that hides nothing", "CVE-2021-41091, proc(5)", |shot| {
        let folder = shot.own_folder()?;
        privileged(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID, || {
            // A proc of the new pid namespace can be mounted by a process in it.
            ended(casemate_raw::child(|| {
                let mounted =
                    rustix::mount::mount("proc", &folder, "proc", MountFlags::empty(), None);
                mounted
                    .map_or_else(|errno| u8::try_from(errno.raw_os_error()).unwrap_or(255), |()| 0)
            }))
        })
    }),
    mount("mount-remount", "makes a read-only mount writable", "mount(2) MS_REMOUNT", |shot| {
        let folder = shot.own_folder()?;
        in_mounts(|| {
            rustix::mount::mount_bind(&folder, &folder)?;
            Ok(rustix::mount::mount_remount(&folder, MountFlags::BIND | MountFlags::NOEXEC, c"")?)
        })
    }),
    mount("mount-unmount", "takes a mount away", "umount(2)", |shot| {
        let folder = shot.own_folder()?;
        in_mounts(|| {
            rustix::mount::mount_bind(&folder, &folder)?;
            Ok(rustix::mount::unmount(&folder, rustix::mount::UnmountFlags::DETACH)?)
        })
    }),
    mount("mount-pivot", "changes its root", "pivot_root(2)", |shot| {
        let folder = shot.own_folder()?;
        in_mounts(|| {
            rustix::mount::mount("tmpfs", &folder, "tmpfs", MountFlags::empty(), None)?;
            std::env::set_current_dir(&folder)?;
            Ok(rustix::process::pivot_root(".", ".")?)
        })
    }),
    mount("mount-open-tree", "copies the tree of mounts", "open_tree(2)", |_| {
        in_mounts(|| {
            Ok(rustix::mount::open_tree(
                CWD,
                "/",
                OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::AT_RECURSIVE,
            )
            .map(drop)?)
        })
    })
    .by(&[CallRules]),
    mount("mount-fsopen", "opens a file system by its type", "fsopen(2), CVE-2022-0185", |_| {
        in_mounts(|| Ok(rustix::mount::fsopen("tmpfs", FsOpenFlags::empty()).map(drop)?))
    })
    .by(&[CallRules]),
    mount("mount-fsmount", "makes a mount that is nowhere", "fsmount(2)", |_| {
        in_mounts(|| nowhere().map(drop))
    })
    .by(&[CallRules]),
    mount("mount-move", "moves a mount to a path", "move_mount(2)", |shot| {
        let folder = shot.own_folder()?;
        in_mounts(|| {
            let mount = nowhere()?;
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
            Ok(rustix::mount::move_mount(mount, "", CWD, &folder, flags)?)
        })
    }),
    mount("mount-fspick", "takes up a mounted file system", "fspick(2)", |shot| {
        let folder = shot.own_folder()?;
        in_mounts(|| {
            rustix::mount::mount("tmpfs", &folder, "tmpfs", MountFlags::empty(), None)?;
            let flags = rustix::mount::FsPickFlags::empty();
            Ok(rustix::mount::fspick(CWD, &folder, flags).map(drop)?)
        })
    }),
    door("chroot", "takes another session's tree for its root", "chroot(2)", |shot| {
        let tree = shot.tree("");
        privileged(CloneFlags::empty(), || {
            rustix::process::chroot(&tree)?;
            super::files::read(Path::new("/secret"))
        })
    })
    .by(&[CallRules, FileRules])
    .namespace(&["ENOENT", "EPERM"]),
    door("hostname", "renames the machine for itself", "sethostname(2)", |_| {
        privileged(CloneFlags::CLONE_NEWUTS, || Ok(rustix::system::sethostname(b"elsewhere")?))
    }),
];

/// As it is, and where that is EPERM as root of a user namespace of its own, with these besides.
pub(super) fn privileged(
    flags: CloneFlags,
    mut attack: impl FnMut() -> io::Result<()>,
) -> io::Result<()> {
    match attack() {
        Err(error) if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) => {
            let (user, group) = (nix::unistd::geteuid(), nix::unistd::getegid());
            nix::sched::unshare(CloneFlags::CLONE_NEWUSER | flags)?;
            // Without a map its own files are somebody else's; little of what follows minds.
            let _ = fs::write("/proc/self/uid_map", format!("0 {user} 1"));
            let _ = fs::write("/proc/self/setgroups", "deny");
            let _ = fs::write("/proc/self/gid_map", format!("0 {group} 1"));
            attack()
        }
        other => other,
    }
}

fn in_mounts(attack: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    privileged(CloneFlags::CLONE_NEWNS, attack)
}

fn nowhere() -> io::Result<std::os::fd::OwnedFd> {
    let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::empty())?;
    rustix::mount::fsconfig_create(context.as_fd())?;
    let flags = FsMountFlags::empty();
    Ok(rustix::mount::fsmount(context.as_fd(), flags, MountAttrFlags::empty())?)
}
