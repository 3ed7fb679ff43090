//! A client that goes away without a word while its agent reads nothing, so that nobody takes what it has sent.

use std::time::{Duration, Instant};

use casemate_protocol::tier::Tier;
use casemate_protocol::token::Audience;
use serde_json::json;

use crate::client::Client;
use crate::ends::TURN;
use crate::harness::{Slot, Who};
use crate::resumable::Door;

/// A worker reads clients no further once its agent leaves more than 64 MiB unread; what comes then waits.
const LONG_ONES: usize = 65;
const SHORT_ONES: usize = 20;

#[test]
fn a_client_that_goes_away_while_nobody_takes_its_lines_is_missed_after_60_s_at_both_doors() {
    let deaf = || {
        let mut slot = Slot::new(Tier::Domain, Who::User);
        let script = format!("{TURN}while :; do sleep 1; done");
        slot.config.agent.argv = ["/bin/sh", "-c", &script].map(str::to_owned).to_vec();
        slot
    };
    let (slot, resumable) = (deaf(), deaf());
    let ((worker, address), (other, resumable_address)) = (slot.serve(), resumable.serve());
    let lengths = || (0..LONG_ONES + SHORT_ONES).map(|at| if at < LONG_ONES { 1 << 20 } else { 1 });
    let mut door = Door::attach(resumable_address, &resumable.token(Audience::Attach));
    let session = door.session();
    door.prompt(&session, "work");
    for length in lengths() {
        door.notify("_test/note", json!({"text": "x".repeat(length)}));
        door.listen(Duration::ZERO);
    }
    // As far as it may.
    let mut sent = 0;
    while sent < door.sent() {
        sent = door.sent();
        door.listen(Duration::from_secs(3));
    }
    assert!(sent > LONG_ONES as u64 - 3, "{sent}");
    let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
    client.initialize();
    let session = client.new_session();
    client.prompt(&session, "work");
    for length in lengths() {
        let note = json!({"jsonrpc": "2.0", "method": "_test/note", "params": {"text": "x".repeat(length)}});
        client.send_text(&note.to_string());
    }
    // Neither reads from now on, so neither answers a ping.
    let since = Instant::now();
    for worker in [&worker, &other] {
        while !worker.log().contains("silent for 60 s") {
            assert!(since.elapsed() < Duration::from_secs(150), "{}", worker.log());
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    worker.stop();
    other.stop();
}
