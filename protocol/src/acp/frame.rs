//! One JSON-RPC 2.0 message on one line, read by byte ranges.
//!
//! A frame is never re-serialised: numbers, escapes, key order and unknown fields of a peer survive because
//! [`Frame::splice`] replaces byte ranges of the original line.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The longest line that is relayed, in bytes.
pub const MAX_LINE: usize = 64 * 1024 * 1024;

/// Why a line is not a frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Not one JSON object in UTF-8.
    #[error("not a JSON object: {0}")]
    NotJson(String),
    /// The same member twice: peers disagree about which one counts, so a splice could be talked around.
    #[error("member `{0}` appears twice")]
    Duplicate(String),
    /// Neither a request nor a notification nor a response.
    #[error("neither a method nor a result nor an error")]
    NoKind,
    /// `id` is neither a string nor a number nor null, or `method` is not a string.
    #[error("`{0}` has the wrong type")]
    WrongType(&'static str),
}

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Has a method and an id: wants an answer.
    Request,
    /// Has a method and no id.
    Notification,
    /// Has a result or an error.
    Response,
}

/// A parsed line.
#[derive(Debug, Clone)]
pub struct Frame<'a> {
    text: &'a str,
    kind: Kind,
    method: Option<Cow<'a, str>>,
    id: Option<Range<usize>>,
    params: Option<Range<usize>>,
    result: Option<Range<usize>>,
    error: Option<Range<usize>>,
}

/// The members of a JSON object, in order, values as raw text.
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
        let mut members = Vec::with_capacity(8);
        while let Some(key) = map.next_key::<CowStr<'de>>()? {
            members.push((key.0, map.next_value::<&'de RawValue>()?));
        }
        Ok(Members(members))
    }
}

/// Borrows where the JSON string has no escapes (serde's own `Cow` always owns).
struct CowStr<'a>(Cow<'a, str>);

