//! A profile with `tls = true`, end to end: bridge, commands, the allocator's own calls, an allocator that finds its workers again.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, which is what it is for")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use casemate_suite::attach::resume;
use casemate_suite::place::Place;
use casemate_suite::processes;
use casemate_suite::raw_host::RawHost;
use nix::sys::signal::Signal;

fn bridge(place: &Place) -> RawHost {
    let repository = place.repository().display().to_string();
    let mut host = RawHost::start(&mut place.bridge(&["--repo", &repository])).unwrap();
    host.initialize().unwrap();
    host
}

fn whole_life(profile: &str) {
    let place = Place::new();
    place.profile("default", profile);
    let mut host = bridge(&place);
    let session = host.new_session(&place).unwrap();
    assert!(host.say(&session, "!sh echo kept > kept; cat kept").unwrap().contains("kept"));

    // The door speaks nothing else, to nobody.
    let attached = resume(&place, &session);
    let pin = attached.pin.expect("it has a pin");
    assert_eq!(pin.name, attached.session.slot.as_str());
    let mut plain = TcpStream::connect(attached.address).unwrap();
    plain.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let token = attached.token;
    let request =
        format!("GET /v1/status HTTP/1.1\r\nHost: w\r\nAuthorization: Bearer {token}\r\n\r\n");
    plain.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // A reset says no less.
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&answer));

    let mut exec = place.casemate(&["exec", &session, "--", "cat", "kept"]);
    let said = place.run(&mut exec, "", Duration::from_secs(60));
    assert_eq!((said.status.code(), said.out.as_str()), (Some(0), "kept\n"), "{}", said.err);

    // Whom to believe is on record with the worker.
    let up = i32::try_from(place.endpoint().unwrap().pid).unwrap();
    assert!(processes::signal(up, Signal::SIGKILL));
    host.quit(&place);
    let mut host = bridge(&place);
    host.load(&place, &session).expect("the session is found again");
    assert!(host.say(&session, "!sh cat kept").unwrap().contains("kept"));
    assert_eq!(resume(&place, &session).pin, Some(pin.clone()), "the worker that outlived it");

    // The next start has another certificate, and only that.
    let mut stop = place.casemate(&["sessions", "stop", &session, "--force"]);
    let said = place.run(&mut stop, "", Duration::from_secs(60));
    assert!(said.status.success(), "{}{}", said.out, said.err);
    assert!(host.say(&session, "!sh cat kept").unwrap().contains("kept"), "it wakes up");
    let next = resume(&place, &session).pin.unwrap();
    assert_eq!(next.name, pin.name);
    if !profile.contains("sharing") {
        assert_ne!(next.ca, pin.ca);
    }
    host.quit(&place);
}

#[test]
fn a_session_lives_its_whole_life_over_tls() {
    whole_life("tls = true\n");
}

#[test]
fn and_so_does_one_that_shares_its_worker() {
    whole_life("tls = true\nsharing = \"user\"\n");
}
