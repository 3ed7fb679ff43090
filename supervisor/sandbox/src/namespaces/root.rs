//! Builds the new root and moves into it. Runs in the worker's process, which has all capabilities in its own user
//! namespace and is still alone.
//!
//! Everything is done through descriptors: sources are copied as detached mounts, targets are walked to from the new
//! root one component at a time without following symbolic links, so nothing that a mounted tree contains can bend a path.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::mount::MountAttrFlags as Attr;

use super::error::{Failure, NamespaceStep as Step};
use super::mount::{self, Reach, errno};
use super::plan::{Access, Layout, Mount};

/// Places to attach the new root at, until it is the root. Sources below them are copied before.
const STAGING: [&str; 4] = ["/tmp", "/mnt", "/usr", "/etc"];

/// The host's devices that an agent gets, and whether it must.
const DEVICES: [(&str, bool); 6] = [
    ("null", true),
    ("zero", true),
    ("full", true),
    ("random", true),
    ("urandom", true),
    ("tty", false),
];

/// What /dev has besides.
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// Parts of proc that change the kernel for everybody; root of the host could write there.
const PROC_READ_ONLY: [&str; 5] = ["sys", "sysrq-trigger", "irq", "bus", "fs"];

/// Parts of proc that tell of the host's memory, keys and timers.
const PROC_HIDDEN: [&str; 9] = [
    "kcore",
    "kmsg",
    "keys",
    "key-users",
    "latency_stats",
    "timer_list",
    "sched_debug",
    "scsi",
    "acpi",
];

/// Makes the layout the root of this process's mount namespace.
pub(super) fn build(layout: &Layout) -> Result<(), Failure> {
    let none: Option<&str> = None;
    nix::mount::mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .map_err(|errno| Step::Private.failed(errno))?;
    // Before the new root covers a place that a source may lie in.
    let copies = copy_sources(layout)?;
    let quiet = Attr::MOUNT_ATTR_NOSUID | Attr::MOUNT_ATTR_NODEV;
    let root = mount::new_filesystem("tmpfs", &[("mode", "0755"), ("size", "4m")], quiet)
        .map_err(|errno| Step::RootTmpfs.failed(errno))?;
    stage(&root)?;
    let root = Root { directory: root };
    for (place, text) in &layout.links {
        root.link(place, text)?;
    }
    let passing = passing(&root, layout)?;
    for Copied { target, tree, kind } in &copies {
        match &passing {
            Some((place, ours)) if target.starts_with(place) => {
                root.put_in(tree, target, *kind, ours)?
            }
            _ => root.put(tree, target, *kind)?,
        }
    }
    if let Some((place, ours)) = &passing {
        mount::restrict(ours.as_fd(), Attr::MOUNT_ATTR_RDONLY, Reach::One)
            .map_err(Step::Attributes.at(place))?;
    }
    proc(&root)?;
    dev(&root)?;
    conveniences(&root, layout)?;
    enter(&root)
}

/// A filesystem for what is taken away later: detaching it takes along whatever is mounted in it.
fn passing<'a>(root: &Root, layout: &'a Layout) -> Result<Option<(&'a Path, OwnedFd)>, Failure> {
    let Some(place) = layout.withdrawn.as_deref() else { return Ok(None) };
    let sealed = Attr::MOUNT_ATTR_NOSUID | Attr::MOUNT_ATTR_NODEV | Attr::MOUNT_ATTR_NOEXEC;
    let new = mount::new_filesystem("tmpfs", &[("mode", "0755"), ("size", "64k")], sealed)
        .map_err(|errno| Step::RootTmpfs.failed(errno))?;
    root.put(&new, place, Kind::Directory)?;
    Ok(Some((place, new)))
}

/// A detached copy of a source, by its target.
struct Copied<'a> {
    target: &'a Path,
    tree: OwnedFd,
    kind: Kind,
}

fn copy_sources(layout: &Layout) -> Result<Vec<Copied<'_>>, Failure> {
    layout.mounts.iter().map(|(target, wanted)| copy(target, wanted)).collect()
}

fn copy<'a>(target: &'a Path, wanted: &Mount) -> Result<Copied<'a>, Failure> {
    let tree = mount::clone_path(&wanted.source).map_err(Step::Copy.at(&wanted.source))?;
    let mut attributes = Attr::MOUNT_ATTR_NOSUID | Attr::MOUNT_ATTR_NODEV;
    if wanted.access == Access::ReadOnly {
        attributes |= Attr::MOUNT_ATTR_RDONLY;
    }
    mount::restrict(tree.as_fd(), attributes, Reach::Tree)
        .map_err(Step::Attributes.at(&wanted.source))?;
    Ok(Copied { target, tree, kind: if wanted.is_dir { Kind::Directory } else { Kind::File } })
}

