//! What one line of the agent costs the supervisor: `cargo bench -p casemate-protocol`.
//!
//! Each figure stands beside a full parse of the same line into a JSON tree, measured in the same run: the ratio is
//! what can be compared between machines.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use casemate_protocol::acp::frame::Frame;
use casemate_protocol::acp::server::{Conn, Event, Saved, Server, Settings};

/// The fastest of seven rounds, per call.
fn fastest(mut work: impl FnMut()) -> Duration {
    let round = |work: &mut dyn FnMut(), count: u32| {
        let start = Instant::now();
        (0..count).for_each(|_| work());
        start.elapsed()
    };
    let mut count = 1;
    while round(&mut work, count) < Duration::from_millis(20) {
        count *= 2;
    }
    (0..7).map(|_| round(&mut work, count)).min().unwrap_or_default() / count
}

/// A server with a running turn of the conversation `s`.
fn in_turn() -> Server {
    let settings = Settings { worktree: "/work".into(), permission_ttl_ms: 1 };
    let mut server = Server::new(settings, Saved::default(), 0);
    let mut out = Vec::new();
    let conn = Conn(1);
    for event in [
        Event::Connected(conn),
        Event::FromClient(conn, &Bytes::from_static(br#"{"id":0,"method":"initialize"}"#)),
        Event::FromAgent(&Bytes::from_static(br#"{"id":1,"result":{}}"#)),
        Event::FromClient(
            conn,
            &Bytes::from_static(br#"{"id":1,"method":"session/new","params":{}}"#),
        ),
        Event::FromAgent(&Bytes::from_static(br#"{"id":2,"result":{"sessionId":"s"}}"#)),
        Event::FromClient(
            conn,
            &Bytes::from_static(
                br#"{"id":2,"method":"session/prompt","params":{"sessionId":"s"}}"#,
            ),
        ),
    ] {
        server.handle(event, 0, &mut out);
    }
    server
}

fn main() {
    println!("{:>9}  {:>12}  {:>12}  {:>12}  {:>7}", "bytes", "Frame", "Server", "Value", "ratio");
    for size in [40, 4_000, 560_000] {
        let text = "a \\\"word\\\" of text ".repeat(size / 20 + 1);
        let line = format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{text}"}}}}}}}}"#
        );
        let line = Bytes::from(line);
        let frame = fastest(|| {
            black_box(Frame::parse(black_box(&line)).is_ok());
        });
        let mut server = in_turn();
        let mut out = Vec::new();
        let handled = fastest(|| {
            out.clear();
            server.handle(Event::FromAgent(black_box(&line)), 0, &mut out);
        });
        assert_eq!(out.len(), 2, "journaled and shown");
        let value = fastest(|| {
            black_box(serde_json::from_slice::<serde_json::Value>(black_box(&line)).is_ok());
        });
        let ratio = handled.as_secs_f64() / value.as_secs_f64();
        println!(
            "{:>9}  {frame:>12.1?}  {handled:>12.1?}  {value:>12.1?}  {ratio:>7.2}",
            line.len()
        );
    }
}
