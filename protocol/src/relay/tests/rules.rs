//! What the specification forbids, and what it promises in numbers.

use bytes::Bytes;

use crate::acp::frame::MAX_LINE;
use crate::codes::close;
use crate::relay::bridge::{Action, BridgeEnd};
use crate::relay::flow::{Brought, Flow};
use crate::relay::frame::{Frame, Packet, Standing};
use crate::relay::outgoing::Kept;
use crate::relay::supervisor::SupervisorEnd;
use crate::relay::{KEEP_MS, LANE, PIECE, Violation, WINDOW};

fn hello(seq: u64) -> Bytes {
    Frame::Hello(Standing { seq, limit: WINDOW }).to_bytes()
}

fn piece(seq: u64, last: bool, length: usize) -> Bytes {
    Frame::Piece { seq, last, bytes: vec![b'x'; length].into() }.to_bytes()
}

/// A worker's end with an open connection.
fn worker() -> Flow {
    let mut flow = Flow::worker(1, "t".into(), 1 << 20);
    flow.opened();
    flow.frame().expect("a greeting");
    flow
}

fn greeted() -> Flow {
    let mut flow = worker();
    flow.take(&hello(0)).unwrap();
    flow
}

#[test]
fn each_breach_is_named() {
    assert_eq!(worker().take(&piece(1, true, 1)), Err(Violation::Greeting));
    assert_eq!(greeted().take(&hello(0)), Err(Violation::Greeting));
    let welcome =
        Frame::Welcome { epoch: 1, standing: Standing { seq: 0, limit: 0 }, ticket: "t".into() };
    assert_eq!(worker().take(&welcome.to_bytes()), Err(Violation::Greeting));
    assert_eq!(worker().take(&hello(1)), Err(Violation::Lost));
    let gap = Violation::Gap { wanted: 1, got: 2 };
    assert_eq!(greeted().take(&piece(2, true, 1)), Err(gap));
    assert_eq!(greeted().take(&piece(1, true, PIECE + 1)), Err(Violation::LongPiece));
    let ack = Frame::Ack(Standing { seq: 1, limit: 0 }).to_bytes();
    assert_eq!(greeted().take(&ack), Err(Violation::Lost));
    assert_eq!(greeted().take(&Bytes::from_static(b"?")), Err(Violation::Malformed));
    let mut flow = greeted();
    flow.take(&piece(1, true, PIECE)).unwrap();
    assert_eq!(flow.take(&piece(2, true, 1)), Err(Violation::Window));
}

#[test]
fn a_message_of_64_mib_passes_and_one_byte_more_does_not() {
    let mut flow = greeted();
    for _ in 0..MAX_LINE / PIECE - 1 {
        assert_eq!(flow.take(&piece(1, false, PIECE)), Ok(Brought::Nothing));
        let told =
            flow.frame().expect("a message in the making does not close the window").to_bytes();
        assert!(matches!(Frame::parse(&told), Ok(Frame::Ack(_))));
    }
    let mut longer = flow.clone();
    longer.take(&piece(1, false, PIECE)).unwrap();
    longer.frame().expect("an acknowledgement");
    assert_eq!(longer.take(&piece(1, true, 1)), Err(Violation::LongMessage));
    let whole = flow.take(&piece(1, true, PIECE)).unwrap();
    assert!(matches!(whole, Brought::Message(1, line) if line.len() == MAX_LINE));
}

#[test]
fn a_long_message_goes_out_in_pieces_of_one_mib_as_the_window_opens() {
    let mut flow = greeted();
    assert_eq!(flow.push(vec![b'y'; 3 * PIECE + 1]), Kept::Here);
    let mut lengths = Vec::new();
    for round in 1..=4u64 {
        let bytes = flow.frame().expect("a piece").to_bytes();
        assert_eq!(flow.frame(), None, "the window is full");
        let Ok(Frame::Piece { seq: 1, last, bytes }) = Frame::parse(&bytes) else { panic!() };
        lengths.push(bytes.len());
        assert_eq!(last, round == 4);
        let limit = (round + 1) * WINDOW;
        flow.take(&Frame::Ack(Standing { seq: 0, limit }).to_bytes()).unwrap();
    }
    assert_eq!(lengths, [PIECE, PIECE, PIECE, 1]);
}

#[test]
fn a_message_that_came_twice_is_given_out_once() {
    let mut flow = greeted();
    assert_eq!(flow.take(&piece(1, true, 1)), Ok(Brought::Message(1, "x".into())));
    assert_eq!(flow.take(&piece(1, true, 1)), Ok(Brought::Nothing));
}

