//! No bytes of either side make the role panic, or break what it promises of its own output.

use proptest::prelude::*;

use super::*;

/// Parts of messages, whole and broken, that reach deep into the rules when put together at random.
const PARTS: [&str; 35] = [
    "\n\"x\":\r{}",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\u0000",
    "\\ud800",
    "\n",
    "\r",
    "\u{2028}",
    "null",
    "1",
    "-1e999",
    r#""id":1"#,
    r#""id":"a""#,
    r#""id":null"#,
    r#""method":"initialize""#,
    r#""method":"session/prompt""#,
    r#""method":"session/new""#,
    r#""method":"session/load""#,
    r#""method":"session/update""#,
    r#""method":"session/cancel""#,
    r#""method":"$/cancel_request""#,
    r#""params":{}"#,
    r#""params":[]"#,
    r#""params":{"sessionId":"s","prompt":[{}]}"#,
    r#""params":{"sessionId":"\ud800"}"#,
    r#""params":{"requestId":1}"#,
    r#""params":{"cwd":1,"mcpServers":{}}"#,
    r#""result":{}"#,
    r#""result":{"sessionId":"s"}"#,
    r#""error":{}"#,
];

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let part = prop::sample::select(&PARTS[..]);
    let soup =
        prop::collection::vec(part.clone(), 0..12).prop_map(|parts| parts.concat().into_bytes());
    let object = prop::collection::vec(part, 0..6)
        .prop_map(|parts| format!("{{{}}}", parts.join(",")).into_bytes());
    let truncated = (object.clone(), any::<prop::sample::Index>())
        .prop_map(|(line, at)| line[..at.index(line.len())].to_vec());
    prop_oneof![1 => prop::collection::vec(any::<u8>(), 0..60), 2 => soup, 6 => object, 1 => truncated]
}

#[derive(Debug, Clone)]
enum Noise {
    Client(Vec<u8>),
    Agent(Vec<u8>),
    Connect,
    Leave,
    Tick(u64),
}

fn noise() -> impl Strategy<Value = Noise> {
    prop_oneof![
        8 => bytes().prop_map(Noise::Client),
        8 => bytes().prop_map(Noise::Agent),
        1 => Just(Noise::Connect),
        1 => Just(Noise::Leave),
        1 => any::<u64>().prop_map(Noise::Tick),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn noise_never_panics_and_never_leaves_as_more_than_one_line(
        noises in prop::collection::vec(noise(), 0..80)
    ) {
        let mut room = Room::in_turn();
        let mut conn = 1;
        for noise in noises {
            let mut out = Vec::new();
            let now = room.now;
            match &noise {
                Noise::Client(line) => {
                    room.server.handle(Event::FromClient(Conn(conn), &line.to_vec().into()), now, &mut out);
                }
                Noise::Agent(line) => room.server.handle(Event::FromAgent(&line.to_vec().into()), now, &mut out),
                Noise::Connect => {
                    conn += 1;
                    room.server.handle(Event::Connected(Conn(conn)), now, &mut out);
                    let hello = br#"{"id":0,"method":"initialize"}"#;
                    room.server.handle(Event::FromClient(Conn(conn), &hello.to_vec().into()), now, &mut out);
                }
                Noise::Leave => room.server.handle(Event::Disconnected(Conn(conn)), now, &mut out),
                Noise::Tick(now) => {
                    room.now = *now;
                    room.server.handle(Event::Tick, *now, &mut out);
                }
            }
            for action in &out {
                let (Action::ToAgent(line)
                | Action::AnswerAgent(line)
                | Action::ToClient(_, line)
                | Action::Journal { line, .. }) =
                    action
                else {
                    continue;
                };
                prop_assert!(!line.contains(&b'\n') && !line.contains(&b'\r'));
                let valid = serde_json::from_slice::<&serde_json::value::RawValue>(line).is_ok();
                prop_assert!(valid, "{}", String::from_utf8_lossy(line));
            }
        }
    }
}
