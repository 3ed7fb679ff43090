//! A client that does not read: bounded in memory, then closed with a reason, and nobody else suffers.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use casemate_protocol::tier::Tier;
use casemate_protocol::token::Audience;

use crate::client::{Client, Closed};
use crate::harness::{Slot, Who};

/// Peak resident memory of a process, in KiB.
fn peak(pid: i32) -> u64 {
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

#[test]
fn a_client_that_takes_nothing_is_closed_and_costs_a_bounded_amount_of_memory() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let (worker, address) = slot.serve();
    let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
    client.initialize();
    let session = client.new_session();
    client.prompt(&session, "!updates 4000 65536");
    // 30 s after the queue was full; filling it takes what a busy machine takes.
    let until = Instant::now() + Duration::from_secs(120);
    while !worker.log().contains("too slow") {
        assert!(Instant::now() < until, "{}", worker.log());
        std::thread::sleep(Duration::from_millis(200));
    }
    // The cut connection still holds what the kernel had taken; then the close, or the end.
    let closed = loop {
        if let Err(closed) = client.receive() {
            break closed;
        }
    };
    if let Closed::With(code, _) = &closed {
        assert_eq!(*code, 1008, "{closed:?}");
    }
    let peak = peak(worker.pid().as_raw());
    assert!(peak < 64 * 1024, "{peak} KiB");
    let mut next = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
    next.initialize();
    worker.stop();
}
