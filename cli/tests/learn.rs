//! `casemate policy learn`: from records as the kernel writes them to a policy that lets through what was refused.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails there")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn casemate(home: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_casemate"))
        .arg("--home")
        .arg(home)
        .args(args)
        .output()
        .unwrap()
}

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_learned_policy_checks_allows_what_was_refused_and_grants_nothing_of_casemates() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    fs::create_dir(&home).unwrap();
    let records = dir.path().join("records");
    let lines = [
        "type=LANDLOCK_ACCESS msg=audit(1.2:3): domain=a1 blockers=fs.read_file path=\"/srv/data/x\" dev=\"v\" ino=1".to_owned(),
        format!("type=LANDLOCK_ACCESS msg=audit(1.2:4): domain=a1 blockers=fs.read_file path=\"{}/keys/signing.seed\" dev=\"v\" ino=1", home.display()),
        "type=LANDLOCK_ACCESS msg=audit(1.2:5): domain=a1 blockers=fs.read_file path=\"/proc/77/maps\" dev=\"p\" ino=1".to_owned(),
        "type=LANDLOCK_ACCESS msg=audit(1.2:6): domain=a1 blockers=net.connect_tcp daddr=192.0.2.1 dest=8443".to_owned(),
        "audit: type=1326 audit(1.2:7): auid=0 uid=0 pid=9 comm=\"x\" sig=0 arch=c000003e syscall=101 compat=0".to_owned(),
        "type=LANDLOCK_ACCESS msg=audit(1.2:8): domain=b2 blockers=fs.read_file path=\"/srv/other\" dev=\"v\" ino=1".to_owned(),
    ];
    fs::write(&records, lines.join("\n")).unwrap();
    let records = records.display().to_string();
    let learn = ["policy", "learn", "audit", &records, "--domain", "a1"];
    let (code, text, words) = said(&casemate(&home, &learn));
    assert_eq!(code, Some(0), "{words}");
    assert!(words.contains("2 rules are added"), "{words}");
    assert!(words.contains("signing.seed: keys, state"), "{words}");
    assert!(words.contains("/proc/77/maps: a process"), "{words}");
    let learned = dir.path().join("learned.toml").display().to_string();
    fs::write(&learned, &text).unwrap();
    assert_eq!(said(&casemate(&home, &["policy", "check", &learned])).0, Some(0));
    let (code, diff, _) = said(&casemate(&home, &["policy", "diff", "audit", &learned]));
    assert_eq!(code, Some(1));
    assert!(diff.contains("/srv/data/x") && diff.contains("8443"), "{diff}");
    assert!(!diff.contains("/srv/other") && !diff.contains("signing.seed"), "{diff}");
    let whole = ["policy", "learn", "audit", &records];
    let words = said(&casemate(&home, &whole)).2;
    assert!(words.contains("3 rules are added"), "{words}");
    // 101 is ptrace(2) on x86-64 alone.
    #[cfg(target_arch = "x86_64")]
    assert!(words.contains("syscall ptrace: the rule in line"), "{words}");
}

#[test]
fn without_a_record_nothing_is_proposed() {
    let dir = tempfile::tempdir().unwrap();
    let records = dir.path().join("records");
    fs::write(&records, "type=SYSCALL msg=audit(1.2:3): arch=c000003e syscall=59\n").unwrap();
    let records = records.display().to_string();
    let (code, text, _) = said(&casemate(dir.path(), &["policy", "learn", "audit", &records]));
    assert_eq!((code, text.as_str()), (Some(66), ""));
}
