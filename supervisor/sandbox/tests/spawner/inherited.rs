//! What a command inherits, and what the spawner holds.

use std::fs;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::path::Path;

use casemate_sandbox::{Spawner, reap};

use crate::ends::{dead, with_daemon};
use crate::support::{Session, command, run, temp_dir, wait_for, wall};

pub(crate) fn descriptors() {
    // One inheritable descriptor from before the spawner's fork, one from after.
    let _fill: Vec<_> = (0..8).map(|_| fs::File::open("/dev/null").unwrap()).collect();
    let before = fs::File::open("/etc/passwd").unwrap();
    inheritable(&before);
    let s = Session::new();
    let after = fs::File::open("/etc/group").unwrap();
    inheritable(&after);
    let (exit, said) = run(&s.session, &wall(&[]), "descriptors", &[]);
    assert!(exit.is_success());
    let targets: Vec<&str> = said.lines().collect();
    // The fourth is the directory being listed.
    assert_eq!(targets.len(), 4, "{said}");
    assert_eq!(targets[0], "0 /dev/null");
    assert!(targets[1].starts_with("1 pipe:") && targets[2].starts_with("2 pipe:"), "{said}");
    assert!(targets[3].starts_with("3 /proc/"), "{said}");
    // The spawner holds its sockets and /dev/null, and neither of the two files.
    let held: Vec<String> = fs::read_dir(format!("/proc/{}/fd", s.spawner.pid()))
        .map(|list| {
            list.map(|entry| fs::read_link(entry.unwrap().path()).unwrap().display().to_string())
                .collect()
        })
        // Non-dumpable: only root may look.
        .unwrap_or_default();
    assert_eq!(held.is_empty(), !nix::unistd::geteuid().is_root());
    assert!(
        held.iter().all(|target| target == "/dev/null"
            || target.starts_with("socket:")
            || target.contains("landlock")),
        "{held:?}"
    );
}

fn inheritable(file: &fs::File) {
    nix::fcntl::fcntl(file, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty())).unwrap();
}

pub(crate) fn environment() {
    let s = Session::new();
    assert!(std::env::var_os("PATH").is_some(), "the supervisor has variables of its own");
    let (command, mut reader) =
        command(Path::new("/usr/bin/env"), &["env"], &["ONE=1", "TWO=two words"]);
    let pid = s.session.spawn(command, &wall(&[])).unwrap();
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    assert!(wait_for(pid).is_success());
    assert_eq!(said, "ONE=1\nTWO=two words\n");
}

pub(crate) fn not_given() {
    let dir = temp_dir();
    let path = dir.path().join("lock");
    // The first free numbers are reused by the spawner for its own: the lock gets a later one.
    let _fill: Vec<_> = (0..8).map(|_| fs::File::open("/dev/null").unwrap()).collect();
    let held = casemate_sandbox::lock::hold(&path).unwrap();
    let s = Session::new();
    let (agent, _daemon) = with_daemon(&s.session);
    casemate_sandbox::lock::hold(&path).unwrap_err();
    drop(held);
    // Spawner, agent and daemon live, and none of them stands in the way.
    drop(casemate_sandbox::lock::hold(&path).unwrap());
    assert!(!dead(agent) && !dead(s.spawner.pid()));
}

pub(crate) fn kept() {
    let dir = temp_dir();
    let path = dir.path().join("lock");
    let held = casemate_sandbox::lock::hold(&path).unwrap();
    // At the number where the spawner puts its own socket, and far from it.
    let second = fs::File::open("/dev/zero").unwrap();
    reap::adopt_orphans().unwrap();
    let spawner = Spawner::start(&[held.as_fd(), second.as_fd()]).unwrap();
    let session = spawner.session().unwrap();
    let (exit, said) = run(&session, &wall(&[]), "descriptors", &[]);
    assert!(exit.is_success() && !said.contains("lock") && !said.contains("zero"), "{said}");
    let (agent, daemon) = with_daemon(&session);
    drop(held);
    casemate_sandbox::lock::hold(&path).unwrap_err();
    session.close();
    assert!(session.kill_all().is_err(), "closed is closed");
    spawner.end();
    drop(casemate_sandbox::lock::hold(&path).unwrap());
    assert!(dead(agent) && dead(daemon), "the spawner goes last");
}
