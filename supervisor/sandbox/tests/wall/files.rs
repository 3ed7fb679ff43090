//! Another session's files, and one's own.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::Path;
use std::process::Command;

use super::cell::{Site, errno, free};

type Attack = (&'static str, fn(&Site) -> io::Result<()>, &'static [i32]);

const ATTACKS: &[Attack] = &[
    ("read", |site| File::open(site.path("other/secret")).map(drop), &[libc::EACCES]),
    (
        "write",
        |site| OpenOptions::new().write(true).open(site.path("other/secret")).map(drop),
        &[libc::EACCES],
    ),
    ("truncate", |site| truncate(site, "other/secret"), &[libc::EACCES]),
    ("list", |site| fs::read_dir(site.path("other")).map(drop), &[libc::EACCES]),
    ("run", |site| Command::new(site.path("other/program")).status().map(drop), &[libc::EACCES]),
    ("delete", |site| fs::remove_file(site.path("other/secret")), &[libc::EACCES]),
    ("create", |site| File::create_new(site.path("other/new")).map(drop), &[libc::EACCES]),
    ("mkdir", |site| fs::create_dir(site.path("other/new")), &[libc::EACCES]),
    ("rmdir", |site| fs::remove_dir_all(site.path("other/dir")), &[libc::EACCES]),
    ("symlink there", |site| symlink("x", site.path("other/new")), &[libc::EACCES]),
    ("socket there", |site| socket_file(&site.path("other/new")), &[libc::EACCES]),
    (
        "move out",
        |site| fs::rename(site.path("other/secret"), site.path("work/got")),
        &[libc::EACCES],
    ),
    ("move in", |site| fs::rename(site.path("work/mine"), site.path("other/new")), &[libc::EACCES]),
    (
        "hard link",
        |site| fs::hard_link(site.path("other/secret"), site.path("work/got")),
        &[libc::EXDEV, libc::EACCES],
    ),
    (
        "read through a link",
        |site| {
            symlink(site.path("other/secret"), site.path("work/link"))?;
            File::open(site.path("work/link")).map(drop)
        },
        &[libc::EACCES],
    ),
    (
        "read through an O_PATH descriptor",
        |site| {
            use std::os::fd::AsRawFd;
            let options = OpenOptions::new().read(true).custom_flags(libc::O_PATH).clone();
            let place = options.open(site.path("other/secret"))?;
            File::open(format!("/proc/thread-self/fd/{}", place.as_raw_fd())).map(drop)
        },
        &[libc::EACCES],
    ),
    (
        "read the supervisor's key",
        |site| File::open(site.path("state/key")).map(drop),
        &[libc::EACCES],
    ),
    ("list state", |site| fs::read_dir(site.path("state")).map(drop), &[libc::EACCES]),
    ("list the sessions", |site| fs::read_dir(&site.root).map(drop), &[libc::EACCES]),
];

#[test]
fn another_sessions_files_are_closed() {
    for (name, attack, expected) in ATTACKS {
        let site = Site::new();
        free(|| attack(&site))
            .unwrap_or_else(|e| panic!("{name} does not work without a wall: {e}"));
        let site = Site::new();
        let error = site.confined(|| attack(&site)).expect_err(name);
        assert!(expected.contains(&errno(&error)), "{name}: {error}");
        for file in ["other/secret", "other/dir/deep", "state/key"] {
            assert_eq!(fs::read_to_string(site.path(file)).unwrap(), "sentinel", "{name}");
        }
        assert_eq!(fs::read_dir(site.path("other")).unwrap().count(), 3, "{name}");
    }
}

/// What bind(2) makes, without a socket: tier `domain` refuses those before any path.
fn socket_file(path: &Path) -> io::Result<()> {
    use nix::sys::stat::{Mode, SFlag, mknod};
    Ok(mknod(path, SFlag::S_IFSOCK, Mode::S_IRWXU, 0)?)
}

#[test]
fn ones_own_files_are_open() {
    let site = Site::new();
    site.confined(|| {
        for place in ["work", "home", "scratch"] {
            let place = site.path(place);
            fs::create_dir_all(place.join("a/b")).unwrap();
            fs::write(place.join("a/file"), "x").unwrap();
            // npm links within its cache, Git and editors rename between directories.
            fs::hard_link(place.join("a/file"), place.join("a/b/link")).unwrap();
            fs::rename(place.join("a/file"), place.join("moved")).unwrap();
            symlink("moved", place.join("soft")).unwrap();
            socket_file(&place.join("socket")).unwrap();
            truncate(&site, "work/mine").unwrap();
            assert_eq!(fs::read_to_string(place.join("soft")).unwrap(), "x");
            fs::remove_dir_all(place.join("a")).unwrap();
        }
        assert!(Command::new(site.path("work/program")).status().unwrap().success());
    });
}

#[test]
fn the_system_is_there_to_read_and_run_but_not_to_write() {
    let site = Site::new();
    let answers = site.confined(|| {
        assert!(Command::new("/bin/sh").args(["-c", "exit 0"]).status().unwrap().success());
        let mut random = [0; 16];
        File::open("/dev/urandom").unwrap().read_exact(&mut random).unwrap();
        assert_ne!(random, [0; 16]);
        fs::write("/dev/null", "x").unwrap();
        fs::read_to_string("/etc/passwd").unwrap();
        fs::read_to_string("/proc/cpuinfo").unwrap();
        let write = |path: &str| OpenOptions::new().append(true).open(path).map(drop);
        [write("/dev/urandom"), write("/proc/self/comm"), File::open("/dev/ptmx").map(drop)]
    });
    // All three are writable (or there to open) for everybody without the wall.
    for answer in answers {
        assert_eq!(errno(&answer.unwrap_err()), libc::EACCES);
    }
}

fn truncate(site: &Site, name: &str) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let path = CString::new(site.path(name).as_os_str().as_bytes()).unwrap();
    let arguments = [path.as_ptr() as u64, 1, 0, 0, 0, 0];
    super::cell::call(libc::SYS_truncate, arguments).map(drop).map_err(io::Error::from_raw_os_error)
}
