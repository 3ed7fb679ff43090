//! What a frame reads, and what it refuses.

use super::*;

#[test]
fn the_spliced_line_differs_in_nothing_but_the_range() {
    let line = br#" {"b":1.0e+2,"params":{"x":"\u00e9","sessionId":"old"},"method":"m","id":7 } "#;
    let frame = Frame::parse(line).unwrap();
    let spliced = frame.splice(vec![
        (frame.locate(&["params", "sessionId"]).unwrap(), "\"new\"".into()),
        (frame.id_range().unwrap(), "123456".into()),
    ]);
    let expected =
        br#" {"b":1.0e+2,"params":{"x":"\u00e9","sessionId":"new"},"method":"m","id":123456 } "#;
    assert_eq!(String::from_utf8(spliced).unwrap(), String::from_utf8(expected.to_vec()).unwrap());
}

#[test]
fn kinds_are_told_apart() {
    let kind = |line: &str| Frame::parse(line.as_bytes()).map(|frame| frame.kind());
    assert_eq!(kind(r#"{"id":0,"method":"m"}"#), Ok(Kind::Request));
    assert_eq!(kind(r#"{"method":"m"}"#), Ok(Kind::Notification));
    assert_eq!(kind(r#"{"id":"a","result":null}"#), Ok(Kind::Response));
    assert_eq!(kind(r#"{"id":1}"#), Err(FrameError::NoKind));
    assert!(matches!(kind("[]"), Err(FrameError::NotJson(_))));
    assert!(matches!(kind("hello"), Err(FrameError::NotJson(_))));
    assert!(matches!(kind(r#"{"id":1,"method":"m"} x"#), Err(FrameError::NotJson(_))));
}

#[test]
fn a_member_given_twice_is_refused_even_when_escaped() {
    let line = br#"{"id":1,"method":"m","\u0069d":2}"#;
    assert_eq!(Frame::parse(line).unwrap_err(), FrameError::Duplicate("id".into()));
}

#[test]
fn control_characters_are_no_json_but_their_escapes_are() {
    for line in [&b"\0"[..], b"{\"id\":1,\"method\":\"a\0b\"}", b"{\"id\":1,\"method\":\"m\"}\0"] {
        assert!(matches!(Frame::parse(line), Err(FrameError::NotJson(_))), "{line:?}");
    }
    let line = br#"{"method":"a\u0000b","params":{"sessionId":"\u0000"}}"#;
    let frame = Frame::parse(line).unwrap();
    assert_eq!(frame.method(), "a\0b");
    assert_eq!(frame.session().and_then(string).as_deref(), Some("\0"));
}

#[test]
fn what_is_not_text_is_refused_and_says_where() {
    assert_eq!(Frame::parse(b"{\"method\":\"\xff\"}").unwrap_err(), FrameError::NotUtf8 { at: 11 });
    assert_eq!(
        Frame::parse(br#"{"method":"\ud800"}"#).unwrap_err(),
        FrameError::WrongType("method")
    );
}

#[test]
fn an_error_does_not_repeat_what_the_line_said() {
    for line in [r#""hunter2""#, r#"["hunter2"]"#, r#"{"method":"hunter2"#, r#"{"hunter2":1}"#] {
        let error = Frame::parse(line.as_bytes()).unwrap_err().to_string();
        assert!(!error.contains("hunter"), "{error}");
    }
}

#[test]
fn depth_is_refused_without_recursion() {
    // A thread of its own with a small stack: recursion would overflow it long before a million levels.
    let walk = || {
        let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        let n = 1_000_000;
        for line in [
            format!(r#"{{"method":"m","params":{}}}"#, deep(n)),
            format!(r#"{{"id":1,"result":{}}}"#, deep(n)),
            format!(
                r#"{{"method":"m","params":{{"update":{{"x":{}}},"sessionId":"s"}}}}"#,
                deep(n)
            ),
            format!(r#"{{"method":"m","x":{}}}"#, r#"{"a":"#.repeat(n) + "1" + &"}".repeat(n)),
        ] {
            let parsed = Frame::parse(line.as_bytes()).map(|frame| frame.kind());
            assert_eq!(parsed, Err(FrameError::TooDeep));
            assert!(answered_by(&line).is_none_or(|id| id == "1"));
        }
        let open = format!(r#"{{"method":"m","params":{}"#, "[".repeat(n));
        assert!(matches!(Frame::parse(open.as_bytes()), Err(FrameError::NotJson(_))));
    };
    std::thread::Builder::new().stack_size(256 * 1024).spawn(walk).unwrap().join().unwrap();
}

#[test]
fn the_deepest_line_is_the_one_that_serde_json_reads() {
    // The message itself and a level each; brackets in strings and side by side do not count.
    for (depth, deep) in [(MAX_DEPTH, false), (MAX_DEPTH + 1, true)] {
        let levels = depth - 1;
        let arrays = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let objects = format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
        for value in [arrays, objects] {
            let beside = "[{}],".repeat(500);
            let line = format!(r#"{{"method":"[[{{\\","x":[{beside}"\""],"params":{value}}}"#);
            assert_eq!(Frame::parse(line.as_bytes()).err(), deep.then_some(FrameError::TooDeep));
            assert_eq!(serde_json::from_str::<serde_json::Value>(&line).is_err(), deep);
        }
    }
}

#[test]
fn a_watched_member_given_twice_is_refused_where_it_counts_and_only_there() {
    let parse = |line: &str| Frame::parse(line.as_bytes()).map(|_| ());
    for name in ["sessionId", "cwd", "mcpServers", "prompt", "requestId"] {
        let line = format!(r#"{{"method":"m","params":{{"{name}":1,"a":2,"{name}":3}}}}"#);
        assert_eq!(parse(&line), Err(FrameError::Duplicate(name.into())));
    }
    assert_eq!(parse(r#"{"method":"m","params":{"_meta":{"cwd":1,"cwd":2},"x":1,"x":2}}"#), Ok(()));
    let twice = r#"{"method":"m","params":{"update":{"sessionUpdate":"a","sessionUpdate":"b"}}}"#;
    assert_eq!(parse(twice), Err(FrameError::Duplicate("sessionUpdate".into())));
    assert_eq!(
        parse(r#"{"method":"m","params":{},"params":{}}"#),
        Err(FrameError::Duplicate("params".into()))
    );
}

#[test]
fn a_member_that_a_lax_reader_takes_for_a_watched_one_is_refused() {
    let parse = |line: String| Frame::parse(line.as_bytes()).map(|_| ());
    for (name, spellings) in [
        ("jsonrpc", ["JSONRPC", "JsonRpc"]),
        ("id", ["ID", "\u{130}d"]),
        ("method", ["Method", r"\u004dethod"]),
        ("params", ["PARAMS", "param\u{17f}"]),
        ("result", ["Result", "re\u{17f}ult"]),
        ("error", ["Error", "ERROR"]),
    ] {
        for spelling in spellings {
            let line = format!(r#"{{"id":1,"method":"m","{spelling}":1}}"#);
            assert_eq!(parse(line), Err(FrameError::Lookalike(name)), "{spelling}");
        }
    }
    for (name, spelling) in [
        ("sessionId", "SessionID"),
        ("sessionId", "\u{17f}essionId"),
        ("requestId", "RequestId"),
        ("mcpServers", "mcpservers"),
        ("cwd", "CWD"),
        ("update", "Update"),
    ] {
        let line = format!(r#"{{"method":"m","params":{{"sessionId":"s","{spelling}":"t"}}}}"#);
        assert_eq!(parse(line), Err(FrameError::Lookalike(name)), "{spelling}");
        let line = format!(
            r#"{{"method":"m","params":{{"_meta":{{"{spelling}":"t"}}}},"x":{{"Method":1}}}}"#
        );
        assert_eq!(parse(line), Ok(()), "{spelling} where nobody looks");
    }
    let line = r#"{"method":"m","params":{"update":{"sessionUpdate":"a","SESSIONUPDATE":"b"}}}"#;
    assert_eq!(parse(line.into()), Err(FrameError::Lookalike("sessionUpdate")));
    let line = r#"{"id":1,"result":{"sessionId":"s","SessionId":"t"}}"#;
    assert_eq!(parse(line.into()), Err(FrameError::Lookalike("sessionId")));
    let line = r#"{"id":1,"result":{"sessionId":"s","sessionId":"t"}}"#;
    assert_eq!(parse(line.into()), Err(FrameError::Duplicate("sessionId".into())));
}

#[test]
fn what_asks_does_not_answer() {
    for part in [r#""result":{}"#, r#""error":{"code":1}"#] {
        for head in [r#""id":1,"method":"m""#, r#""method":"m""#] {
            let line = format!("{{{head},{part}}}");
            assert_eq!(Frame::parse(line.as_bytes()).unwrap_err(), FrameError::TwoKinds);
        }
    }
}

#[test]
fn params_of_any_type_are_read() {
    for params in ["null", "true", "7", "-7", "1.5", "\"s\"", "[1,[2]]", "{}", r#"{"update":[]}"#] {
        let line = format!(r#"{{"method":"m","params":{params}}}"#);
        let frame = Frame::parse(line.as_bytes()).unwrap();
        assert_eq!(frame.part("params"), Some(params));
        assert_eq!((frame.session(), frame.update_kind()), (None, None));
    }
}

#[test]
fn a_million_members_are_read_in_linear_time() {
    // Comparing each with each would take minutes.
    let many: String = (0..1_000_000).map(|n| format!(r#""{n}":0,"#)).collect();
    let line = format!(r#"{{{many}"method":"m","params":{{{many}"sessionId":"s"}}}}"#);
    let frame = Frame::parse(line.as_bytes()).unwrap();
    assert_eq!(frame.session(), Some("\"s\""));
    assert_eq!(frame.get(&["params", "sessionId"]), Some("\"s\""));
}

proptest::proptest! {
    #[test]
    fn it_reads_what_a_json_library_reads(bytes in noise()) {
        let ours = Frame::parse(&bytes);
        let theirs = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&bytes);
        if let (Ok(frame), Ok(object)) = (&ours, &theirs) {
            let method = object.get("method").map(|method| method.as_str().unwrap());
            proptest::prop_assert_eq!(frame.method(), method.unwrap_or(""));
            let session = object.get("params").and_then(|params| params.get("sessionId"));
            let found = frame.session().map(|raw| serde_json::from_str(raw).unwrap());
            proptest::prop_assert_eq!(found, session.cloned());
            proptest::prop_assert_eq!(frame.splice(Vec::new()), bytes.clone());
        }
        if theirs.is_err() && std::str::from_utf8(&bytes).is_ok() {
            // Numbers out of a double's range and lone surrogates are ours to carry, theirs to refuse.
            let lenient = bytes.windows(2).any(|two| two == b"1e" || two == b"\\u");
            proptest::prop_assert!(ours.is_err() || lenient);
        }
    }
}

/// Objects of plausible members, and slices of them.
fn noise() -> impl proptest::strategy::Strategy<Value = Vec<u8>> {
    use proptest::prelude::*;
    let member = prop::sample::select(
        &[
            r#""id":1"#,
            r#""id":"a""#,
            r#" "method" : "m""#,
            r#""method":"\u006d""#,
            r#""params":{}"#,
            r#""params":{"sessionId":"s","update":{"sessionUpdate":"plan"}}"#,
            r#""params":[{"sessionId":1}]"#,
            r#""params":{"sessionId":{"a":[1e999]}}"#,
            r#""par\u0061ms":{"s\u0065ssionId":null}"#,
            r#""result":"\ud800""#,
            r#""error":{}"#,
            r#""x":[[],{},"]}"]"#,
            "\"y\":\n1",
        ][..],
    );
    (prop::collection::vec(member, 0..5), any::<prop::sample::Index>(), prop::bool::weighted(0.8))
        .prop_map(|(members, at, whole)| {
            let line = format!("{{{}}}", members.join(",")).into_bytes();
            if whole { line } else { line[..at.index(line.len())].to_vec() }
        })
}