impl<'de> serde::Deserialize<'de> for CowStr<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = CowStr<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<CowStr<'de>, E> {
                Ok(CowStr(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<CowStr<'de>, E> {
                Ok(CowStr(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

fn members(object: &str) -> Result<Vec<(Cow<'_, str>, &RawValue)>, FrameError> {
    let mut reader = serde_json::Deserializer::from_str(object);
    let members = reader
        .deserialize_map(MembersVisitor)
        .and_then(|members| reader.end().map(|()| members))
        .map_err(|error| FrameError::NotJson(error.to_string()))?;
    let members = members.0;
    for (index, (key, _)) in members.iter().enumerate() {
        if members[..index].iter().any(|(other, _)| other == key) {
            return Err(FrameError::Duplicate(key.clone().into_owned()));
        }
    }
    Ok(members)
}

/// Where `part`, a slice of `whole`, lies in it.
fn range_in(whole: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr() as usize - whole.as_ptr() as usize;
    start..start + part.len()
}

/// The text of a JSON string; `None` for any other value.
#[must_use]
pub fn string(raw: &str) -> Option<Cow<'_, str>> {
    let mut reader = serde_json::Deserializer::from_str(raw);
    <CowStr<'_> as serde::Deserialize>::deserialize(&mut reader).ok().map(|text| text.0)
}

// === impl Frame ===

impl<'a> Frame<'a> {
    /// Reads one line (with or without its line end).
    ///
    /// # Errors
    /// [`FrameError`] where the line is not one JSON-RPC message; arrays (batches) are refused as both SDKs do.
    pub fn parse(line: &'a [u8]) -> Result<Self, FrameError> {
        let text =
            std::str::from_utf8(line).map_err(|error| FrameError::NotJson(error.to_string()))?;
        let mut frame = Self {
            text,
            kind: Kind::Notification,
            method: None,
            id: None,
            params: None,
            result: None,
            error: None,
        };
        for (key, value) in members(text)? {
            let range = range_in(text, value.get());
            match &*key {
                "id" => {
                    let valid =
                        matches!(value.get().as_bytes()[0], b'"' | b'-' | b'0'..=b'9' | b'n');
                    if !valid {
                        return Err(FrameError::WrongType("id"));
                    }
                    frame.id = Some(range);
                }
                "method" => {
                    frame.method = Some(string(value.get()).ok_or(FrameError::WrongType("method"))?)
                }
                "params" => frame.params = Some(range),
                "result" => frame.result = Some(range),
                "error" => frame.error = Some(range),
                _ => {}
            }
        }
        frame.kind = match (&frame.method, &frame.id) {
            (Some(_), Some(_)) => Kind::Request,
            (Some(_), None) => Kind::Notification,
            (None, _) if frame.result.is_some() || frame.error.is_some() => Kind::Response,
            (None, _) => return Err(FrameError::NoKind),
        };
        Ok(frame)
    }

    /// The whole line.
    #[must_use]
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The method of a request or notification; empty for a response.
    #[must_use]
    pub fn method(&self) -> &str {
        self.method.as_deref().unwrap_or("")
    }

    /// The id as raw JSON (`7`, `"x"`).
    #[must_use]
    pub fn id(&self) -> Option<&'a str> {
        self.id.clone().map(|range| &self.text[range])
    }

    /// The id where it is an integer.
    #[must_use]
    pub fn integer_id(&self) -> Option<u64> {
        self.id()?.parse().ok()
    }

    /// `params`, `result` or `error` as raw JSON.
    #[must_use]
    pub fn part(&self, name: &str) -> Option<&'a str> {
        let range = match name {
            "params" => &self.params,
            "result" => &self.result,
            "error" => &self.error,
            _ => return None,
        };
        range.clone().map(|range| &self.text[range])
    }

    /// The byte range of the member at `path` (`["params", "sessionId"]`), for [`Frame::splice`].
    #[must_use]
    pub fn locate(&self, path: &[&str]) -> Option<Range<usize>> {
        let mut value = self.text;
        for name in path {
            let found = members(value).ok()?.into_iter().find(|(key, _)| key == name)?;
            value = found.1.get();
        }
        Some(range_in(self.text, value))
    }

    /// The raw JSON of the member at `path`.
    #[must_use]
    pub fn get(&self, path: &[&str]) -> Option<&'a str> {
        self.locate(path).map(|range| &self.text[range])
    }

    /// The text of the string at `path`.
    #[must_use]
    pub fn get_string(&self, path: &[&str]) -> Option<Cow<'a, str>> {
        self.get(path).and_then(string)
    }

    /// The byte range of the id.
    #[must_use]
    pub fn id_range(&self) -> Option<Range<usize>> {
        self.id.clone()
    }

    /// The line with ranges replaced by raw JSON. Everything outside of the ranges is copied as it is.
    ///
    /// # Panics
    /// Where ranges overlap: they come from this frame's own disjoint members.
    #[must_use]
    pub fn splice(&self, mut edits: Vec<(Range<usize>, String)>) -> Vec<u8> {
        edits.sort_by_key(|(range, _)| range.start);
        let mut out = Vec::with_capacity(self.text.len() + 64);
        let mut at = 0;
        for (range, value) in edits {
            assert!(range.start >= at, "edits of one frame are disjoint");
            out.extend_from_slice(&self.text.as_bytes()[at..range.start]);
            out.extend_from_slice(value.as_bytes());
            at = range.end;
        }
        out.extend_from_slice(&self.text.as_bytes()[at..]);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spliced_line_differs_in_nothing_but_the_range() {
        let line =
            br#" {"b":1.0e+2,"params":{"x":"\u00e9","sessionId":"old"},"method":"m","id":7 } "#;
        let frame = Frame::parse(line).unwrap();
        let spliced = frame.splice(vec![
            (frame.locate(&["params", "sessionId"]).unwrap(), "\"new\"".into()),
            (frame.id_range().unwrap(), "123456".into()),
        ]);
        let expected = br#" {"b":1.0e+2,"params":{"x":"\u00e9","sessionId":"new"},"method":"m","id":123456 } "#;
        assert_eq!(
            String::from_utf8(spliced).unwrap(),
            String::from_utf8(expected.to_vec()).unwrap()
        );
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
}
