//! Copying a trusted tree into an agent-writable directory.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;

use rustix::fs::{AtFlags, Dir as Entries, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::{BeneathError, Dir, RESOLVE, below};

/// A template is an administrator's; one that is deeper than this is a mistake (a bind mount of itself).
const MAX_DEPTH: u32 = 64;

/// Copies what is in `from` into `to`.
pub(super) fn tree(from: &Dir, to: &Dir, depth: u32) -> Result<(), BeneathError> {
    let here = Path::new("");
    if depth > MAX_DEPTH {
        return Err(from.failed("copy from so deep", here)(Errno::NAMETOOLONG));
    }
    let entries = Entries::read_from(&from.fd).map_err(from.failed("list", here))?;
    for entry in entries {
        let entry = entry.map_err(from.failed("list", here))?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let name = Path::new(bytes(name));
        let found = rustix::fs::statat(&from.fd, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(from.failed("look at", name))?;
        // Permission bits alone: nothing setuid comes into a session.
        let mode = found.st_mode & 0o777;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => {
                let from = from.dir(name)?;
                // Writable by us while we fill it.
                let part = std::path::Component::Normal(name.as_os_str());
                let fd = below(to.fd.as_fd(), part, Mode::from_raw_mode(mode | 0o700))
                    .map_err(to.failed("create the directory", name))?;
                let to = Dir { fd, path: to.path.join(name) };
                tree(&from, &to, depth + 1)?;
            }
            FileType::RegularFile => file(from, to, name, mode)?,
            FileType::Symlink => link(from, to, name)?,
            _ => {
                return Err(from.failed("copy (neither file, directory nor link)", name)(
                    Errno::INVAL,
                ));
            }
        }
    }
    Ok(())
}

fn file(from: &Dir, to: &Dir, name: &Path, mode: u32) -> Result<(), BeneathError> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let source = rustix::fs::openat2(&from.fd, name, flags, Mode::empty(), RESOLVE)
        .map_err(from.failed("read", name))?;
    let mut source = File::from(source);
    to.replace(name, mode, |file| io::copy(&mut source, file).map(drop))
        .map_err(|error| to.error("write", name, error))
}

fn link(from: &Dir, to: &Dir, name: &Path) -> Result<(), BeneathError> {
    let text =
        rustix::fs::readlinkat(&from.fd, name, Vec::new()).map_err(from.failed("read", name))?;
    match rustix::fs::symlinkat(&text, &to.fd, name) {
        // Of an earlier copy that was cut off.
        Err(Errno::EXIST) => {
            let there = rustix::fs::readlinkat(&to.fd, name, Vec::new());
            if there.is_ok_and(|there| there == text) { Ok(()) } else { Err(Errno::EXIST) }
        }
        other => other,
    }
    .map_err(to.failed("create the link", name))
}

fn bytes(name: &std::ffi::CStr) -> &std::ffi::OsStr {
    use std::os::unix::ffi::OsStrExt as _;
    std::ffi::OsStr::from_bytes(name.to_bytes())
}
