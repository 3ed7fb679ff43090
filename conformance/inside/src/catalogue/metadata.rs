//! On the metadata of another session's files: Landlock has no right for it, and tier `domain` leaks it.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use casemate_raw::{Arg, Call, Page, call};
use rustix::fs::{AtFlags, CWD, XattrFlags};

use super::attack::{Attack, Defence::CallRules, Run};
use super::files::{fd_path, file, path_handle};
use super::shot::text;

const fn metadata(id: &'static str, does: &'static str, source: &'static str, run: Run) -> Attack {
    file(id, does, source, run).leaks()
}

pub(super) const ATTACKS: &[Attack] = &[
    metadata("file-stat", "learns that a path exists, its size and times", "stat(2)", |shot| {
        fs::metadata(shot.secret()).map(drop)
    }),
    metadata("file-access", "asks for its own rights", "access(2)", |shot| {
        Ok(rustix::fs::access(shot.secret(), rustix::fs::Access::READ_OK)?)
    }),
    metadata("file-readlink", "reads where a symlink leads", "readlink(2)", |shot| {
        fs::read_link(shot.tree("link")).map(drop)
    }),
    metadata("file-statfs", "learns of the file system", "statfs(2)", |shot| {
        Ok(rustix::fs::statfs(shot.secret()).map(drop)?)
    }),
    metadata(
        "file-handle",
        "gets a handle that outlives the path",
        "name_to_handle_at(2)",
        |shot| handle_of(&shot.secret()).map(drop),
    )
    .by(&[CallRules])
    .refused(&["EPERM"]),
    metadata("file-opath", "gets an O_PATH descriptor", "open(2) O_PATH", |shot| {
        path_handle(&shot.secret()).map(drop)
    }),
    metadata("folder-enter", "changes into a folder", "chdir(2)", |shot| {
        std::env::set_current_dir(shot.tree("folder"))
    }),
    metadata("file-chmod", "changes a file's mode", "chmod(2)", |shot| {
        fs::set_permissions(shot.victim(), fs::Permissions::from_mode(0o700))
    }),
    metadata("folder-chmod", "shuts the other session out of its folder", "chmod(2)", |shot| {
        let folder = shot.tree("folder");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o000))?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755))
    }),
    metadata(
        "file-chmod-opath",
        "changes a mode through an O_PATH descriptor",
        "fchmodat2(2)",
        |shot| {
            let handle = path_handle(&shot.victim())?;
            fs::set_permissions(fd_path(&handle), fs::Permissions::from_mode(0o700))
        },
    ),
    metadata("file-chown", "changes a file's group to one of its user's", "chown(2)", |shot| {
        std::os::unix::fs::chown(shot.victim(), None, Some(nix::unistd::getegid().as_raw()))
    }),
    metadata("file-touch", "changes a file's times", "utimensat(2)", |shot| {
        let now = rustix::fs::Timespec { tv_sec: 1, tv_nsec: 0 };
        let times = rustix::fs::Timestamps { last_access: now, last_modification: now };
        Ok(rustix::fs::utimensat(CWD, shot.victim(), &times, AtFlags::empty())?)
    }),
    metadata("file-setxattr", "sets an extended attribute", "setxattr(2)", |shot| {
        Ok(rustix::fs::setxattr(shot.victim(), "user.mark", b"x", XattrFlags::empty())?)
    }),
    metadata("file-acl", "lets another user read a file, by an access list", "acl(5)", |shot| {
        let name = "system.posix_acl_access";
        Ok(rustix::fs::setxattr(shot.victim(), name, LIST, XattrFlags::empty())?)
    }),
    metadata("file-listxattr", "lists extended attributes", "listxattr(2)", |shot| {
        Ok(rustix::fs::listxattr(shot.secret(), &mut [0; 256][..]).map(drop)?)
    }),
    metadata("file-setattr", "changes inode flags by path", "file_setattr(2)", |shot| {
        let path = text(&shot.victim())?;
        // struct file_attr: all zero clears the flags that an owner may clear.
        call(
            Call::FILE_SETATTR,
            &mut [
                Arg::Number(rustix::fs::CWD.as_raw_fd().into()),
                Arg::Text(&path),
                Arg::Page(&mut Page::zeroed()),
                Arg::Number(24),
                Arg::Number(0),
            ],
        )
        .map(drop)
    })
    .by(&[CallRules])
    .refused(&["ENOSYS"]),
    metadata("file-watch-inotify", "watches a file", "inotify(7)", |shot| watch(&shot.secret())),
    metadata("folder-watch-inotify", "learns names as they come", "inotify(7)", |shot| {
        watch(&shot.tree("folder"))
    }),
    metadata("folder-watch-fanotify", "learns of changes by file handles", "fanotify(7)", |shot| {
        // FAN_CLASS_NOTIF | FAN_REPORT_FID: what an unprivileged listener may have.
        let group = call(Call::FANOTIFY_INIT, &mut [Arg::Number(0x200), Arg::Number(0)])?;
        let path = text(&shot.tree("folder"))?;
        call(
            Call::FANOTIFY_MARK,
            &mut [
                Arg::Number(group.cast_signed()),
                Arg::Number(1),
                Arg::Number(0x100),
                Arg::Number(rustix::fs::CWD.as_raw_fd().into()),
                Arg::Text(&path),
            ],
        )
        .map(drop)
    })
    .by(&[CallRules])
    .refused(&["EPERM"]),
    file(
        "file-open-handle",
        "opens a file by its handle, without a path",
        "shocker, open_by_handle_at(2)",
        |shot| {
            let (mut handle, _) = handle_of(&shot.secret())?;
            let mount = File::open(shot.own_file("mount")?)?;
            call(
                Call::OPEN_BY_HANDLE_AT,
                &mut [
                    Arg::Number(mount.as_raw_fd().into()),
                    Arg::Page(&mut handle),
                    Arg::Number(0),
                ],
            )
            .map(drop)
        },
    )
    .kernel(&["EPERM"]),
];

/// An access list as the kernel takes it (linux/posix_acl_xattr.h): the owner all, uid 65534 and the group to read, the mask, nobody else.
const LIST: &[u8] = b"\x02\0\0\0\
    \x01\0\x07\0\xff\xff\xff\xff\
    \x02\0\x04\0\xfe\xff\0\0\
    \x04\0\x04\0\xff\xff\xff\xff\
    \x10\0\x04\0\xff\xff\xff\xff\
    \x20\0\0\0\xff\xff\xff\xff";

fn watch(path: &Path) -> io::Result<()> {
    use rustix::fs::inotify;
    let watcher = inotify::init(inotify::CreateFlags::CLOEXEC)?;
    inotify::add_watch(&watcher, path, inotify::WatchFlags::ALL_EVENTS)?;
    Ok(())
}

/// A handle of up to 128 bytes behind its head of two words.
fn handle_of(path: &Path) -> io::Result<(Box<Page>, Box<Page>)> {
    let (mut handle, mut mount) = (Page::of(&128_u32.to_ne_bytes()), Page::zeroed());
    let path = text(path)?;
    call(
        Call::NAME_TO_HANDLE_AT,
        &mut [
            Arg::Number(rustix::fs::CWD.as_raw_fd().into()),
            Arg::Text(&path),
            Arg::Page(&mut handle),
            Arg::Page(&mut mount),
            Arg::Number(0),
        ],
    )?;
    Ok((handle, mount))
}