#[test]
fn what_waits_for_a_turn_is_not_acknowledged_and_keeps_nothing_out() {
    let mut flow = greeted();
    flow.take(&piece(1, true, PIECE)).unwrap();
    assert_eq!(flow.frame(), None);
    flow.taken(1);
    let ack = flow.frame().expect("room").to_bytes();
    let standing = Standing { seq: 0, limit: 2 * WINDOW };
    assert_eq!(Frame::parse(&ack), Ok(Frame::Ack(standing)));
    flow.take(&piece(2, true, 1)).unwrap();
    flow.settled(2);
    let ack = flow.frame().expect("an acknowledgement").to_bytes();
    let standing = Standing { seq: 2, limit: 2 * WINDOW + 1 };
    assert_eq!(Frame::parse(&ack), Ok(Frame::Ack(standing)));
}

/// The standing that a frame acknowledges.
fn acknowledged(frame: Option<Packet>) -> Option<u64> {
    match Frame::parse(&frame?.to_bytes()) {
        Ok(Frame::Ack(standing)) => Some(standing.seq),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_acknowledgement_may_wait_but_neither_for_many_nor_for_the_end() {
    let mut flow = greeted();
    flow.take(&piece(1, true, 1)).unwrap();
    assert!(!flow.owes());
    flow.settled(1);
    assert!(flow.owes() && flow.pressing().is_none());
    assert_eq!(acknowledged(flow.acknowledgement()), Some(1));
    assert!(!flow.owes() && flow.acknowledgement().is_none());
    for seq in 2..=257 {
        flow.take(&piece(seq, true, 1)).unwrap();
        flow.settled(seq);
    }
    assert_eq!(acknowledged(flow.pressing()), Some(257));
    flow.take(&piece(258, true, 1)).unwrap();
    flow.settled(258);
    for patient in [false, true] {
        let mut flow = flow.clone();
        flow.bye(close::AGENT_GONE, "gone", patient);
        assert_eq!(acknowledged(flow.pressing()), Some(258));
        let bye = flow.pressing().expect("a bye").to_bytes();
        assert!(matches!(Frame::parse(&bye), Ok(Frame::Bye { code: close::AGENT_GONE, .. })));
        assert!(!flow.owes() && flow.frame().is_none());
    }
}

#[test]
fn a_cut_attachment_is_kept_for_ten_minutes() {
    let mut end = SupervisorEnd::new(1, "t".into(), 1, 0);
    assert!(end.opened());
    assert_eq!(end.deadline(), None);
    end.cut(5);
    end.tick(5 + KEEP_MS - 1);
    assert!(!end.is_over());
    end.tick(5 + KEEP_MS);
    assert!(end.is_over() && !end.opened());
}

#[test]
fn an_end_comes_after_the_data_also_over_a_later_connection() {
    let mut end = SupervisorEnd::new(1, "t".into(), 1 << 20, 0);
    assert!(end.opened());
    end.frame().expect("a greeting");
    end.take(&hello(0)).unwrap();
    assert_eq!(end.push(b"last words".to_vec()), Kept::Here);
    end.leave(close::AGENT_GONE, "gone", 0);
    end.frame().expect("the message");
    end.cut(0);
    assert!(end.opened());
    end.take(&hello(0)).unwrap();
    let kinds: Vec<u8> =
        std::iter::from_fn(|| end.frame()).map(|frame| frame.to_bytes()[0]).collect();
    assert_eq!(kinds, [2, 4, 6]);
    assert!(!end.is_over(), "until the client has answered");
    end.take(&Frame::Bye { code: 1000, reason: "".into() }.to_bytes()).unwrap();
    assert!(end.is_over());
}

#[test]
fn a_bridge_asks_after_three_failures_and_gives_up_after_eleven_minutes() {
    let mut bridge = BridgeEnd::new();
    let mut out = Vec::new();
    let welcome =
        Frame::Welcome { epoch: 1, standing: Standing { seq: 0, limit: 0 }, ticket: "t".into() };
    bridge.take(&welcome.to_bytes(), &mut out).unwrap();
    let mut now = 0;
    let mut asked = 0;
    bridge.cut(now, 0, &mut out);
    while !bridge.is_over() {
        now = bridge.deadline().expect("it dials again");
        bridge.tick(now, &mut out);
        assert_eq!(out.pop(), Some(Action::Dial("t".into())));
        bridge.cut(now, 0, &mut out);
        asked += out.iter().filter(|action| **action == Action::Ask).count();
        out.retain(|action| *action != Action::Ask);
    }
    assert!(asked > 10, "{asked}");
    assert!((KEEP_MS + 60_000..KEEP_MS + 80_000).contains(&now), "{now}");
    assert!(matches!(&out[..], [Action::Over(over)] if over.code.is_none() && !over.agent_ended));
}

#[test]
fn without_a_welcome_there_is_nothing_to_come_back_to() {
    let mut bridge = BridgeEnd::new();
    let mut out = Vec::new();
    bridge.cut(0, 0, &mut out);
    assert!(matches!(&out[..], [Action::Over(over)] if over.reach.sent == 0));
}

#[test]
fn a_copy_goes_ahead_of_what_waits_and_its_message_comes_empty() {
    let mut client = Flow::client();
    client.opened();
    client.frame().expect("a greeting");
    let standing = Standing { seq: 0, limit: 4 };
    let welcome = Frame::Welcome { epoch: 1, standing, ticket: "t".into() };
    client.take(&welcome.to_bytes()).unwrap();
    assert_eq!(client.push(b"one".to_vec()), Kept::Here);
    assert_eq!(client.push(b"a long one".to_vec()), Kept::Here);
    assert_eq!(client.hurry(b"stop".to_vec(), 1), Kept::Here);
    let mut worker = greeted();
    let mut given = Vec::new();
    while let Some(frame) = client.frame() {
        given.push(worker.take(&frame.to_bytes()).unwrap());
    }
    let ahead = Brought::Ahead(3, "stop".into());
    assert_eq!(given, [Brought::Message(1, "one".into()), ahead, Brought::Nothing]);
    client.take(&Frame::Ack(Standing { seq: 1, limit: 99 }).to_bytes()).unwrap();
    let rest: Vec<_> = std::iter::from_fn(|| client.frame()).collect();
    let rest: Vec<_> = rest.iter().map(|frame| worker.take(&frame.to_bytes()).unwrap()).collect();
    assert_eq!(rest, [Brought::Message(2, "a long one".into()), Brought::Message(3, Bytes::new())]);
}

#[test]
fn only_what_was_never_sent_is_taken_back_and_comes_empty() {
    let mut client = Flow::client();
    client.opened();
    client.frame().expect("a greeting");
    assert_eq!(client.push(b"one".to_vec()), Kept::Here);
    assert_eq!(client.push(b"two".to_vec()), Kept::Here);
    assert!(client.revoke(2) && client.bytes_kept() == 3);
    let standing = Standing { seq: 0, limit: 99 };
    let welcome = Frame::Welcome { epoch: 1, standing, ticket: "t".into() };
    client.take(&welcome.to_bytes()).unwrap();
    let frames: Vec<_> = std::iter::from_fn(|| client.frame()).collect();
    let mut worker = greeted();
    let given: Vec<_> =
        frames.iter().map(|frame| worker.take(&frame.to_bytes()).unwrap()).collect();
    assert_eq!(given, [Brought::Message(1, "one".into()), Brought::Message(2, Bytes::new())]);
    assert!(!client.revoke(1) && !client.revoke(2) && !client.revoke(9));
}

#[test]
fn a_copy_is_short_and_of_a_client_alone() {
    let copy = |length| Frame::Ahead { seq: 2, bytes: vec![b'x'; length].into() }.to_bytes();
    assert!(matches!(greeted().take(&copy(LANE)), Ok(Brought::Ahead(2, _))));
    assert_eq!(greeted().take(&copy(LANE + 1)), Err(Violation::LongCopy));
    assert_eq!(worker().take(&copy(1)), Err(Violation::Greeting));
    let mut client = Flow::client();
    client.opened();
    let standing = Standing { seq: 0, limit: 99 };
    let welcome = Frame::Welcome { epoch: 1, standing, ticket: "t".into() };
    client.take(&welcome.to_bytes()).unwrap();
    assert_eq!(client.take(&copy(1)), Err(Violation::Malformed));
    let mut flow = greeted();
    flow.take(&piece(1, true, 1)).unwrap();
    let late = Frame::Ahead { seq: 1, bytes: b"x"[..].into() }.to_bytes();
    assert_eq!(flow.take(&late), Ok(Brought::Nothing), "it was given out");
    for seq in 2..66 {
        let frame = Frame::Ahead { seq, bytes: b"x"[..].into() }.to_bytes();
        assert!(matches!(flow.take(&frame), Ok(Brought::Ahead(..))));
    }
    let frame = Frame::Ahead { seq: 66, bytes: b"x"[..].into() }.to_bytes();
    assert_eq!(flow.take(&frame), Ok(Brought::Nothing), "it comes in its turn");
}
