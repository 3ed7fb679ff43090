//! A full disk: refused by name, nothing half made, and all well again once there is room. The home is a small tmpfs in a
//! mount namespace of the allocator's own, so nothing needs to be unmounted.

mod house;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use casemate_protocol::api::{ErrorKind, Phase};
use house::{House, eventually, request, scripted};

/// Starts the allocator with `dir/home` on a tmpfs of 8 MiB.
fn up_on_small_disk(dir: &Path) -> Child {
    let home = dir.join("home");
    let script = r#"mount -t tmpfs -o size=8m,mode=0700 tmpfs "$1" && shift && exec "$@""#;
    // As root without a user namespace: each slot gets its own user id as it does in earnest.
    let root = nix::unistd::geteuid().is_root();
    Command::new("unshare")
        .args(if root { &["-m"][..] } else { &["-Urm"][..] })
        .args(["sh", "-c", script, "sh"])
        .arg(&home)
        .arg(env!("CARGO_BIN_EXE_casemate-allocator"))
        .arg("--home")
        .arg(&home)
        .arg("--supervisor")
        .arg(scripted())
        .stdin(Stdio::null())
        .stderr(std::fs::File::create(dir.join("up.log")).expect("a log"))
        .spawn()
        .expect("unshare(1) of util-linux")
}

fn fill(path: &Path) {
    let mut file = std::fs::File::create(path).expect("room for a name");
    while file.write_all(&[0; 4096]).is_ok() {}
    while file.write_all(&[0; 1]).is_ok() {}
}

#[test]
fn a_full_disk_is_named_and_survived() {
    let mut house = House::new(scripted());
    let up = up_on_small_disk(house.dir.path());
    // Its own view of its home.
    let home = PathBuf::from(format!("/proc/{}/root{}", up.id(), house.home().display()));
    house.take_over(up, &home.join("run/allocator.json"));
    let first = house.allocate(&request("r1", "a", "serve")).unwrap();
    let ballast = home.join("ballast");
    fill(&ballast);
    for n in 0..8 {
        let error = house.allocate(&request(&format!("full{n}"), &format!("b{n}"), "serve"));
        let error = error.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
        let words = error.message.to_lowercase();
        assert!(
            words.contains("disk") && (words.contains("full") || words.contains("space")),
            "{error}"
        );
    }
    // What was there goes on.
    assert_eq!(house.show(&first.session.id).unwrap().phase, Phase::Active);
    std::fs::remove_file(&ballast).unwrap();
    let second = eventually("room again", || house.allocate(&request("r2", "b0", "serve")).ok());
    assert!(second.created);
    eventually("nothing half made", || {
        let slots = std::fs::read_dir(home.join("slots")).unwrap().count();
        (slots == 2 && house.list().iter().filter(|view| view.phase != Phase::Ended).count() == 2)
            .then_some(())
    });
    for session in [&first.session, &second.session] {
        house.close(&session.id, true, true).unwrap();
    }
    assert_eq!(std::fs::read_dir(home.join("slots")).unwrap().count(), 0);
}
