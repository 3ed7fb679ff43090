//! Crashes, full disks and rotations, on real files.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

use casemate_protocol::audit::{Event, Fault, Head, Report, Source};

use super::*;

fn source() -> Source {
    Source { program: "supervisor", version: "0", ..Source::default() }
}

fn directory(path: &Path) -> OwnedFd {
    File::open(path).unwrap().into()
}

fn open(path: &Path) -> Log {
    Log::open(directory(path), source()).unwrap()
}

fn check(path: &Path, anchors: &[Head]) -> Report {
    verify(Found::in_directory(path).unwrap(), anchors.iter().copied()).unwrap()
}

fn codes(path: &Path) -> Vec<String> {
    let lines = lines(Found::in_directory(path).unwrap()).unwrap();
    let code = |line: &Vec<u8>| {
        let value: serde_json::Value = serde_json::from_slice(line).unwrap();
        value["metadata"]["event_code"].as_str().unwrap().to_owned()
    };
    lines.iter().map(code).collect()
}

#[test]
fn a_log_goes_on_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    assert_eq!(log.head(), None);
    log.require(&[Event::attached(1)]).unwrap();
    let first = log.head().unwrap();
    drop(log);
    let mut log = open(dir.path());
    log.record(Event::detached(1));
    let second = log.head().unwrap();
    assert_eq!((first.seq, second.seq), (1, 2));
    let report = check(dir.path(), &[first, second]);
    assert!(report.holds(), "{report:?}");
    assert_eq!(newest(dir.path()).unwrap(), Some(second));
    assert_eq!(fs::metadata(dir.path().join(FILE)).unwrap().mode() & 0o777, 0o600);
}

/// What a kill in the middle of any write leaves, at every byte of the last two lines.
#[test]
fn a_line_that_was_never_finished_is_taken_away_and_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    for at in 0..3 {
        log.record(Event::attached(at));
    }
    drop(log);
    let path = dir.path().join(FILE);
    let whole = fs::read(&path).unwrap();
    let ends: Vec<usize> =
        (0..whole.len()).filter(|at| whole[*at] == b'\n').map(|at| at + 1).collect();
    for length in ends[0]..=whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let kept = ends.iter().filter(|end| **end <= length).count();
        let torn = length - ends[kept - 1];
        assert_eq!(check(dir.path(), &[]).torn_bytes, torn as u64);
        let mut log = open(dir.path());
        log.record(Event::detached(9));
        drop(log);
        let mut wanted = vec!["client.attached"; kept];
        if torn > 0 {
            wanted.push("log.recovered");
        }
        wanted.push("client.detached");
        assert_eq!(codes(dir.path()), wanted, "{length}");
        let report = check(dir.path(), &[]);
        assert!(report.holds() && report.torn_bytes == 0, "{length}: {report:?}");
    }
}

#[test]
fn a_last_line_that_does_not_hold_is_a_refusal_and_stays_for_whoever_looks() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    log.record(Event::attached(1));
    drop(log);
    let path = dir.path().join(FILE);
    for wrong in [&b"{}\n"[..], b"\n", &[0; 300_000]] {
        let before = fs::read(&path).unwrap();
        OpenOptions::new().append(true).open(&path).unwrap().write_all(wrong).unwrap();
        let error = Log::open(directory(dir.path()), source()).unwrap_err();
        assert!(matches!(error, OpenError::Broken), "{error}");
        assert_eq!(fs::read(&path).unwrap().len(), before.len() + wrong.len());
        assert!(!check(dir.path(), &[]).holds());
        fs::write(&path, before).unwrap();
    }
}

#[test]
fn a_link_or_another_mode_does_not_lead_the_writer_astray() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = dir.path().join("elsewhere");
    fs::write(&elsewhere, "").unwrap();
    std::os::unix::fs::symlink(&elsewhere, dir.path().join(FILE)).unwrap();
    assert!(matches!(Log::open(directory(dir.path()), source()), Err(OpenError::Io(_))));
    fs::remove_file(dir.path().join(FILE)).unwrap();
    drop(open(dir.path()));
    for mode in [0o000, 0o666] {
        fs::set_permissions(dir.path().join(FILE), fs::Permissions::from_mode(mode)).unwrap();
        drop(open(dir.path()));
        assert_eq!(fs::metadata(dir.path().join(FILE)).unwrap().mode() & 0o7777, 0o600);
    }
    assert!(codes(dir.path()).contains(&"log.mode_mended".to_owned()));
    assert_eq!(fs::read(&elsewhere).unwrap(), b"");
}

