//! Each command gets the wall that it was started with, and a probe meets the same one.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use casemate_sandbox::Exit;

use crate::support::{Session, command, run, temp_dir, wait_for, wall, wall_over};

/// Each layer has to allow it (landlock(7), LANDLOCK_ACCESS_FS_REFER): EXDEV where the signal scope's does not.
pub(crate) fn moved() {
    let s = Session::new();
    let dir = temp_dir();
    let script = "cd \"$1\" && mkdir a b && : > a/f && ln a/f b/f && ln -T a/f b/g && echo linked";
    let place = dir.path().to_str().unwrap();
    let (command, mut reader) =
        command(Path::new("/bin/sh"), &["sh", "-c", script, "sh", place], &[]);
    let pid = s.session.spawn(command, &wall(&[dir.path()])).unwrap();
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    assert_eq!((wait_for(pid), said.as_str()), (Exit::Code(0), "linked\n"));
}

pub(crate) fn many_walls() {
    let s = Session::new();
    let dir = temp_dir();
    let places: Vec<PathBuf> = (0..10).map(|n| dir.path().join(n.to_string())).collect();
    let walls: Vec<_> = places
        .iter()
        .map(|place| {
            fs::create_dir(place).unwrap();
            wall(&[place])
        })
        .collect();
    for round in [0, 9, 1, 8, 2, 7, 3, 6, 4, 5, 0, 1, 9] {
        for (number, place) in places.iter().enumerate() {
            let file = place.join("new");
            let (exit, said) = run(&s.session, &walls[round], "create", &[file.to_str().unwrap()]);
            assert!(exit.is_success());
            let expected = if number == round { "ok" } else { "EACCES" };
            assert_eq!(said.trim(), expected, "wall {round} in place {number}");
        }
    }
}

/// What was there when it was opened is granted, whatever has its name when the child starts; and nobody else is behind it.
pub(crate) fn opened_before() {
    let s = Session::new();
    let dir = temp_dir();
    let [granted, moved] = ["granted", "moved"].map(|name| dir.path().join(name));
    fs::create_dir(&granted).unwrap();
    let built = wall(&[&granted]);
    fs::rename(&granted, &moved).unwrap();
    fs::create_dir(&granted).unwrap();
    for (place, expected) in [(&granted, "EACCES"), (&moved, "ok")] {
        let file = place.join("by-child");
        let (exit, said) = run(&s.session, &built, "create", &[file.to_str().unwrap()]);
        assert!(exit.is_success());
        assert_eq!(said.trim(), expected, "{}", place.display());
        // This process, which built it, is not behind it; nor is the next child of another wall.
        fs::write(place.join("by-parent"), "x").unwrap();
        let file = place.join("by-another");
        let (_, said) = run(&s.session, &wall(&[place]), "create", &[file.to_str().unwrap()]);
        assert_eq!(said.trim(), "ok", "{}", place.display());
    }
}

pub(crate) fn probe() {
    let s = Session::new();
    let dir = temp_dir();
    let [open, closed] = ["open", "closed"].map(|name| {
        let path = dir.path().join(name);
        fs::create_dir(&path).unwrap();
        fs::write(path.join("file"), "content").unwrap();
        path
    });
    let wall = wall_over(&[Path::new("/usr")], &[&open]);
    let paths =
        [open.join("file"), closed.join("file"), PathBuf::from("/no/such"), PathBuf::from("/usr")];
    let answers = s.session.probe(&paths, &wall).unwrap();
    let errnos: Vec<(i32, i32)> = answers.iter().map(|a| (a.read_errno, a.write_errno)).collect();
    assert_eq!(
        errnos,
        [(0, 0), (libc::EACCES, libc::EACCES), (libc::ENOENT, libc::ENOENT), (0, libc::EISDIR)]
    );
    assert_eq!(fs::read_to_string(open.join("file")).unwrap(), "content");
}
