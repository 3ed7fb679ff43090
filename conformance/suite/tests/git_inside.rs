//! Git inside a session, with real git and real remotes over HTTP, in each tier, and in a worker that several sessions share.
// Test code: a panic is the failure report. Clippy knows that only of `#[test]` functions.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails there")]

use std::collections::HashSet;
use std::time::Duration;

use casemate_suite::attach::resume;
use casemate_suite::git_http::GitHttp;
use casemate_suite::place::{Place, git};
use casemate_suite::raw_host::RawHost;

const SCRIPT: &str = include_str!("git_inside.sh");
const POINTER: &str = "version https://git-lfs.github.com/spec/v1\n\
     oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";

/// Two bare repositories that may be pushed to: `sample.git`, with the script and a pointer to a large file, and `part.git`.
fn remotes(place: &Place) -> GitHttp {
    let sample = place.repository();
    std::fs::write(sample.join("README"), "more\n").unwrap();
    std::fs::write(sample.join("check.sh"), SCRIPT).unwrap();
    std::fs::write(sample.join(".gitattributes"), "*.bin filter=lfs diff=lfs merge=lfs -text\n")
        .unwrap();
    std::fs::write(sample.join("weights.bin"), POINTER).unwrap();
    git(&sample, &["add", "."]);
    git(&sample, &["commit", "-q", "-m", "more"]);
    git(place.path(), &["init", "-q", "-b", "main", "part"]);
    let part = place.path().join("part");
    std::fs::write(part.join("README"), "a part\n").unwrap();
    git(&part, &["add", "."]);
    git(&part, &["commit", "-q", "-m", "a part"]);
    for name in ["sample", "part"] {
        let bare = format!("served/{name}.git");
        git(place.path(), &["clone", "-q", "--bare", name, &bare]);
        for setting in ["http.receivepack", "uploadpack.allowFilter"] {
            git(&place.path().join(&bare), &["config", setting, "true"]);
        }
    }
    GitHttp::start(&place.path().join("served")).unwrap()
}

/// What the script tried, each of which has to be `ok`.
fn operations() -> Vec<&'static str> {
    let (_, rest) = SCRIPT.split_once("for operation in ").unwrap();
    let (names, _) = rest.split_once(';').unwrap();
    let names: Vec<_> = names.split_ascii_whitespace().filter(|word| *word != "\\").collect();
    assert!(names.len() > 25, "{names:?}");
    names
}

/// In each of so many sessions, one after the other.
fn works_wholly(tier: &str, profile: &str, sessions: usize) {
    let place = Place::new();
    place.profile("default", profile);
    let remote = remotes(&place);
    let up = place.run(
        &mut place.casemate(&["up", "--detach", "--tier", tier]),
        "",
        Duration::from_secs(30),
    );
    assert!(up.status.success(), "{up:?}");
    let port = remote.port().to_string();
    let options = ["--repo", &remote.url("sample.git"), "--connect", &port];
    let mut host = RawHost::start(&mut place.bridge(&options)).unwrap();
    host.initialize().unwrap();
    let served = remote.url("");
    let check = format!("!sh sh check.sh {}", served.trim_end_matches('/'));
    // All are there while each is tried.
    let all: Vec<String> = (0..sessions).map(|_| host.new_session(&place).unwrap()).collect();
    let slots: HashSet<_> =
        all.iter().map(|session| resume(&place, session).session.slot).collect();
    assert_eq!(slots.len(), 1, "they are in one worker");
    for session in &all {
        let said = host.say(session, &check).unwrap();
        for name in operations() {
            let is_ok = said.lines().any(|line| line == format!("ok {name}"));
            assert!(is_ok, "{tier}, {profile}: {name}\n{said}");
        }
        assert!(!said.contains("FAILED"), "{tier}, {profile}\n{said}");
        let sample = place.path().join("served/sample.git");
        let outside = git(&sample, &["log", "--format=%s", "from-session"]);
        assert!(outside.lines().any(|subject| subject == "amended"), "{outside}");
        // The next finds the remotes as this one did.
        git(&sample, &["branch", "-q", "-D", "from-session", "with-part"]);
        git(&place.path().join("served/part.git"), &["branch", "-q", "-D", "mine"]);
    }
    assert!(host.quit(&place).success());
}

#[test]
fn git_works_wholly_in_tier_namespace() {
    works_wholly("namespace", "", 1);
}

#[test]
fn git_works_wholly_in_tier_domain() {
    works_wholly("domain", "", 1);
}

#[test]
fn git_works_wholly_in_each_of_two_sessions_that_share_a_worker() {
    works_wholly("domain", "sharing = \"user\"\n", 2);
}
