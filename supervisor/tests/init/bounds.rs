//! What the command may take of the machine.

use std::fs;

use crate::site::Site;

/// The built-in policy with this bound instead of its own.
fn bounded(site: &Site, from: &str, to: &str) -> String {
    let text = include_str!("../../../policies/developer.toml");
    assert!(text.contains(from));
    let file = site.path("bounded.toml");
    fs::write(&file, text.replace(from, to)).unwrap();
    file.display().to_string()
}

/// Doubles until it is stopped.
const BOMB: &str =
    "i=0; while [ $i -lt 80 ]; do sleep 1000 & i=$((i+1)); done; f() { f | f & }; f; wait";

#[test]
fn a_fork_bomb_is_ended_with_76_and_its_cause_and_nothing_of_it_is_left() {
    let site = Site::new();
    let policy = bounded(&site, "processes = 2048", "processes = 120");
    let (code, _, err) = site.sh(&["--policy", &policy], BOMB);
    let cause = "ran more than 120 processes and threads, which its policy's [bounds] allow";
    assert!(code == 76 && err.contains(cause), "{code} {err}");
    // It runs in its own directory, and whoever is there is its own.
    let work = site.path("work");
    let left = fs::read_dir("/proc").unwrap().flatten();
    let left =
        left.filter(|entry| fs::read_link(entry.path().join("cwd")).is_ok_and(|at| at == work));
    assert_eq!(left.count(), 0);
}

/// More than is allowed, and no more than a machine bears: without the layer it lives, and that is said.
#[test]
fn without_bounds_more_processes_run_than_the_policy_allows_and_that_is_said() {
    let site = Site::new();
    let policy = bounded(&site, "processes = 2048", "processes = 40");
    let script =
        "i=0; while [ $i -lt 60 ]; do sleep 1000 & i=$((i+1)); done; sleep 3; echo survived";
    let (code, out, err) = site.sh(&["--policy", &policy], script);
    assert!(code == 76 && !out.contains("survived"), "{code} {err}");
    for (without, said) in [("bounds", "without bounds"), ("scope", "without scope, bounds")] {
        let (code, out, err) = site.sh(&["--policy", &policy, "--without", without], script);
        assert!(code == 0 && out.contains("survived"), "{code} {err}");
        assert!(err.contains(&format!("WEAKER THAN THE POLICY: {said}\n")), "{err}");
    }
}

#[test]
fn what_fills_the_disk_is_ended_with_76_and_its_cause() {
    let site = Site::new();
    let policy = bounded(&site, "disk = \"64GiB\"", "disk = \"8MiB\"");
    let file = site.path("report").display().to_string();
    let script = "sleep 1.5; head -c 20000000 /dev/urandom > big; sleep 60";
    let (code, _, err) = site.sh(&["--policy", &policy, "--report", &file], script);
    assert!(code == 76 && err.contains("on disk of the 8MiB"), "{code} {err}");
    let report = fs::read_to_string(file).unwrap();
    assert!(report.contains("disk 8MiB, files 4000000; processes held by count"), "{report}");
}