fn stage(root: &OwnedFd) -> Result<(), Failure> {
    let place = STAGING
        .iter()
        .find_map(|place| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(*place, flags, Mode::empty()).ok()
        })
        .ok_or(Step::Staging.failed(Errno::ENOENT))?;
    mount::attach(root, place).map_err(|errno| Step::Staging.failed(errno))
}

fn proc(root: &Root) -> Result<(), Failure> {
    let sealed = Attr::MOUNT_ATTR_NOSUID | Attr::MOUNT_ATTR_NODEV | Attr::MOUNT_ATTR_NOEXEC;
    let new =
        mount::new_filesystem("proc", &[], sealed).map_err(|errno| Step::Proc.failed(errno))?;
    root.put(&new, Path::new("/proc"), Kind::Directory)?;
    for name in PROC_READ_ONLY {
        let path = Path::new("/proc").join(name);
        let Some(_) = root.look(&path)? else { continue };
        let same =
            mount::clone_tree(root.fd(), relative(&path)).map_err(Step::ProcMask.at(&path))?;
        mount::restrict(same.as_fd(), sealed | Attr::MOUNT_ATTR_RDONLY, Reach::Tree)
            .map_err(Step::ProcMask.at(&path))?;
        root.cover(&same, &path)?;
    }
    for name in PROC_HIDDEN {
        let path = Path::new("/proc").join(name);
        let Some(kind) = root.look(&path)? else { continue };
        let nothing = match kind {
            Kind::Directory => mount::new_filesystem(
                "tmpfs",
                &[("mode", "0555"), ("size", "4k")],
                sealed | Attr::MOUNT_ATTR_RDONLY,
            ),
            Kind::File => mount::clone_path(Path::new("/dev/null")),
        };
        root.cover(&nothing.map_err(Step::ProcMask.at(&path))?, &path)?;
    }
    Ok(())
}

fn dev(root: &Root) -> Result<(), Failure> {
    let sealed = Attr::MOUNT_ATTR_NOSUID | Attr::MOUNT_ATTR_NOEXEC;
    let place = Path::new("/dev");
    let new = mount::new_filesystem("tmpfs", &[("mode", "0755"), ("size", "64k")], sealed)
        .map_err(Step::Device.at(place))?;
    root.put(&new, place, Kind::Directory)?;
    for (name, required) in DEVICES {
        let path = place.join(name);
        let device = mount::clone_path(&path).and_then(|device| {
            mount::restrict(device.as_fd(), sealed, Reach::One).map(|()| device)
        });
        match device {
            Ok(device) => root.put_in(&device, &path, Kind::File, &new)?,
            Err(_) if !required => {}
            Err(errno) => return Err(Step::Device.failed_at(&path, errno)),
        }
    }
    let pts = mount::new_filesystem("devpts", &[("ptmxmode", "0666"), ("mode", "0620")], sealed)
        .map_err(|errno| Step::Devpts.failed(errno))?;
    root.put_in(&pts, &place.join("pts"), Kind::Directory, &new)?;
    let shm = mount::new_filesystem("tmpfs", &[("mode", "1777")], sealed | Attr::MOUNT_ATTR_NODEV)
        .map_err(|errno| Step::Shm.failed(errno))?;
    root.put_in(&shm, &place.join("shm"), Kind::Directory, &new)?;
    for (name, text) in DEVICE_LINKS {
        root.link(&place.join(name), Path::new(text))?;
    }
    mount::restrict(new.as_fd(), Attr::MOUNT_ATTR_RDONLY, Reach::One)
        .map_err(Step::Attributes.at(place))
}

/// Directories that programs expect and that need no host.
fn conveniences(root: &Root, layout: &Layout) -> Result<(), Failure> {
    let planned = |path: &str| layout.mounts.keys().any(|target| target.starts_with(path));
    root.make(Path::new("/run"), Kind::Directory, root.fd())?;
    if planned("/tmp") && !planned("/var") {
        root.link(Path::new("/var/tmp"), Path::new("/tmp"))?;
    }
    Ok(())
}

