//! One JSON-RPC 2.0 message on one line, read by byte ranges.
//!
//! A frame is never re-serialised: numbers, escapes, key order and unknown fields of a peer survive because
//! [`Frame::splice`] replaces byte ranges of the original line.
//!
//! Depth is no danger here: values off the spine are walked without recursion ([`walk`]); it may be one to whoever
//! reads next, so it has a limit ([`MAX_DEPTH`]). Names are compared after JSON's escapes are taken off, a member that
//! is read or replaced must not come twice, and no other may have its name in another case ([`folded`]), so nothing can
//! be hidden from a splice behind a spelling, whatever reads the line next.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use walk::{Bad, What};

mod fold;
mod id;
mod outline;
mod scan;
#[cfg(test)]
mod tests;
mod text;
mod walk;

pub use fold::folded;
pub use id::{canonical, same_id};
pub use outline::{Outline, Owed, Scanner};

/// The deepest nesting of objects and arrays that is relayed, the message itself being the first: what `serde_json`
/// reads by default. A parser that gives up on a deeper line may give up its connection, which other sessions share.
pub const MAX_DEPTH: usize = 127;

/// The longest line that is relayed, in bytes.
pub const MAX_LINE: usize = 64 * 1024 * 1024;

/// Why a line is not a frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Not UTF-8.
    #[error("not UTF-8 from byte {at} on")]
    NotUtf8 {
        /// How many bytes are.
        at: usize,
    },
    /// Not one JSON object. Says where, never what: a line may carry secrets, an error may reach a log.
    #[error("not a JSON object: {0}")]
    NotJson(String),
    /// The same member twice: peers disagree about which one counts, so a splice could be talked around.
    #[error("member `{0}` appears twice")]
    Duplicate(String),
    /// A member that is not the named one, but is to a reader that does not mind case (Go's): it would act on this one.
    #[error("a member is spelled like `{0}` but for its case")]
    Lookalike(&'static str),
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// A method and a result or an error: peers disagree about whether it asks or answers.
    #[error("both a method and a result or an error")]
    TwoKinds,
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
    /// What the line was read from, where it can be shared.
    shared: Option<&'a Bytes>,
    /// There are line breaks in it.
    breaks: bool,
    kind: Kind,
    method: Option<Cow<'a, str>>,
    id: Option<&'a str>,
    result: Option<&'a str>,
    error: Option<&'a str>,
    session: Option<&'a str>,
    update: Option<Cow<'a, str>>,
}

/// Where `part`, a slice of `whole`, lies in it.
fn range_in(whole: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr() as usize - whole.as_ptr() as usize;
    start..start + part.len()
}

/// The text of a JSON string; `None` for any other value, and for a lone surrogate.
#[must_use]
pub fn string(raw: &str) -> Option<Cow<'_, str>> {
    match raw.strip_prefix('"')?.strip_suffix('"') {
        // By far the most.
        Some(plain) if memchr::memchr2(b'\\', b'"', plain.as_bytes()).is_none() => {
            Some(Cow::Borrowed(plain))
        }
        _ => serde_json::from_str(raw).ok().map(Cow::Owned),
    }
}

/// The members of a JSON object in order, values as raw JSON; `None` for any other value.
#[must_use]
pub fn object(raw: &str) -> Option<Vec<(Cow<'_, str>, &str)>> {
    scan::members(raw)
}

/// The elements of a JSON array as raw JSON; `None` for any other value.
#[must_use]
pub fn array(raw: &str) -> Option<Vec<&str>> {
    let elements: Vec<&serde_json::value::RawValue> = serde_json::from_str(raw).ok()?;
    Some(elements.into_iter().map(serde_json::value::RawValue::get).collect())
}

/// The raw JSON of the member at `path` in raw JSON.
#[must_use]
pub fn member<'a>(raw: &'a str, path: &[&str]) -> Option<&'a str> {
    path.iter().try_fold(raw, |value, name| scan::member(value, name))
}

// === impl FrameError ===

impl FrameError {
    fn not_json(bad: Bad) -> Self {
        let what = match bad.what {
            What::Ends => "ends too early",
            What::Syntax => "syntax error",
            What::Kind => "wrong kind of value",
        };
        Self::NotJson(format!("{what} at byte {}", bad.at))
    }
}

// === impl Frame ===

