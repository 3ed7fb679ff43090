//! Clients that come, load and go while the agent speaks without a pause, so that a thread writes to the journal all the time: past and
//! present fit.

use casemate_protocol::tier::Tier;
use casemate_protocol::token::Audience;
use serde_json::json;

use crate::client::Client;
use crate::harness::{Slot, Who};
use crate::resumable::numbers;

const LINES: u64 = 800;

#[test]
fn whoever_loads_while_the_journal_is_written_gets_each_line_once_in_order() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let (worker, address) = slot.serve();
    let attach = || {
        let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
        client.initialize();
        client
    };
    let mut client = attach();
    let session = client.new_session();
    client.prompt(&session, &format!("!updates {LINES} 40000"));
    let mut lengths = Vec::new();
    for round in 0.. {
        // Some leave before, some are superseded.
        if round % 2 == 0 {
            drop(client);
            client = attach();
        } else {
            client = attach();
        }
        let id = client
            .request("session/load", json!({"sessionId": session, "cwd": "/", "mcpServers": []}));
        let (answer, mut lines) = client.answer(id);
        assert!(answer.get("error").is_none(), "{answer}");
        lengths.push(lines.len());
        // And some of what is said now.
        let past = numbers(&lines).len() as u64;
        let wanted = (past + 20).min(LINES);
        while numbers(&lines).len() < usize::try_from(wanted).unwrap() {
            lines.push(client.receive().expect("what comes next"));
        }
        assert_eq!(numbers(&lines), (1..=wanted).collect::<Vec<_>>(), "round {round}");
        if past == LINES {
            break;
        }
    }
    assert!(lengths.len() > 2, "all was said before anybody came: {lengths:?}");
    println!("lines that a load found: {lengths:?}");
    worker.stop();
}
