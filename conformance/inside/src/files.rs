//! Everything that can be done to a file whose absolute path is known, the harmless first.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{CWD, Mode, OFlags, XattrFlags};

use crate::attempt::Report;

/// What is written where writing works.
const MARK: &[u8] = b"overwritten from another session\n";

/// Tries all of it on `path`.
pub(crate) fn all(path: &Path, report: &mut Report<'_>) {
    let target = path.display().to_string();
    let folder = path.parent().unwrap_or(path);
    let own = own_folder();
    let mut attempt = |attack: &str, result: io::Result<()>| report.result(attack, &target, result);

    attempt("stat", fs::metadata(path).map(drop));
    attempt("read", read(File::open(path)));
    attempt("list its folder", fs::read_dir(folder).map(drop));
    attempt("read through O_PATH", reopen(path));
    attempt(
        "read through a symlink",
        through(&own, |link| {
            symlink(path, link)?;
            read(File::open(link))
        }),
    );
    attempt(
        "read through a hard link",
        through(&own, |link| {
            fs::hard_link(path, link)?;
            read(File::open(link))
        }),
    );
    attempt("run it", run(path));
    attempt("watch its folder", watch(folder));
    attempt("set an attribute", xattr(path));
    attempt("set its times", touch(path));
    attempt("chmod", chmod(path));
    attempt("append", write(OpenOptions::new().append(true).open(path)));
    attempt("overwrite", write(OpenOptions::new().write(true).open(path)));
    attempt("truncate", nix::unistd::truncate(path, 0).map_err(io::Error::from));
    attempt("replace by a symlink", replace(&own, path));
    attempt("make a file beside it", write(File::create_new(folder.join("from-outside"))));
    attempt("make a folder beside it", fs::create_dir(folder.join("from-outside.d")));
    attempt("move it away", fs::rename(path, own.join("stolen")));
    attempt("delete", fs::remove_file(path));
    let _ = fs::remove_dir_all(&own);
}

/// A folder that this session may write: where links and loot go.
pub(crate) fn own_folder() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("inside-{}", std::process::id()));
    // Where this fails, the attempts that need it fail with the same error and say so.
    let _ = fs::create_dir_all(&folder);
    folder
}

fn read(file: io::Result<File>) -> io::Result<()> {
    let mut byte = [0];
    file?.read(&mut byte).map(drop)
}

fn write(file: io::Result<File>) -> io::Result<()> {
    file?.write_all(MARK)
}

fn through(own: &Path, attack: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let link = own.join("link");
    let result = attack(&link);
    let _ = fs::remove_file(&link);
    result
}

/// An `O_PATH` descriptor needs no right to read; opening it once more through /proc does.
fn reopen(path: &Path) -> io::Result<()> {
    let handle = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    read(File::open(format!("/proc/self/fd/{}", handle.as_raw_fd())))
}

fn run(path: &Path) -> io::Result<()> {
    std::process::Command::new(path).status().map(drop)
}

fn watch(folder: &Path) -> io::Result<()> {
    use rustix::fs::inotify;
    let watcher = inotify::init(inotify::CreateFlags::CLOEXEC)?;
    inotify::add_watch(&watcher, folder, inotify::WatchFlags::CREATE)?;
    Ok(())
}

fn xattr(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::setxattr(path, "user.from-outside", MARK, XattrFlags::empty())?)
}

fn touch(path: &Path) -> io::Result<()> {
    // Opening for writing is refused by more walls than the call itself: use the path.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = rustix::fs::Timespec {
        tv_sec: i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: 0,
    };
    let times = rustix::fs::Timestamps { last_access: now, last_modification: now };
    Ok(rustix::fs::utimensat(CWD, path, &times, rustix::fs::AtFlags::empty())?)
}

/// To what it was, so that the victim is not shut out by a try that worked.
fn chmod(path: &Path) -> io::Result<()> {
    let mode = fs::metadata(path).map_or(0o600, |metadata| metadata.permissions().mode() & 0o7777);
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

fn replace(own: &Path, path: &Path) -> io::Result<()> {
    let bait = own.join("bait");
    symlink("/dev/null", &bait)?;
    let result = fs::rename(&bait, path);
    let _ = fs::remove_file(&bait);
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::{Attempt, SUCCEEDED};

    /// Without a wall every one of them works, or the attack would prove nothing.
    #[test]
    fn on_an_open_file_each_attack_succeeds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("victim");
        fs::write(&path, "#!/bin/sh\nexit 0\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let mut out = Vec::new();
        all(&path, &mut Report::new(&mut out));
        let attempts: Vec<Attempt> = String::from_utf8(out)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(attempts.len(), 19);
        for attempt in attempts {
            // "move it away" has taken the file from under "delete"; moving over file systems is EXDEV.
            let expected: &[&str] = match attempt.attack.as_str() {
                "delete" => &[SUCCEEDED, "ENOENT"],
                _ => &[SUCCEEDED],
            };
            assert!(expected.contains(&attempt.outcome.as_str()), "{attempt:?}");
        }
    }
}