impl<'a> Frame<'a> {
    /// Reads one line (with or without its line end).
    ///
    /// # Errors
    /// [`FrameError`] where the line is not one JSON-RPC message; arrays (batches) are refused as both SDKs do.
    pub fn parse(line: &'a [u8]) -> Result<Self, FrameError> {
        let text = std::str::from_utf8(line)
            .map_err(|error| FrameError::NotUtf8 { at: error.valid_up_to() })?;
        let found = scan::scan(text).map_err(FrameError::not_json)?;
        if let Some(name) = found.duplicate {
            return Err(FrameError::Duplicate(name.to_owned()));
        }
        if let Some(name) = found.lookalike {
            return Err(FrameError::Lookalike(name));
        }
        if found.depth > MAX_DEPTH {
            return Err(FrameError::TooDeep);
        }
        let method = match found.method {
            Some(raw) => Some(string(raw).ok_or(FrameError::WrongType("method"))?),
            None => None,
        };
        let id = found.id;
        if id
            .is_some_and(|raw| !raw.starts_with(|c: char| matches!(c, '"' | '-' | '0'..='9' | 'n')))
        {
            return Err(FrameError::WrongType("id"));
        }
        let answers = found.result.is_some() || found.error.is_some();
        let kind = match (&method, id) {
            (Some(_), _) if answers => return Err(FrameError::TwoKinds),
            (Some(_), Some(_)) => Kind::Request,
            (Some(_), None) => Kind::Notification,
            (None, _) if answers => Kind::Response,
            (None, _) => return Err(FrameError::NoKind),
        };
        Ok(Self {
            text,
            shared: None,
            breaks: found.breaks,
            kind,
            method,
            id,
            result: found.result,
            error: found.error,
            session: found.session,
            update: found.update.and_then(string),
        })
    }

    /// Reads one line as [`Self::parse`], for whoever passes it on as it is ([`Self::line`]).
    ///
    /// # Errors
    /// As there.
    pub fn of(line: &'a Bytes) -> Result<Self, FrameError> {
        Ok(Self { shared: Some(line), ..Self::parse(line)? })
    }

    /// The whole line, to be passed on. It is copied only where it was not read by [`Self::of`].
    #[must_use]
    pub fn line(&self) -> Bytes {
        let text = self.text.as_bytes();
        self.shared.map_or_else(|| Bytes::copy_from_slice(text), |line| line.slice_ref(text))
    }

    /// The line without line breaks, where it has any: it has them between its tokens only, where a space means the same.
    /// A reader of lines would take each part for a message of its own, which a nested object makes a forgery.
    #[must_use]
    pub fn on_one_line(&self) -> Option<Bytes> {
        let space = |byte: u8| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte };
        self.breaks.then(|| self.text.bytes().map(space).collect())
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
        self.id
    }

    /// The id where it is an integer, however the peer spells it (`7`, `7.0`).
    #[must_use]
    pub fn integer_id(&self) -> Option<u64> {
        let id = self.id()?;
        id.parse().ok().or_else(|| canonical(id).parse().ok())
    }

    /// `params`, `result` or `error` as raw JSON.
    #[must_use]
    pub fn part(&self, name: &str) -> Option<&'a str> {
        match name {
            "params" => self.get(&["params"]),
            "result" => self.result,
            "error" => self.error,
            _ => None,
        }
    }

    /// `params.sessionId` as raw JSON, found while parsing.
    #[must_use]
    pub fn session(&self) -> Option<&'a str> {
        self.session
    }

    /// `params.update.sessionUpdate`, found while parsing.
    #[must_use]
    pub fn update_kind(&self) -> Option<&str> {
        self.update.as_deref()
    }

    /// The byte range of the member at `path` (`["params", "sessionId"]`), for [`Frame::splice`].
    #[must_use]
    pub fn locate(&self, path: &[&str]) -> Option<Range<usize>> {
        self.get(path).map(|value| range_in(self.text, value))
    }

    /// The raw JSON of the member at `path`.
    #[must_use]
    pub fn get(&self, path: &[&str]) -> Option<&'a str> {
        member(self.text, path)
    }

    /// The text of the string at `path`.
    #[must_use]
    pub fn get_string(&self, path: &[&str]) -> Option<Cow<'a, str>> {
        self.get(path).and_then(string)
    }

    /// The byte range of the id.
    #[must_use]
    pub fn id_range(&self) -> Option<Range<usize>> {
        self.id.map(|raw| range_in(self.text, raw))
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
