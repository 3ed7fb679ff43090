//! Framing with the real programs: what the agent writes is what the host reads and the other way round, byte for byte but for
//! the spans that are spliced, whatever the lines look like, however they are cut, up to 64 MiB; and what is longer or no
//! message is refused or dropped while the stream goes on. Over `casemate acp` and over the plain door.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, which is what it is for")]

mod memory;
mod peer;
mod scene;

use casemate_protocol::acp::frame::MAX_LINE;
use casemate_suite::attach::resume;
use casemate_suite::place::Place;
use casemate_suite::recipe::{Part, Recipe};
use peer::Peer;
use scene::{Scene, Shape, chunk, exact, message, permission};
use serde_json::{Value, json};

/// Ids as hosts may write them.
const IDS: [&str; 14] = [
    "0",
    "7",
    "-7",
    "1.5",
    "-0.0",
    "1e400",
    "123456789012345678901234567890",
    "null",
    "\"\"",
    "\"0\"",
    "\"a b\"",
    r#""\u0041\"\\ é🙂""#,
    r#""\ud800""#,
    "\"{\\\"id\\\":1}\"",
];

/// Lengths of writes: a byte each, and such as fall between, across and upon the ends of characters and lines.
const PIECES: [&[usize]; 4] = [&[], &[1], &[1, 2, 3, 5, 7], &[4095, 1, 8191]];

/// Beside the spine anything may stand, twice as well, and names and white space as JSON allows them.
const ODD: &str = "\t{ \"x\":1.0e+2,\"x\" :-0, \"z\":[{\"id\":9,\"method\":\"m\"},\"}\\\"{\"],\"p\\u0061rams\" :{\"n\":123456789012345678901234567890,\
                   \"update\": {\"content\" :{\"text\":\"\\ud83d\\ude42 $FILL\\u0000\",\"type\":\"text\"},\"sessionUpdate\"\t:\"agent_message_chunk\",\"id\":5}, \
                   \"s\\u0065ssionId\"  :$SESSION ,\"_meta\":{\"sessionId\":\"other\",\"cwd\":1,\"cwd\":2}} ,\"_meta\":null,\"method\":\"session/\\u0075pdate\",\"json\\u0072pc\" : \"2.0\" } \t";

fn both_doors(test: impl Fn(&mut Scene)) {
    let place = Place::new();
    let (host, session) = Peer::host(&place);
    test(&mut Scene::new(host));
    // The bridge has left: the worker and its conversation stay.
    test(&mut Scene::new(Peer::client(&resume(&place, &session))));
}

#[test]
fn whatever_lines_look_like_every_byte_arrives_that_is_not_spliced() {
    both_doors(|scene| {
        for (round, id) in IDS.into_iter().enumerate() {
            let pieces = PIECES[round % PIECES.len()];
            let shape = [Shape::First, Shape::Last, Shape::Odd][round % 3];
            from_the_agent(scene, id, shape, pieces, [0, 1, 7, 300][round % 4]);
            from_the_client(scene, id, shape, pieces, [1, 0, 300, 7][round % 4]);
        }
    });
}

/// Updates, requests and an answer, with line ends of both kinds, and between them what is none.
fn from_the_agent(scene: &mut Scene, id: &str, shape: Shape, pieces: &[usize], times: usize) {
    let unit = "é漢🙂";
    let odd = Recipe::of(ODD, unit, times);
    let broken = Recipe::of(
        "{\"method\":\"session/update\",$CR\"params\":{\"sessionId\":$SESSION,$CR\"update\":{\"sessionUpdate\":\"plan\",\"x\":\"$FILL\"}}$CR}",
        unit,
        times,
    );
    scene.arrives(chunk(unit, times), "\n");
    scene.noise(b"DEBUG [1,2] \xc3\xa9", "\r\n");
    scene.noise(b"", "\n");
    scene.noise(b" \t", "\r\n");
    scene.arrives(odd, "\r\n");
    scene.noise(b"1", "\n");
    scene.noise(b"{", "\n");
    scene.noise(b"{\"method\":\"session/update\",", "\n");
    scene.noise(b"\xff\xfe\0", "\n");
    scene.noise(b"[{\"jsonrpc\":\"2.0\",\"method\":\"x\"}]", "\r\n");
    scene.arrives(broken, "\n");
    scene.asks(
        permission(id, unit, times),
        message(shape, "\"result\":{\"x\":\"$FILL\"}", unit, times),
        "\r\n",
    );
    scene.arrives(chunk("x", times), "\n");
    let answer =
        message(shape, "\"result\":{\"stopReason\":\"end_turn\",\"x\":\"$FILL\"}", unit, times);
    scene.turn(id, shape, Some(answer), pieces);
}

