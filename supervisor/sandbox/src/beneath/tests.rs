//! The agent's side: links, FIFOs, modes and depth where we want to read, write and remove.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use nix::sys::stat::Mode;

use super::*;

/// A session's directory and a treasure outside of it.
struct Place {
    temporary: tempfile::TempDir,
    dir: Dir,
}

impl Place {
    fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        fs::create_dir_all(temporary.path().join("session/sub")).unwrap();
        fs::create_dir(temporary.path().join("outside")).unwrap();
        fs::write(temporary.path().join("outside/treasure"), "gold").unwrap();
        let dir = Dir::open(&temporary.path().join("session")).unwrap();
        Self { temporary, dir }
    }

    fn inside(&self, path: &str) -> PathBuf {
        self.temporary.path().join("session").join(path)
    }

    fn outside(&self, path: &str) -> PathBuf {
        self.temporary.path().join("outside").join(path)
    }

    fn treasure_is_safe(&self) {
        assert_eq!(fs::read_to_string(self.outside("treasure")).unwrap(), "gold");
        assert_eq!(fs::read_dir(self.outside("")).unwrap().count(), 1, "nothing new outside");
    }
}

fn errno<T: std::fmt::Debug>(result: Result<T, BeneathError>) -> i32 {
    result.unwrap_err().source.raw_os_error().unwrap()
}

#[test]
fn a_file_is_written_whole_read_back_and_replaced() {
    let place = Place::new();
    place.dir.write_file("sub/file", b"one", 0o600).unwrap();
    place.dir.write_file("sub/file", b"two", 0o640).unwrap();
    assert_eq!(place.dir.read_file("sub/file", 3).unwrap(), b"two");
    let mode = fs::metadata(place.inside("sub/file")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777 & !0o027, 0o640 & !0o027);
    assert_eq!(fs::read_dir(place.inside("sub")).unwrap().count(), 1, "no temporary file is left");
    assert_eq!(errno(place.dir.read_file("sub/file", 2)), libc::EFBIG);
    assert_eq!(errno(place.dir.write_file("sub", b"x", 0o600)), libc::EISDIR);
    assert_eq!(fs::read_dir(place.inside("")).unwrap().count(), 1, "nor after a failure");
    let mut file = place.dir.open_append("log", 0o600).unwrap();
    file.write_all(b"a").unwrap();
    place.dir.open_append("log", 0o600).unwrap().write_all(b"b").unwrap();
    assert_eq!(place.dir.read_file("log", 9).unwrap(), b"ab");
}

#[test]
fn a_link_as_the_file_leads_nowhere() {
    let place = Place::new();
    symlink(place.outside("treasure"), place.inside("absolute")).unwrap();
    symlink("../outside/treasure", place.inside("relative")).unwrap();
    symlink(place.outside("new"), place.inside("dangling")).unwrap();
    symlink("/proc/self/environ", place.inside("magic")).unwrap();
    for name in ["absolute", "relative", "dangling", "magic"] {
        assert_eq!(errno(place.dir.read_file(name, 99)), libc::ELOOP, "{name}");
        assert_eq!(errno(place.dir.open_append(name, 0o600)), libc::ELOOP, "{name}");
        // A write replaces the link itself.
        place.dir.write_file(name, b"ours", 0o600).unwrap();
        assert!(fs::symlink_metadata(place.inside(name)).unwrap().is_file());
    }
    place.treasure_is_safe();
}

#[test]
fn a_link_as_a_directory_leads_nowhere() {
    let place = Place::new();
    symlink(place.outside(""), place.inside("dir")).unwrap();
    symlink("sub", place.inside("within")).unwrap();
    for name in ["dir", "within"] {
        let file = Path::new(name).join("treasure");
        assert_eq!(errno(place.dir.read_file(&file, 99)), libc::ELOOP);
        assert_eq!(errno(place.dir.write_file(&file, b"lead", 0o600)), libc::ELOOP);
        assert_eq!(errno(place.dir.open_append(&file, 0o600)), libc::ELOOP);
        assert_eq!(errno(place.dir.remove_tree(&file)), libc::ELOOP);
        assert_eq!(errno(place.dir.exists(&file)), libc::ELOOP);
        assert_eq!(errno(place.dir.dir(name)), libc::ELOOP);
        let deep = Path::new(name).join("a/b");
        assert!(
            [libc::ELOOP, libc::ENOTDIR].contains(&errno(place.dir.create_dir_all(&deep, 0o700)))
        );
    }
    place.treasure_is_safe();
}

#[test]
fn a_path_cannot_climb_out() {
    let place = Place::new();
    for path in ["../outside/treasure", "sub/../../outside/treasure"] {
        assert_eq!(errno(place.dir.read_file(path, 99)), libc::EXDEV, "{path}");
        assert_eq!(errno(place.dir.write_file(path, b"lead", 0o600)), libc::EXDEV, "{path}");
        assert_eq!(errno(place.dir.remove_tree(path)), libc::EXDEV, "{path}");
    }
    let absolute = place.outside("treasure");
    assert_eq!(errno(place.dir.read_file(&absolute, 99)), libc::EXDEV);
    assert_eq!(errno(place.dir.create_dir_all("../new", 0o700)), libc::EINVAL);
    assert_eq!(errno(place.dir.write_file("..", b"x", 0o600)), libc::EINVAL);
    place.treasure_is_safe();
}

