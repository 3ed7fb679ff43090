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
            let owed = Outline::of(line.as_bytes()).owed;
            assert!(owed == Owed::Nobody || owed == Owed::Asker("1".into()));
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

/// An object's members in any order, with any white space around each token, and names spelled by escapes at will.
fn object(members: Vec<(String, String)>, blanks: Vec<String>, escape: Vec<bool>) -> String {
    let mut blanks = blanks.into_iter().cycle();
    let mut blank = || blanks.next().unwrap_or_default();
    let mut escape = escape.into_iter().cycle();
    let mut text = format!("{}{{{}", blank(), blank());
    for (at, (name, value)) in members.iter().enumerate() {
        if at > 0 {
            text.push_str(&format!(",{}", blank()));
        }
        let name: String = match escape.next() {
            Some(true) => name.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect(),
            _ => name.clone(),
        };
        text.push_str(&format!("\"{name}\"{}:{}{value}{}", blank(), blank(), blank()));
    }
    text + "}" + &blank()
}

/// Any JSON, as somebody might write it.
fn json() -> impl proptest::strategy::Strategy<Value = String> {
    use proptest::prelude::*;
    let leaf = prop_oneof![
        prop::sample::select(
            &["null", "0", "-0.0", "1e999", "1E+2", "\"\"", "\"\\ud83d\"", "\"\\/é🙂\""][..]
        )
        .prop_map(String::from),
        any::<i128>().prop_map(|number| number.to_string()),
        any::<f64>().prop_map(|number| serde_json::json!(number).to_string()),
        any::<String>().prop_map(|text| serde_json::json!(text).to_string()),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let names = prop::sample::select(&["id", "params", "sessionId", "a", "a"][..]);
        let members = prop::collection::vec((names.prop_map(String::from), inner.clone()), 0..4);
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(|all| format!("[ {}\t]", all.join(" , "))),
            (members, blanks(), Just(Vec::new())).prop_map(|(m, b, e)| object(m, b, e)),
        ]
    })
}

fn blanks() -> impl proptest::strategy::Strategy<Value = Vec<String>> {
    let blank = proptest::sample::select(&["", "", " ", "\t", "\r", "\n ", "  "][..]);
    proptest::collection::vec(proptest::strategy::Strategy::prop_map(blank, String::from), 1..9)
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(1024))]

    /// Two texts that differ in the spliced values alone: after the splice they are one.
    #[test]
    fn a_splice_leaves_every_other_byte(
        (others, id, session) in (proptest::collection::vec((0usize..9, json()), 0..6), json(), json()),
        (at, inner) in (0usize..7, 0usize..4),
        (outer_blanks, inner_blanks) in (blanks(), blanks()),
        escape in proptest::collection::vec(proptest::bool::ANY, 1..6),
        (new_id, new_session) in ("[0-9]{1,20}", "\"[a-zé]{0,40}\""),
    ) {
        use proptest::prelude::*;
        let names = ["_meta", "x", "\\u0069d2", "é", "x", "sessionID2", "Id_", "result2", "jsonrpc"];
        let build = |id: &str, session: &str| {
            let mut once = false;
            let mut members: Vec<(String, String)> = others
                .iter()
                // A watched name must not come twice.
                .filter(|(name, _)| *name != 8 || !std::mem::replace(&mut once, true))
                .map(|(name, value)| (names[*name].to_owned(), value.clone()))
                .collect();
            let mut params = members.iter().filter(|(name, _)| name != "jsonrpc").cloned().collect::<Vec<_>>();
            params.insert(inner.min(params.len()), ("sessionId".into(), session.to_owned()));
            let params = object(params, inner_blanks.clone(), escape.clone());
            for (name, value) in [("id", id), ("method", "\"m\""), ("params", params.as_str())] {
                let at = (at * name.len()) % (members.len() + 1);
                members.insert(at, (name.into(), value.to_owned()));
            }
            object(members, outer_blanks.clone(), escape.clone())
        };
        // Escaped twice over is no escape: names with a backslash stay as they are.
        prop_assume!(!escape.contains(&true) || others.iter().all(|(name, _)| *name != 2));
        let id = id.trim_matches([' ', '\t', '\r', '\n']);
        let id = if id.starts_with(['{', '[']) { "7".to_owned() } else { id.to_owned() };
        let before = build(&id, &session);
        let frame = Frame::parse(before.as_bytes());
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => return Err(TestCaseError::fail(format!("{error}: {before}"))),
        };
        prop_assert_eq!((frame.id(), frame.session()), (Some(id.as_str()), Some(session.trim_matches([' ', '\t', '\r', '\n']))));
        let spliced = frame.splice(vec![
            (frame.locate(&["params", "sessionId"]).unwrap(), new_session.clone()),
            (frame.id_range().unwrap(), new_id.clone()),
        ]);
        let session = session.as_str();
        let inside = session.trim_matches([' ', '\t', '\r', '\n']);
        let after = build(&new_id, &session.replacen(inside, &new_session, 1));
        prop_assert_eq!(String::from_utf8(spliced).unwrap(), after);
    }
}
