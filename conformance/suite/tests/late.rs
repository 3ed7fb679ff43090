//! What an agent says after a turn's final answer, through real sockets: none of it is in the next turn, and none of it is lost.

use std::time::{Duration, Instant};

use casemate_suite::place::Place;
use casemate_suite::raw_host::RawHost;
use serde_json::{Value, json};

/// Each chunk is an update of about 170 bytes: 1.8 MB, as one agent was seen to send after a cancelled turn.
const LATE: usize = 11_000;

fn texts(messages: &[Value]) -> Vec<&str> {
    let updates = messages.iter().map(|message| &message["params"]["update"]);
    updates.filter_map(|update| update["content"]["text"].as_str()).collect()
}

#[test]
fn what_comes_after_the_final_answer_is_in_the_journal_and_in_no_later_turn() {
    let place = Place::new();
    let repository = place.repository().display().to_string();
    let mut host = RawHost::start(&mut place.bridge(&["--repo", &repository])).expect("it starts");
    host.initialize().expect("initialize is answered");
    let session = host.new_session(&place).expect("there is a session");

    let turn = host.send("session/prompt", &RawHost::prompt(&session, &format!("!late {LATE} 60")));
    // Once the agent has it.
    std::thread::sleep(Duration::from_millis(500));
    host.others.clear();
    let since = Instant::now();
    host.write(
        &json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}),
    );
    // The next prompt is there before the rest of the last turn.
    let next = host.send("session/prompt", &RawHost::prompt(&session, "the next one"));
    let answer = host.answer(turn, Duration::from_secs(60)).expect("it is cancelled");
    assert_eq!(answer["stopReason"], "cancelled");
    let answer = host.answer(next, Duration::from_secs(60)).expect("it has its own turn");
    assert_eq!(answer["stopReason"], "end_turn");
    println!("cancelled and answered anew within {:?}", since.elapsed());
    let said = texts(&host.others);
    assert_eq!(said, ["echo: the next one"], "{}", said.len());
    // Nor in the one after it.
    assert_eq!(host.say(&session, "another").expect("a turn"), "echo: another");

    host.others.clear();
    host.load(&place, &session).expect("it lives");
    let shown = texts(&host.others);
    let bytes: usize = host.others.iter().map(|line| line.to_string().len()).sum();
    let late: Vec<_> = shown.iter().filter(|text| text.starts_with("late ")).collect();
    let wanted: Vec<String> = (1..=LATE).map(|index| format!("late {index}")).collect();
    assert!(late.iter().zip(&wanted).all(|(a, b)| *a == b) && late.len() == LATE, "{}", late.len());
    assert!(bytes > 1_800_000, "{bytes}");
    host.quit(&place);
}