#[test]
fn a_fifo_holds_nobody_and_a_directory_is_no_file() {
    let place = Place::new();
    nix::unistd::mkfifo(&place.inside("fifo"), Mode::from_bits_truncate(0o600)).unwrap();
    assert_eq!(errno(place.dir.read_file("fifo", 99)), libc::EINVAL);
    // Nobody reads it: ENXIO at open, and not a wait for a reader.
    assert_eq!(errno(place.dir.open_append("fifo", 0o600)), libc::ENXIO);
    assert!([libc::EINVAL, libc::EISDIR].contains(&errno(place.dir.read_file("sub", 99))));
}

#[test]
fn a_swap_between_two_calls_wins_nothing() {
    let place = Place::new();
    let held = place.dir.dir("sub").unwrap();
    // The agent moves the directory away and puts a link in its place.
    fs::rename(place.inside("sub"), place.inside("moved")).unwrap();
    symlink(place.outside(""), place.inside("sub")).unwrap();
    held.write_file("treasure", b"ours", 0o600).unwrap();
    assert_eq!(fs::read(place.inside("moved/treasure")).unwrap(), b"ours");
    assert_eq!(errno(place.dir.write_file("sub/treasure", b"x", 0o600)), libc::ELOOP);
    place.treasure_is_safe();
}

#[test]
fn a_race_of_renames_never_writes_outside() {
    let place = Place::new();
    symlink(place.outside(""), place.inside("link")).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let (sub, link, spare) = (place.inside("sub"), place.inside("link"), place.inside("spare"));
    let written = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // sub is by turns the directory and the link.
                fs::rename(&sub, &spare).unwrap();
                fs::rename(&link, &sub).unwrap();
                fs::rename(&sub, &link).unwrap();
                fs::rename(&spare, &sub).unwrap();
            }
        });
        let (mut written, mut refused) = (0, 0);
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        // Until the race has been won and lost often enough, however the threads are scheduled.
        while (written < 50 || refused < 50) && std::time::Instant::now() < until {
            match place.dir.write_file("sub/treasure", b"lead", 0o600) {
                Ok(()) => written += 1,
                Err(_) => refused += 1,
            }
            let _ = place.dir.remove_tree("sub/treasure");
        }
        stop.store(true, Ordering::Relaxed);
        (written, refused)
    });
    assert!(written.0 >= 50 && written.1 >= 50, "the race has two sides: {written:?}");
    place.treasure_is_safe();
}

#[test]
fn a_tree_is_removed_whatever_its_modes_and_links() {
    let place = Place::new();
    for path in ["tree/a/b/c", "tree/closed/inner", "tree/read-only/x"] {
        fs::create_dir_all(place.inside(path)).unwrap();
        fs::write(place.inside(path).join("file"), "x").unwrap();
    }
    symlink(place.outside(""), place.inside("tree/out")).unwrap();
    symlink(place.outside("treasure"), place.inside("tree/a/treasure")).unwrap();
    nix::unistd::mkfifo(&place.inside("tree/fifo"), Mode::from_bits_truncate(0o000)).unwrap();
    for (path, mode) in [
        ("tree/closed/inner", 0o000),
        ("tree/closed", 0o000),
        ("tree/read-only/x", 0o500),
        ("tree/read-only", 0o500),
    ] {
        fs::set_permissions(place.inside(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    place.dir.remove_tree("tree").unwrap();
    assert!(!place.dir.exists("tree").unwrap());
    place.dir.remove_tree("tree").unwrap();
    symlink(place.outside(""), place.inside("link")).unwrap();
    place.dir.remove_tree("link").unwrap();
    place.treasure_is_safe();
}

#[test]
fn depth_beyond_any_stack_and_path_is_removed() {
    let place = Place::new();
    place.dir.create_dir_all("tree", 0o700).unwrap();
    let mut here = place.dir.dir("tree").unwrap();
    // 1200 levels of 9 bytes: above PATH_MAX, more than the usual limit of descriptors.
    for level in 0..1200 {
        here = here.create_dir_all("deep-deep", 0o700).unwrap();
        if level % 500 == 0 {
            here.write_file(".casemate-removed-1", b"in the way", 0o600).unwrap();
        }
    }
    drop(here);
    place.dir.remove_tree("tree").unwrap();
    assert!(!place.inside("tree").exists());
}

#[test]
fn a_template_is_copied_once_and_again_without_following_anything() {
    let place = Place::new();
    let template = place.temporary.path().join("template");
    fs::create_dir_all(template.join("bin/deep")).unwrap();
    fs::write(template.join("bin/deep/tool"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(template.join("bin/deep/tool"), fs::Permissions::from_mode(0o4755))
        .unwrap();
    symlink("bin/deep/tool", template.join("tool")).unwrap();
    symlink("/etc/passwd", template.join("passwd")).unwrap();
    for _ in 0..2 {
        place.dir.copy_tree_into(&template, "home").unwrap();
    }
    let tool = fs::metadata(place.inside("home/bin/deep/tool")).unwrap();
    assert_eq!(tool.permissions().mode() & 0o7777 & !0o022, 0o755 & !0o022, "no setuid");
    assert_eq!(fs::read_link(place.inside("home/tool")).unwrap(), Path::new("bin/deep/tool"));
    assert_eq!(fs::read_link(place.inside("home/passwd")).unwrap(), Path::new("/etc/passwd"));
    // The agent has put a link where the template has a directory.
    fs::remove_dir_all(place.inside("home/bin")).unwrap();
    symlink(place.outside(""), place.inside("home/bin")).unwrap();
    assert_eq!(errno(place.dir.copy_tree_into(&template, "home")), libc::ELOOP);
    place.treasure_is_safe();
    nix::unistd::mkfifo(&template.join("fifo"), Mode::from_bits_truncate(0o600)).unwrap();
    let place = Place::new();
    assert_eq!(errno(place.dir.copy_tree_into(&template, "home")), libc::EINVAL);
}
