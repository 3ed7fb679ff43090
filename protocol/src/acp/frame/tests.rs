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