#[test]
fn the_chain_goes_on_over_files_and_says_what_was_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = Log::open_with(directory(dir.path()), source(), 2000).unwrap();
    let mut heads = Vec::new();
    for at in 0..30 {
        log.record(Event::attached(at));
        heads.push(log.head().unwrap());
        // After each step: what a crash would leave.
        let report = check(dir.path(), &heads);
        assert!(report.holds(), "{at}: {report:?}");
    }
    let report = check(dir.path(), &heads);
    assert!(report.first > 1 && report.head == heads[29], "{report:?}");
    // The older file alone says so itself; without it the younger one has lost its beginning.
    fs::remove_file(dir.path().join(FILE_BEFORE)).unwrap();
    let report = check(dir.path(), &heads);
    assert!(matches!(report.faults[..], [Fault::Beheaded { .. }]), "{report:?}");
}

#[test]
fn a_rotation_that_was_cut_off_is_carried_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = Log::open_with(directory(dir.path()), source(), 2000).unwrap();
    for at in 0..12 {
        log.record(Event::attached(at));
    }
    drop(log);
    let kept = |name| fs::read(dir.path().join(name)).unwrap();
    let (current, before) = (kept(FILE), kept(FILE_BEFORE));
    // Between the renaming and the first line of the new file.
    for new_file in [false, true] {
        fs::rename(dir.path().join(FILE), dir.path().join("aside")).unwrap();
        if new_file {
            fs::write(dir.path().join(FILE), "").unwrap();
        }
        let mut log = Log::open_with(directory(dir.path()), source(), 2000).unwrap();
        log.record(Event::detached(1));
        drop(log);
        let report = check(dir.path(), &[]);
        assert!(report.holds(), "{report:?}");
        fs::write(dir.path().join(FILE), &current).unwrap();
        fs::write(dir.path().join(FILE_BEFORE), &before).unwrap();
    }
}

#[test]
fn a_flood_leaves_the_rest_of_the_log_in_place() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    for _ in 0..100_000 {
        log.record(Event::turned_away("/acp", "no token"));
    }
    log.record(Event::attached(1));
    log.settle();
    drop(log);
    let codes = codes(dir.path());
    assert!(codes.len() < 60, "{} lines", codes.len());
    let all: u64 = lines(Found::in_directory(dir.path()).unwrap())
        .unwrap()
        .iter()
        .map(|line| serde_json::from_slice::<serde_json::Value>(line).unwrap())
        .map(|line| line["count"].as_u64().unwrap())
        .sum();
    assert_eq!(all, 100_001);
}

/// Says that this process is the one with a limit.
const LIMITED: &str = "CASEMATE_AUDIT_LIMITED";

/// Files that cannot grow beyond a few KiB (setrlimit(2), RLIMIT_FSIZE): a write is cut short as on a full disk. The test
/// runs itself once more under that limit, which it lifts half-way.
#[test]
fn what_does_not_fit_is_counted_and_told_of_by_the_next_line() {
    if std::env::var_os(LIMITED).is_none() {
        let name = "tests::what_does_not_fit_is_counted_and_told_of_by_the_next_line";
        let script = r#"trap "" XFSZ; ulimit -S -f 6; exec "$0" "$@""#;
        let child = Command::new("sh")
            .args(["-c", script])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", name])
            .env(LIMITED, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    let mut written = 0;
    while log.lost() < 2 {
        log.record(Event::attached(written));
        written += 1;
        assert!(written < 100, "no limit is in force");
    }
    assert!(written > 3, "not even a line fits");
    assert!(log.require(&[Event::attached(99)]).is_err());
    let report = check(dir.path(), &[]);
    assert!(report.holds() && report.torn_bytes == 0 && report.lines == written - 2, "{report:?}");
    let own = std::process::id().to_string();
    let lifted = Command::new("prlimit").args(["--pid", &own, "--fsize=unlimited"]).status();
    assert!(lifted.unwrap().success(), "prlimit(1) of util-linux");
    log.record(Event::detached(7));
    let lines = lines(Found::in_directory(dir.path()).unwrap()).unwrap();
    let last: serde_json::Value = serde_json::from_slice(lines.last().unwrap()).unwrap();
    assert_eq!(last["unmapped"]["lost_before"], 2);
    assert_eq!(last["unmapped"]["connection"], 7);
    assert!(check(dir.path(), &[log.head().unwrap()]).holds());
}
