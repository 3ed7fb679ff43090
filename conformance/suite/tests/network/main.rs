//! The real bridge, allocator, worker and agent, and between bridge and worker a network that fails them.
//!
//! All at the same time, since most of it is waiting. `CASEMATE_CUTS` says how many cuts there shall be (default 2000),
//! `CASEMATE_ATTACHMENTS` in how many attachments at once (default 1); `conformance/cuts N` runs it so.

mod attachment;
mod cuts;
mod silence;

use std::time::Duration;

use attachment::Attachment;
use casemate_suite::place::Place;
use casemate_suite::processes;
use nix::sys::signal::Signal;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn cut_again_and_again_silent_and_half_open() {
    let place = Place::new();
    let up = place.casemate(&["up"]).stderr(std::process::Stdio::null()).spawn();
    let mut up = up.expect("the allocator starts");
    let endpoint = processes::until(Duration::from_secs(20), || place.endpoint());
    let endpoint = endpoint.expect("the allocator serves");
    let begin = |number| Attachment::begin(&place, &endpoint, number);

    let (silent, half_open) = (begin(0), begin(1));
    let attachments = number("CASEMATE_ATTACHMENTS", 1);
    let cut = (2..attachments + 2).map(begin).collect();
    let cuts = number("CASEMATE_CUTS", 2000);
    std::thread::scope(|scope| {
        scope.spawn(|| silence::a_silent_tool_call_outlives_an_impatient_proxy(silent));
        scope.spawn(|| silence::a_half_open_connection_is_found(half_open));
        scope.spawn(|| cuts::nothing_is_lost_doubled_or_out_of_order(cut, cuts));
    });
    let _ = processes::signal(i32::try_from(up.id()).unwrap(), Signal::SIGTERM);
    up.wait().expect("the allocator ends");
}

/// Cuts fall into the handshakes of TLS as well, which are longer than all else that is said before work goes on.
#[test]
fn cut_again_and_again_over_tls() {
    let place = Place::new();
    place.profile("default", "tls = true\n");
    let up = place.casemate(&["up"]).stderr(std::process::Stdio::null()).spawn();
    let mut up = up.expect("the allocator starts");
    let endpoint = processes::until(Duration::from_secs(20), || place.endpoint());
    let attachment = Attachment::begin(&place, &endpoint.expect("the allocator serves"), 0);
    cuts::nothing_is_lost_doubled_or_out_of_order(vec![attachment], 200);
    let _ = processes::signal(i32::try_from(up.id()).unwrap(), Signal::SIGTERM);
    up.wait().expect("the allocator ends");
}
