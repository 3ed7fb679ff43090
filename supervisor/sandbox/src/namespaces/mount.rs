//! The mount API of Linux 5.2 and later (fsopen(2), open_tree(2), move_mount(2), mount_setattr(2)): a mount is a
//! descriptor first and gets its place last, so it is never visible without its flags.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use rustix::fs::CWD;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

/// Whether attributes are set on one mount or on those below it as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    One,
    Tree,
}

/// A new instance of a filesystem, not attached anywhere yet.
pub(super) fn new_filesystem(
    kind: &str,
    options: &[(&str, &str)],
    attributes: MountAttrFlags,
) -> Result<OwnedFd, Errno> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC).map_err(errno)?;
    for (key, value) in options {
        fsconfig_set_string(&context, *key, *value).map_err(errno)?;
    }
    fsconfig_create(&context).map_err(errno)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).map_err(errno)
}

/// A private copy of what is at a path, with everything mounted below it. Follows symbolic links.
pub(super) fn clone_tree(at: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    open_tree(at, path, flags).map_err(errno)
}

/// As [`clone_tree`], by a path of the caller's own root.
pub(super) fn clone_path(path: &Path) -> Result<OwnedFd, Errno> {
    clone_tree(CWD, path)
}

/// Puts a mount onto an open directory or file.
pub(super) fn attach(mount: &OwnedFd, target: impl AsFd) -> Result<(), Errno> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, "", target, "", flags).map_err(errno)
}

/// `struct mount_attr` of linux/mount.h.
#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

/// Adds attributes; none is ever taken away, so flags that a parent namespace has locked are no obstacle.
pub(super) fn restrict(
    mount: BorrowedFd<'_>,
    attributes: MountAttrFlags,
    reach: Reach,
) -> Result<(), Errno> {
    let attr = MountAttr {
        attr_set: u64::from(attributes.bits()),
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    let flags = match reach {
        Reach::One => libc::AT_EMPTY_PATH,
        Reach::Tree => libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
    };
    // SAFETY: an open descriptor, an empty NUL-terminated path, and a live structure of the length that is passed; the
    // kernel only reads.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    };
    Errno::result(result).map(drop)
}

pub(super) fn errno(error: rustix::io::Errno) -> Errno {
    Errno::from_raw(error.raw_os_error())
}
