//! Without a wall every attack succeeds, or it would prove nothing behind one. At least 200 of them.
//!
//! Not by libtest: the attacks fork, which takes a process of one thread. As root the test runs as an ordinary user,
//! whose attacks these are.
#![allow(
    clippy::unwrap_used,
    clippy::exit,
    reason = "a panic is the failure report; a test program leaves by its exit code"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use casemate_inside::SUCCEEDED;
use casemate_inside::catalogue::{
    Answer, Decoys, Planted, UNTRIED, Victim, attack, attacks, closed_here, run,
};

/// The attacks that this kernel and machine must have something for.
const AT_LEAST: usize = 200;

/// What a kernel answers that was built without what is attacked, or a machine that has none.
const ABSENT: &[&str] = &[
    UNTRIED,
    "ENOSYS",
    "EAFNOSUPPORT",
    "EPROTONOSUPPORT",
    "ESOCKTNOSUPPORT",
    "EOPNOTSUPP",
    "ENODEV",
];

/// For one attack: whatever else the machine has to do meanwhile.
const PATIENCE: Duration = Duration::from_secs(120);

/// The user whose attacks they are where this process is root.
const USER: u32 = 1000;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [_, "attack", decoys] => {
            let decoys: Decoys = serde_json::from_str(decoys).unwrap();
            let answers = run(&decoys, PATIENCE, |_| true).unwrap();
            println!("{}", serde_json::to_string(&answers).unwrap());
        }
        _ if nix::unistd::geteuid().is_root() => as_user(),
        _ => every_attack_succeeds(),
    }
}

fn as_user() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = dir.path().join("open");
    fs::copy("/proc/self/exe", &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    let status = Command::new(&copy).uid(USER).gid(USER).current_dir("/").status().unwrap();
    drop(dir);
    std::process::exit(status.code().unwrap_or(1));
}

fn every_attack_succeeds() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    let planted = Planted::plant(&tree, None).unwrap();
    let mark = "600.0625";
    let process = Victim::start(mark, None).unwrap();
    let supervisor = Victim::with_its_own_program(dir.path(), "600.125").unwrap();
    let decoys = planted.decoys(process.pid(), mark, supervisor.pid());
    let answers = attacked(&decoys, &tree);
    assert_eq!(answers.len(), attacks().count());

    let (mut ours, mut absent, mut failed) = (0, Vec::new(), Vec::new());
    for answer in &answers {
        let attack = attack(&answer.id).unwrap();
        let outcome = answer.outcome.as_str();
        match attack.is_ours() {
            true if outcome == SUCCEEDED => ours += 1,
            true if ABSENT.contains(&outcome) => absent.push(format!("{}: {outcome}", answer.id)),
            true if let Some(setting) = closed_here(attack) => {
                absent.push(format!("{}: {outcome} by {setting}", answer.id));
            }
            true => failed.push(format!("{}: {outcome}", answer.id)),
            // What the kernel refuses anyway may be open elsewhere; what nothing stops must be.
            false => {}
        }
    }
    println!("{ours} attacks succeed without a wall; not on this machine: {absent:?}");
    assert!(failed.is_empty(), "did not succeed without a wall: {failed:#?}");
    assert!(ours >= AT_LEAST, "{ours} attacks");
    drop(planted);
    assert!(!tree.exists());
    println!("test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
}

/// From a process that was started carelessly: with a descriptor, a directory and a variable that are not its own.
fn attacked(decoys: &Decoys, tree: &Path) -> Vec<Answer> {
    let leaked = fs::File::open(tree).unwrap();
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
    let output = Command::new("/proc/self/exe")
        .args(["attack", &serde_json::to_string(decoys).unwrap()])
        // Nothing of this test's own: GIT_DIR, GIT_EDITOR, GIT_ASKPASS and the like turn git's traps aside.
        .env_clear()
        .envs(
            ["PATH", "TMPDIR"].into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))),
        )
        .env("HOME", tree.join("home"))
        .env("CASEMATE_DECOY", "1")
        .current_dir(tree.join("folder"))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}
