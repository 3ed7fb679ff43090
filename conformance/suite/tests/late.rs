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
fn what_comes_after_a_cancelled_turns_answer_is_in_the_journal_and_in_no_later_turn() {
    is_kept_out("cancelled");
}

#[test]
fn what_comes_after_the_answer_of_a_turn_that_ended_by_itself_is_in_no_turn_of_a_prompt_that_waited()
 {
    is_kept_out("end_turn");
}

/// The next prompt is there before the rest of the last turn, which ends like this.
fn is_kept_out(reason: &str) {
    let place = Place::new();
    let repository = place.repository().display().to_string();
    let mut host = RawHost::start(&mut place.bridge(&["--repo", &repository])).expect("it starts");
    host.initialize().expect("initialize is answered");
    let session = host.new_session(&place).expect("there is a session");

    let seconds = if reason == "cancelled" { 60 } else { 2 };
    let late = format!("!late {LATE} {seconds}");
    let turn = host.send("session/prompt", &RawHost::prompt(&session, &late));
    // Once the agent has it.
    std::thread::sleep(Duration::from_millis(500));
    host.others.clear();
    let since = Instant::now();
    if reason == "cancelled" {
        let cancel =
            json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}});
        host.write(&cancel);
    }
    let next = host.send("session/prompt", &RawHost::prompt(&session, "the next one"));
    let answer = host.answer(turn, Duration::from_secs(60)).expect("it ends");
    assert_eq!(answer["stopReason"], reason);
    let answer = host.answer(next, Duration::from_secs(60)).expect("it has its own turn");
    assert_eq!(answer["stopReason"], "end_turn");
    println!("{reason}, and answered anew within {:?}", since.elapsed());
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
