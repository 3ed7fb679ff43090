//! A client that does not read: what it does not take is kept on the disk, its agent goes on, and nobody else suffers.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use casemate_protocol::tier::Tier;
use casemate_protocol::token::Audience;
use casemate_protocol::worker::Activity;
use serde_json::{Value, json};

use crate::client::{Client, text_of};
use crate::harness::{LONG, Slot, Who, call, eventually};
use crate::resumable::{Door, numbers};

/// Peak resident memory of a process, in KiB.
pub(crate) fn peak(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn whoever_says_nothing_keeps_nobody_else_out_for_long() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let (worker, address) = slot.serve();
    // More of them than the worker takes at once.
    let silent: Vec<TcpStream> = (0..70).map(|_| TcpStream::connect(address).unwrap()).collect();
    let began = Instant::now();
    let mut asking = TcpStream::connect(address).unwrap();
    asking.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut answer = [0; 64];
    let length = asking.read(&mut answer).unwrap();
    assert!(answer[..length].starts_with(b"HTTP/1.1 200 "), "{answer:?}");
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    drop(silent);
    worker.stop();
}

/// Bytes that lie on the slot's disk for clients.
fn kept(slot: &Slot) -> u64 {
    let files = std::fs::read_dir(slot.config.volume.join("state/spool"));
    let files = files.into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|meta| meta.len()).sum()
}

fn is_busy(slot: &Slot, address: SocketAddr) -> bool {
    matches!(slot.status(address).activity, Activity::Busy { .. })
}

#[test]
fn an_agent_does_not_wait_for_a_client_that_does_not_read_and_hears_its_cancel() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let (worker, address) = slot.serve();
    let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
    client.initialize();
    let session = client.new_session();
    // 65 MB, which go by without one byte being read: the turn ends.
    let id = client.prompt(&session, "!updates 1000 65536");
    eventually("the turn's end", || kept(&slot) > 40_000_000 && !is_busy(&slot, address));
    let peak = peak(worker.pid().as_raw());
    assert!(peak < 64 * 1024, "{peak} KiB");
    let (answer, updates) = client.answer(id);
    assert_eq!(answer["result"]["stopReason"], "end_turn");
    assert_eq!(text_of(&updates).len(), 1000 * 65536);
    eventually("an empty spool", || kept(&slot) == 0);

    // More than anybody keeps, and a cancel in the middle of it.
    let took: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let id = client.prompt(&session, "!updates 400000 65536");
            eventually("a flood", || kept(&slot) > 20_000_000);
            let asked = Instant::now();
            let cancel = json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}});
            client.send_text(&cancel.to_string());
            let took = until_idle(&slot, address, asked);
            assert_eq!(client.answer(id).0["result"]["stopReason"], "cancelled");
            took
        })
        .collect();
    println!("a cancel under a flood that nobody reads, plain door: {took:?}");
    worker.stop();
}

#[test]
fn a_cancel_is_obeyed_at_the_resumable_door_as_well_while_its_client_does_not_read() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let (worker, address) = slot.serve();
    let mut door = Door::attach(address, &slot.token(Audience::Attach));
    let session = door.session();
    let took: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let id = door.prompt(&session, "!updates 400000 65536");
            eventually("a flood", || kept(&slot) > 20_000_000);
            let asked = Instant::now();
            door.notify("session/cancel", json!({"sessionId": session}));
            let took = until_idle(&slot, address, asked);
            assert_eq!(door.answer(id).0["result"]["stopReason"], "cancelled");
            took
        })
        .collect();
    println!("a cancel under a flood that nobody reads, resumable door: {took:?}");
    worker.stop();
}

/// Where nothing more can be kept for a client, and it does not read: the next one does not wait for that, and the first is told at once.
#[test]
fn a_client_for_whom_nothing_more_can_be_kept_is_superseded_at_once() {
    let mut slot = Slot::new(Tier::Domain, Who::User);
    slot.config.kept = 4 << 20;
    let (worker, address) = slot.serve();
    let token = slot.token(Audience::Attach);
    let mut door = Door::attach(address, &token);
    let session = door.session();
    door.prompt(&session, "!updates 4000 65536");
    eventually("a full spool", || kept(&slot) > 4 << 20);
    let mut newer = Client::attach(address, &token).unwrap();
    newer.initialize();
    assert_eq!(door.until_bye().0, 4001);
    assert!(door.taken() < 4000, "before all that was said");
    door.cut();
    eventually("an empty spool", || kept(&slot) == 0);
    newer.call("session/load", json!({"sessionId": session, "cwd": "/", "mcpServers": []}));
    let cancel =
        json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}});
    newer.send_text(&cancel.to_string());
    assert_eq!(newer.turn(&session, "on").0, "end_turn");
    worker.stop();
}

