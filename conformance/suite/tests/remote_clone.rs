//! Sessions whose repository is an HTTP remote.

use std::time::Duration;

use casemate_suite::git_http::GitHttp;
use casemate_suite::place::{Place, git};
use casemate_suite::processes;
use casemate_suite::raw_host::RawHost;

/// A remote that serves the place's sample repository as `sample.git`.
fn remote(place: &Place) -> GitHttp {
    git(place.path(), &["clone", "-q", "--bare", "sample", "served/sample.git"]);
    GitHttp::start(&place.path().join("served")).expect("a port is to be had")
}

#[test]
fn a_session_works_in_a_clone_of_an_http_remote() {
    let place = Place::new();
    let remote = remote(&place);
    let mut host =
        RawHost::start(&mut place.bridge(&["--repo", &remote.url("sample.git")])).unwrap();
    host.initialize().unwrap();
    let session = host.new_session(&place).unwrap();
    let said = host.say(&session, "!sh cat README; git log --format=%s; git branch --show-current");
    let said = said.unwrap();
    assert!(said.contains("sample\nthe sample\n"), "{said}");
    assert!(said.contains(&format!("casemate/{session}")), "{said}");
    let said = host.say(&session, "!sh git config remote.origin.url").unwrap();
    assert!(said.contains(&remote.url("sample.git")), "{said}");
    assert!(host.quit(&place).success());
}

#[test]
fn an_unreachable_remote_is_named_and_leaves_no_session() {
    let place = Place::new();
    let gone = remote(&place);
    let url = gone.url("sample.git");
    drop(gone);
    let mut host = RawHost::start(&mut place.bridge(&["--repo", &url])).unwrap();
    let error = host.refusal(&place);
    assert!(error.to_string().contains(&url), "{error}");
    assert_nothing_left(&place);
}

#[test]
fn a_repository_that_the_remote_does_not_have_is_named() {
    let place = Place::new();
    let remote = remote(&place);
    let url = remote.url("another.git");
    let mut host = RawHost::start(&mut place.bridge(&["--repo", &url])).unwrap();
    let error = host.refusal(&place);
    assert!(error.to_string().contains(&url), "{error}");
    assert_nothing_left(&place);
}

/// No half-made session: not in the list, not on the disk, no worker.
fn assert_nothing_left(place: &Place) {
    // An introduction's own session may still be on its way out.
    let over = processes::until(Duration::from_secs(10), || {
        place.living().is_some_and(|living| living.is_empty()).then_some(())
    });
    assert!(over.is_some(), "{:#?}", place.living());
    let slots = processes::until(Duration::from_secs(5), || place.slots().is_empty().then_some(()));
    assert!(slots.is_some(), "{:#?}", place.slots());
    let workers: Vec<_> = processes::ours()
        .into_iter()
        .filter(|process| process.command.contains("casemate-supervisor"))
        .collect();
    assert!(workers.is_empty(), "{workers:#?}");
}