fn enter(root: &Root) -> Result<(), Failure> {
    nix::unistd::fchdir(&root.directory).map_err(|errno| Step::Pivot.failed(errno))?;
    // The same directory twice: the old root lands on top of the new one and is taken off at once (pivot_root(2)).
    nix::unistd::pivot_root(".", ".").map_err(|errno| Step::Pivot.failed(errno))?;
    nix::mount::umount2(".", MntFlags::MNT_DETACH).map_err(|errno| Step::Detach.failed(errno))?;
    nix::unistd::chdir("/").map_err(|errno| Step::Pivot.failed(errno))?;
    mount::restrict(root.fd(), Attr::MOUNT_ATTR_RDONLY, Reach::One)
        .map_err(|errno| Step::ReadOnlyRoot.failed(errno))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Directory,
    File,
}

/// The new root by its descriptor, and the only filesystem in it that gets new directories: a shown tree of the host
/// gets none.
struct Root {
    directory: OwnedFd,
}

impl Root {
    fn fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    fn put(&self, tree: &OwnedFd, target: &Path, kind: Kind) -> Result<(), Failure> {
        let place = self.make(target, kind, self.fd())?;
        mount::attach(tree, place).map_err(Step::Attach.at(target))
    }

    /// As `put`, into a filesystem of ours that is mounted in the root.
    fn put_in(
        &self,
        tree: &OwnedFd,
        target: &Path,
        kind: Kind,
        ours: &OwnedFd,
    ) -> Result<(), Failure> {
        let place = self.make(target, kind, ours.as_fd())?;
        mount::attach(tree, place).map_err(Step::Attach.at(target))
    }

    fn cover(&self, tree: &OwnedFd, target: &Path) -> Result<(), Failure> {
        let place = self.open(target, OFlags::PATH).map_err(Step::ProcMask.at(target))?;
        mount::attach(tree, place).map_err(Step::ProcMask.at(target))
    }

    fn link(&self, place: &Path, text: &Path) -> Result<(), Failure> {
        let parent = place.parent().unwrap_or(Path::new("/"));
        if parent != Path::new("/") && self.look(parent)?.is_none() {
            self.make(parent, Kind::Directory, self.fd())?;
        }
        rustix::fs::symlinkat(text, &self.directory, relative(place))
            .map_err(|error| Step::Link.failed_at(place, errno(error)))
    }

    /// What is there, if anything is.
    fn look(&self, path: &Path) -> Result<Option<Kind>, Failure> {
        match rustix::fs::statat(&self.directory, relative(path), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Directory => {
                Ok(Some(Kind::Directory))
            }
            Ok(_) => Ok(Some(Kind::File)),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(Step::Target.failed_at(path, errno(error))),
        }
    }

    fn open(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        rustix::fs::openat2(
            &self.directory,
            relative(path),
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            resolve,
        )
        .map_err(errno)
    }

    /// Opens a mount point, creating what is missing of it, but in `ours` only: EROFS elsewhere, even where the host's
    /// directory could be written to.
    fn make(&self, target: &Path, kind: Kind, ours: BorrowedFd<'_>) -> Result<OwnedFd, Failure> {
        let fail = |errno| Step::Target.failed_at(target, errno);
        let ours = device(ours).map_err(fail)?;
        let mut directory =
            self.open(Path::new("/"), OFlags::PATH | OFlags::DIRECTORY).map_err(fail)?;
        let mut rest =
            target.components().filter(|part| matches!(part, Component::Normal(_))).peekable();
        while let Some(part) = rest.next() {
            let kind = if rest.peek().is_some() { Kind::Directory } else { kind };
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            let name = part.as_os_str();
            let found = rustix::fs::openat2(&directory, name, flags, Mode::empty(), resolve);
            directory = match found {
                Ok(there) => there,
                Err(rustix::io::Errno::NOENT) => {
                    if device(directory.as_fd()).map_err(fail)? != ours {
                        return Err(fail(Errno::EROFS));
                    }
                    match kind {
                        Kind::Directory => {
                            rustix::fs::mkdirat(&directory, name, Mode::from_raw_mode(0o755))
                        }
                        Kind::File => {
                            let flags =
                                OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                            rustix::fs::openat(&directory, name, flags, Mode::from_raw_mode(0o444))
                                .map(drop)
                        }
                    }
                    .map_err(|error| fail(errno(error)))?;
                    rustix::fs::openat2(&directory, name, flags, Mode::empty(), resolve)
                        .map_err(|error| fail(errno(error)))?
                }
                Err(error) => return Err(fail(errno(error))),
            };
        }
        Ok(directory)
    }
}

fn device(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    rustix::fs::fstat(fd).map(|found| found.st_dev).map_err(errno)
}

/// From the new root on; the root itself is `.`.
fn relative(path: &Path) -> &Path {
    match path.strip_prefix("/") {
        Ok(rest) if rest.as_os_str().is_empty() => Path::new("."),
        Ok(rest) => rest,
        Err(_) => path,
    }
}