/// A request, a notification and a prompt of the client's; then the agent tells what it has heard.
fn from_the_client(scene: &mut Scene, id: &str, shape: Shape, pieces: &[usize], times: usize) {
    let body = "\"method\":\"_framing/x\",\"params\":{\"a\":\"$FILL\",\"sessionId\":$SESSION,\"b\":[1.50,{\"id\":3}]}";
    scene.says(&message(shape, body, "é漢🙂", times), id, "\r\n", pieces);
    let note = "{ \"params\" :{\"sessionId\":\t$SESSION,\"x\":\"$FILL\",\"x\":null},\"method\" : \"_framing/note\" }";
    scene.notes(&Recipe::of(note, "é漢🙂", times), "\n", pieces);
    if scene.peer.pid().is_some() {
        // Not a message of a WebSocket.
        scene.peer.write(b"", "\n", &[]);
        scene.peer.write(b" ", "\r\n", &[]);
    }
    for (line, code) in [(&b"1"[..], -32700), (b"{\"id\":", -32700), (b"{}", -32600)] {
        scene.peer.write(line, "\n", pieces);
        let refusal: Value = serde_json::from_slice(&scene.peer.read()).unwrap();
        assert_eq!((&refusal["id"], &refusal["error"]["code"]), (&Value::Null, &json!(code)));
    }
    scene.report(id, shape, pieces);
}

#[test]
fn lines_of_all_lengths_arrive_whole_up_to_64_mib_and_no_multiple_of_them_is_held_for_long() {
    const PIPE: usize = 64 << 10;
    const PIECE: usize = 1 << 20;
    both_doors(|scene| {
        for length in [
            200,
            4096,
            PIPE - 1,
            PIPE,
            PIPE + 1,
            PIECE - 1,
            PIECE,
            PIECE + 1,
            (3 << 20) + 5,
            9_999_991,
        ] {
            scene.arrives(exact(&chunk("x", 1), length), "\n");
            scene.turn("1", Shape::First, None, &[]);
            let line = message(
                Shape::Last,
                "\"method\":\"_framing/x\",\"params\":{\"sessionId\":$SESSION,\"x\":\"x\"}",
                "",
                0,
            );
            scene.says(&exact(&line, length), "\"up\"", "\n", &[]);
            scene.report("2", Shape::Last, &[]);
        }
        let before = memory::peaks(scene.peer.pid());
        scene.arrives(exact(&chunk("x", 1), MAX_LINE), "\r\n");
        scene.turn("1", Shape::First, None, &[]);
        let down = memory::peaks(scene.peer.pid());
        let line = message(
            Shape::First,
            "\"method\":\"_framing/x\",\"params\":{\"sessionId\":$SESSION,\"x\":\"x\"}",
            "",
            0,
        );
        scene.says(&exact(&line, MAX_LINE - 300), "\"up\"", "\r\n", &[]);
        scene.report("2", Shape::Last, &[]);
        scene.arrives_nothing_but_a_long_prompt(MAX_LINE - 300);
        let up = memory::peaks(scene.peer.pid());
        println!(
            "peaks in MiB, before, after 64 MiB down, after 64 MiB up: {before:?} {down:?} {up:?}"
        );
        memory::check(&up);
    });
}

#[test]
fn what_is_longer_is_refused_for_whoever_waits_and_the_stream_goes_on() {
    both_doors(|scene| {
        let bridged = scene.peer.pid().is_some();
        // An update, a request and an answer of the agent.
        scene.dropped(exact(&chunk("x", 1), MAX_LINE + 1), "\n");
        let asks = exact(&permission("\"long\"", "x", 1), MAX_LINE + 1);
        scene.dropped(asks, "\r\n");
        scene.arrives(chunk("after", 1), "\n");
        let answer = message(Shape::Last, "\"result\":{\"x\":\"x\"}", "", 0);
        scene.send_turn("\"over\"", Shape::First, Some(exact(&answer, MAX_LINE + 400)), &[]);
        let error: Value = serde_json::from_slice(&scene.peer.read()).unwrap();
        assert_eq!(
            (&error["id"], &error["error"]["code"]),
            (&json!("over"), &json!(-32603)),
            "{error}"
        );
        // The agent hears of its request, and nothing else was lost.
        scene.hears_refusal("\"long\"", -32600);
        scene.report("3", Shape::Last, &[]);
        if bridged {
            // The host's own: a request, and an answer.
            let line = message(
                Shape::Last,
                "\"method\":\"_framing/x\",\"params\":{\"sessionId\":$SESSION,\"x\":\"x\"}",
                "",
                0,
            );
            scene.goes_no_further(&exact(&line, MAX_LINE + 400), "\"up\"");
            let error: Value = serde_json::from_slice(&scene.peer.read()).unwrap();
            assert_eq!(
                (&error["id"], &error["error"]["code"]),
                (&json!("up"), &json!(-32600)),
                "{error}"
            );
            assert_eq!(error["error"]["data"]["casemate"]["delivery"], "not_delivered");
            let answer = message(Shape::Last, "\"result\":{\"x\":\"x\"}", "", 0);
            scene.asks_in_vain(permission("\"p\"", "x", 1), exact(&answer, MAX_LINE + 400));
            scene.turn("4", Shape::Last, None, &[]);
            scene.hears_refusal("\"p\"", -32603);
            scene.report("5", Shape::First, &[]);
        } else {
            let line = Recipe(vec![
                Part::Text("{\"method\":\"_framing/note\",\"x\":\"".into()),
                Part::Fill("x".into(), MAX_LINE),
            ]);
            scene.goes_no_further(&line, "0");
            assert_eq!(scene.peer.closed().map(u16::from), Some(1009));
        }
    });
}