/// A replay lies on the disk already, and its client takes none of it: what the agent says meanwhile must not wait behind it.
#[test]
fn an_agent_does_not_wait_for_a_client_that_does_not_take_its_replay() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let (worker, address) = slot.serve();
    let mut door = Door::attach(address, &slot.token(Audience::Attach));
    let session = door.session();
    let id = door.prompt(&session, "!updates 60 100000");
    door.answer(id);
    drop(door);
    let mut door = Door::attach(address, &slot.token(Audience::Attach));
    let load = door.load(&session);
    let turn = door.prompt(&session, "!updates 350 65536");
    // The past and the turn, which goes by without one byte being read.
    eventually("the turn's end", || kept(&slot) > 26_000_000 && !is_busy(&slot, address));
    let peak = peak(worker.pid().as_raw());
    assert!(peak < 64 * 1024, "{peak} KiB");
    for (id, count) in [(load, 60), (turn, 350)] {
        let (answer, updates) = door.answer(id);
        assert!(answer.get("error").is_none(), "{answer}");
        assert_eq!(numbers(&updates), (1..=count).collect::<Vec<u64>>());
    }
    eventually("an empty spool", || kept(&slot) == 0);
    worker.stop();
}

/// How often a figure is taken.
const ROUNDS: usize = 5;

/// Until the agent has ended its turn, the asking included.
fn until_idle(slot: &Slot, address: SocketAddr, since: Instant) -> Duration {
    while is_busy(slot, address) {
        assert!(since.elapsed() < LONG, "a cancelled turn does not end");
    }
    since.elapsed()
}

#[test]
fn where_no_more_can_be_kept_the_agent_waits_and_then_its_turn_is_cancelled_with_a_reason() {
    let mut slot = Slot::new(Tier::Domain, Who::User);
    (slot.config.kept, slot.config.blocked_ttl) = (8 << 20, 2);
    let (worker, address) = slot.serve();
    let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
    client.initialize();
    let session = client.new_session();
    let id = client.prompt(&session, "!updates 4000 65536");
    eventually("a turn that is given up", || worker.log().contains("its turn was cancelled"));
    assert!(kept(&slot) < 9 << 20, "{}", kept(&slot));
    // Nothing of what was said by then is lost, and who reads again is told why.
    let (answer, updates) = client.answer(id);
    assert_eq!(answer["result"]["stopReason"], "cancelled");
    let told =
        |update: &Value| update.to_string().contains("nobody took what the agent said for 2 s");
    assert_eq!(updates.iter().filter(|update| told(update)).count(), 1);
    let numbers: Vec<u64> = updates
        .iter()
        .filter_map(|update| update["params"]["update"]["content"]["text"].as_str())
        .filter_map(|text| text.split(' ').next()?.parse().ok())
        .collect();
    let whole: Vec<u64> = (1..=numbers.len() as u64).collect();
    assert!(numbers.len() > 300 && numbers == whole, "{}", numbers.len());
    assert_eq!(client.turn(&session, "on").1, "echo: on");
    let control = slot.token(Audience::Control);
    let metrics = call(address, "GET", "/metrics", Some(&control), "").1;
    assert!(metrics.contains("\ncasemate_blocked_turns_total 1\n"), "{metrics}");
    worker.stop();
}

/// The same where the client is away, and comes back by its ticket.
#[test]
fn a_full_spool_at_the_resumable_door_loses_nothing_and_the_turn_is_cancelled_with_a_reason() {
    let mut slot = Slot::new(Tier::Domain, Who::User);
    (slot.config.kept, slot.config.blocked_ttl) = (8 << 20, 2);
    let (worker, address) = slot.serve();
    let mut door = Door::attach(address, &slot.token(Audience::Attach));
    let session = door.session();
    let id = door.prompt(&session, "!updates 4000 65536");
    door.cut();
    eventually("a turn that is given up", || worker.log().contains("its turn was cancelled"));
    assert!((7 << 20..9 << 20).contains(&kept(&slot)), "{}", kept(&slot));
    door.again().unwrap();
    let (answer, updates) = door.answer(id);
    assert_eq!(answer["result"]["stopReason"], "cancelled");
    let numbers = numbers(&updates);
    let whole: Vec<u64> = (1..=numbers.len() as u64).collect();
    assert!((100..4000).contains(&numbers.len()) && numbers == whole, "{}", numbers.len());
    let told = updates
        .iter()
        .filter(|update| update.to_string().contains("nobody took what the agent said for 2 s"));
    assert_eq!(told.count(), 1);
    eventually("an empty spool", || kept(&slot) == 0);
    let id = door.prompt(&session, "on");
    assert_eq!(door.answer(id).0["result"]["stopReason"], "end_turn");
    worker.stop();
}
