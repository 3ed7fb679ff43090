//! The kernel report on the machine that runs the tests.
// Test code: a panic is the failure report. Clippy knows that only of `#[test]` functions.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails there")]

mod support;

use std::fs;

use casemate_protocol::tier::Tier;
use casemate_sandbox::kernel;

const TESTS: &[support::Test] = &[
    ("the_report_says_what_was_tried_and_leaves_nothing", report),
    ("a_limit_on_user_namespaces_lowers_the_tier_and_says_how_to_raise_it", without_namespaces),
];

fn main() {
    support::main(TESTS, |_, _| without_namespaces_inside());
}

fn state() -> [String; 2] {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let own = status.lines().filter(|line| {
        ["NoNewPrivs", "Seccomp", "CapEff", "SigBlk"].iter().any(|name| line.starts_with(name))
    });
    [own.collect::<Vec<_>>().join("\n"), fs::read_to_string("/proc/self/mountinfo").unwrap()]
}

fn report() {
    let before = state();
    let report = kernel::report();
    assert_eq!(state(), before, "trials stay in their children");
    for check in &report.checks {
        println!("  {} {}: {}", if check.ok { "+" } else { "-" }, check.name, check.found);
        assert_eq!(check.ok, check.fix.is_none());
        assert!(!check.found.is_empty());
    }
    // The machines that the tests run on are known to have these.
    assert!(report.landlock_abi >= 6);
    assert_eq!(report.tier, Some(Tier::Namespace));
    assert!(fs::read_dir("/proc/self/task").unwrap().count() == 1);
}

fn without_namespaces() {
    let output = std::process::Command::new(support::this_program())
        .args(["inside", "report"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("tier domain"), "{said}");
    assert!(said.contains("user.max_user_namespaces"), "{said}");
}

fn without_namespaces_inside() {
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER).unwrap();
    fs::write("/proc/self/setgroups", "deny").unwrap();
    fs::write("/proc/self/uid_map", format!("0 {uid} 1")).unwrap();
    fs::write("/proc/self/gid_map", format!("0 {gid} 1")).unwrap();
    fs::write("/proc/sys/user/max_user_namespaces", "0").unwrap();
    let report = kernel::report();
    let check = report.checks.iter().find(|check| check.name.contains("namespaces")).unwrap();
    println!("tier {}\n{}", report.tier.unwrap(), check.found);
}
