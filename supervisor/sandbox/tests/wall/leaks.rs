//! What tier `domain` does not hide, as SECURITY.md lists it: no longer than this, and no shorter.

use std::ffi::CString;
use std::fs::{self, Permissions};
use std::io::{self, Read};
use std::os::fd::FromRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::Path;

use super::cell::{Site, call, errno, victim};

fn on(path: &Path, attempt: impl FnOnce(u64) -> Result<i64, i32>) -> Result<i64, i32> {
    let path = CString::new(path.to_str().unwrap()).unwrap();
    attempt(path.as_ptr() as u64)
}

fn code<T>(result: io::Result<T>) -> Result<(), i32> {
    result.map(drop).map_err(|error| errno(&error))
}

#[test]
fn the_metadata_of_a_known_path_is_seen_and_set_and_its_content_is_not() {
    let site = Site::new();
    let secret = site.path("other/secret");
    site.confined(|| {
        fs::metadata(&secret).unwrap();
        fs::set_permissions(&secret, Permissions::from_mode(0o666)).unwrap();
        let owner = fs::metadata(&secret).unwrap();
        chown(&secret, Some(owner.uid()), Some(owner.gid())).unwrap();
        let times = [0_i64; 4];
        let at = libc::AT_FDCWD as u64;
        let set = |path| call(libc::SYS_utimensat, [at, path, &raw const times as u64, 0, 0, 0]);
        on(&secret, set).unwrap();
        let name = c"user.x".as_ptr() as u64;
        let value = *b"v";
        let set = |path| call(libc::SYS_setxattr, [path, name, &raw const value as u64, 1, 0, 0]);
        on(&secret, set).unwrap();
        let mut back = [0_u8];
        let get = |path| call(libc::SYS_getxattr, [path, name, &raw mut back as u64, 1, 0, 0]);
        assert_eq!(on(&secret, get), Ok(1));
        on(&secret, |path| call(libc::SYS_removexattr, [path, name, 0, 0, 0, 0])).unwrap();
        // Open to everybody by its mode, and closed all the same.
        assert_eq!(code(fs::read(&secret)), Err(libc::EACCES));
        assert_eq!(code(fs::write(&secret, "x")), Err(libc::EACCES));
        assert_eq!(code(fs::read_dir(site.path("other"))), Err(libc::EACCES));
    });
    assert_eq!(fs::read_to_string(&secret).unwrap(), "sentinel");
    assert_eq!(fs::metadata(&secret).unwrap().permissions().mode() & 0o777, 0o666);
}

#[test]
fn names_in_a_known_directory_are_seen_as_they_come() {
    let site = Site::new();
    let other = site.path("other");
    let seen = site.confined(|| {
        let watcher = call(libc::SYS_inotify_init1, [libc::O_NONBLOCK as u64, 0, 0, 0, 0, 0]);
        let watcher = watcher.unwrap();
        let create = u64::from(libc::IN_CREATE);
        on(&other, |path| {
            call(libc::SYS_inotify_add_watch, [watcher as u64, path, create, 0, 0, 0])
        })
        .unwrap();
        watcher
    });
    fs::write(other.join("tell-tale"), "x").unwrap();
    // SAFETY: the descriptor was made above and belongs to nobody else.
    let mut watcher = unsafe { fs::File::from_raw_fd(i32::try_from(seen).unwrap()) };
    let mut events = [0; 256];
    let length = watcher.read(&mut events).unwrap();
    assert!(events[..length].windows(9).any(|window| window == b"tell-tale"));
}

#[test]
fn of_other_processes_command_lines_and_numbers_of_descriptors_are_seen() {
    let site = Site::new();
    let victim = victim();
    let listener = site.path("other/listener");
    let _listener = UnixListener::bind(&listener).unwrap();
    let at = |name: &str| format!("/proc/{}/{name}", victim.pid());
    site.confined(|| {
        assert!(fs::read_to_string(at("cmdline")).unwrap().contains("600"));
        fs::read_to_string(at("status")).unwrap();
        assert!(fs::read_dir(at("fd")).unwrap().count() >= 3);
        for closed in ["environ", "maps", "mem"] {
            assert_eq!(code(fs::File::open(at(closed))), Err(libc::EACCES), "{closed}");
        }
        for closed in ["cwd", "exe", "fd/0"] {
            assert_eq!(code(fs::read_link(at(closed))), Err(libc::EACCES), "{closed}");
        }
        let sockets = fs::read_to_string("/proc/net/unix").unwrap();
        assert!(sockets.contains(listener.to_str().unwrap()));
    });
}
