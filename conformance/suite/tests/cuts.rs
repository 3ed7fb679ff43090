//! The real bridge, allocator, worker and agent, and between bridge and worker a network that breaks all the time.
//!
//! `CASEMATE_CUTS` says how many cuts there shall be (default 2000); `conformance/cuts N` runs it so.

use std::time::{Duration, Instant};

use casemate_suite::detour::Detour;
use casemate_suite::place::Place;
use casemate_suite::processes;
use casemate_suite::raw_host::RawHost;
use serde_json::Value;

/// How many updates a turn of the counting kind has.
const UPDATES: usize = 40;

/// What was seen.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    prompts: Vec<u64>,
    lost: usize,
    doubled: usize,
    out_of_order: usize,
}

/// The numbers of a turn's updates, held against what the agent sent.
fn count(seen: &mut Seen, updates: &[Value]) {
    let number = |message: &Value| {
        let text = message["params"]["update"]["content"]["text"].as_str()?;
        text.split(' ').next()?.parse::<usize>().ok()
    };
    let numbers: Vec<usize> = updates.iter().filter_map(number).collect();
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    seen.out_of_order += usize::from(numbers != sorted);
    let before = sorted.len();
    sorted.dedup();
    seen.doubled += before - sorted.len();
    seen.lost += UPDATES - sorted.len();
}

#[test]
fn nothing_is_lost_doubled_or_out_of_order_however_often_the_network_breaks() {
    let wanted = std::env::var("CASEMATE_CUTS").ok().and_then(|text| text.parse().ok());
    let wanted: u64 = wanted.unwrap_or(2000);
    let place = Place::new();
    let up = place.casemate(&["up"]).stderr(std::process::Stdio::null()).spawn();
    let mut up = up.expect("the allocator starts");
    let endpoint = processes::until(Duration::from_secs(20), || place.endpoint());
    let home = place.path().join("detour");
    let detour = Detour::start(endpoint.expect("the allocator serves"), &home, 7).unwrap();
    let proxy = &detour.proxy;

    let repository = place.repository().display().to_string();
    let mut command = place.bridge(&["--repo", &repository]);
    let mut host = RawHost::start(command.env("CASEMATE_HOME", &home)).expect("the bridge starts");
    host.initialize().expect("initialize is answered");
    let session = host.new_session(&place).expect("there is a session");

    proxy.faults(true);
    let started = Instant::now();
    let mut seen = Seen::default();
    let mut round = 0;
    let mut quiet = 0;
    while proxy.cuts() < wanted {
        let before = proxy.cuts();
        host.others.clear();
        let text = if round % 2 == 0 {
            seen.prompts.push(round);
            format!("!sh echo {round} >> prompts")
        } else {
            format!("!updates {UPDATES} 300")
        };
        let id = host.send("session/prompt", &RawHost::prompt(&session, &text));
        let answer = host.answer(id, Duration::from_secs(120));
        assert_eq!(answer.expect("no turn fails")["stopReason"], "end_turn");
        if round % 2 == 1 {
            count(&mut seen, &host.others);
        }
        round += 1;
        quiet = if proxy.cuts() == before { quiet + 1 } else { 0 };
        assert!(quiet < 500, "nothing is cut any more");
    }
    proxy.faults(false);
    let told = host.say(&session, "!sh cat prompts").expect("the last turn");
    let prompts: Vec<u64> = told.lines().filter_map(|line| line.parse().ok()).collect();
    let cuts = proxy.cuts();
    println!(
        "{cuts} cuts, {round} turns in {:.0} s: {} updates lost, {} doubled, {} turns out of order, {} of {} counted prompts",
        started.elapsed().as_secs_f32(),
        seen.lost,
        seen.doubled,
        seen.out_of_order,
        prompts.len(),
        seen.prompts.len()
    );
    assert_eq!(seen, Seen { prompts, ..Seen::default() });
    host.quit(&place);
    let _ = processes::signal(i32::try_from(up.id()).unwrap(), nix::sys::signal::Signal::SIGTERM);
    up.wait().expect("the allocator ends");
}
