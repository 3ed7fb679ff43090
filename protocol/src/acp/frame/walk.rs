//! One pass over JSON text (RFC 8259): values are checked and passed over without recursion and without being built.
//!
//! By hand, because a relay looks at every byte of every line and wants nearly none of them: a general reader of JSON took more
//! time than all the rest of the relay together.

use std::borrow::Cow;

use super::{string, text};

/// Why the text is not JSON, and at which byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bad {
    pub(super) what: What,
    pub(super) at: usize,
}

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// It ends in the middle.
    Ends,
    /// No JSON.
    Syntax,
    /// JSON, and no object.
    Kind,
}

/// How far the walk is.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    text: &'a str,
    at: usize,
    open: Open,
    breaks: bool,
}

/// The objects and arrays around a place: for each whether it is an object.
#[derive(Debug, Default)]
struct Open {
    depth: usize,
    deepest: usize,
    /// The first 128, a bit each: few lines have more.
    first: u128,
    more: Vec<bool>,
}

impl Open {
    fn enter(&mut self, object: bool) {
        if self.depth < 128 {
            self.first = self.first & !(1 << self.depth) | u128::from(object) << self.depth;
        } else {
            self.more.push(object);
        }
        self.depth += 1;
        self.deepest = self.deepest.max(self.depth);
    }

    fn leave(&mut self) {
        self.depth -= 1;
        self.more.pop();
    }

    fn in_object(&self) -> bool {
        self.more.last().copied().unwrap_or_else(|| self.first >> (self.depth - 1) & 1 == 1)
    }
}

// === impl Walk ===

impl<'a> Walk<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0, open: Open::default(), breaks: false }
    }

    /// There were line breaks so far.
    pub(super) fn breaks(&self) -> bool {
        self.breaks
    }

    /// The deepest nesting so far.
    pub(super) fn deepest(&self) -> usize {
        self.open.deepest
    }

    /// Nothing but white space follows.
    pub(super) fn end(&mut self) -> Result<(), Bad> {
        self.blank();
        if self.at == self.text.len() { Ok(()) } else { Err(self.bad(What::Syntax)) }
    }

    /// Whether an object comes next.
    pub(super) fn is_object(&mut self) -> bool {
        self.blank();
        self.byte() == Some(b'{')
    }

    /// Walks an object: `member` is given each name and walks the value, which comes next.
    pub(super) fn members(
        &mut self,
        mut member: impl FnMut(&mut Self, Cow<'a, str>) -> Result<(), Bad>,
    ) -> Result<(), Bad> {
        if !self.is_object() {
            // Whether it is JSON at all.
            self.value()?;
            return Err(self.bad(What::Kind));
        }
        self.at += 1;
        self.open.enter(true);
        if self.closes(b'}') {
            return Ok(());
        }
        loop {
            let name = self.name()?;
            // Of a lone surrogate there is no text.
            let name = match name.contains('\\') {
                true => string(name).ok_or(self.bad(What::Syntax))?,
                false => Cow::Borrowed(&name[1..name.len() - 1]),
            };
            member(self, name)?;
            if self.closes(b'}') {
                return Ok(());
            }
            self.take(b',')?;
        }
    }

    /// Passes over a value.
    pub(super) fn value(&mut self) -> Result<&'a str, Bad> {
        self.blank();
        let (start, outside) = (self.at, self.open.depth);
        loop {
            self.blank();
            match self.byte().ok_or(self.bad(What::Ends))? {
                b'"' => self.string()?,
                first @ (b'{' | b'[') => {
                    let object = first == b'{';
                    self.at += 1;
                    self.open.enter(object);
                    if !self.closes(if object { b'}' } else { b']' }) {
                        if object {
                            self.name()?;
                        }
                        continue;
                    }
                }
                b'-' | b'0'..=b'9' => self.number()?,
                b't' => self.word("true")?,
                b'f' => self.word("false")?,
                b'n' => self.word("null")?,
                _ => return Err(self.bad(What::Syntax)),
            }
            // A value is over, and with it perhaps what it was in.
            loop {
                if self.open.depth == outside {
                    return Ok(&self.text[start..self.at]);
                }
                let object = self.open.in_object();
                if self.closes(if object { b'}' } else { b']' }) {
                    continue;
                }
                self.take(b',')?;
                if object {
                    self.name()?;
                }
                break;
            }
        }
    }

    fn bad(&self, what: What) -> Bad {
        Bad { what, at: self.at }
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blank(&mut self) {
        while let Some(byte @ (b' ' | b'\t' | b'\n' | b'\r')) = self.byte() {
            self.breaks |= matches!(byte, b'\n' | b'\r');
            self.at += 1;
        }
    }

    fn take(&mut self, wanted: u8) -> Result<(), Bad> {
        self.blank();
        match self.byte() {
            Some(byte) if byte == wanted => {
                self.at += 1;
                Ok(())
            }
            Some(_) => Err(self.bad(What::Syntax)),
            None => Err(self.bad(What::Ends)),
        }
    }

    /// Takes the bracket that closes what is open, if it comes next.
    fn closes(&mut self, bracket: u8) -> bool {
        self.blank();
        let closes = self.byte() == Some(bracket);
        if closes {
            self.at += 1;
            self.open.leave();
        }
        closes
    }

    /// A member's name with its quotes, up to and with the colon.
    fn name(&mut self) -> Result<&'a str, Bad> {
        self.blank();
        let start = self.at;
        match self.byte() {
            Some(b'"') => self.string()?,
            Some(_) => return Err(self.bad(What::Syntax)),
            None => return Err(self.bad(What::Ends)),
        }
        let name = &self.text[start..self.at];
        self.take(b':')?;
        Ok(name)
    }

    /// From the opening quote past the closing one.
    fn string(&mut self) -> Result<(), Bad> {
        self.at = text::end(self.text.as_bytes(), self.at)?;
        Ok(())
    }

    fn number(&mut self) -> Result<(), Bad> {
        if self.byte() == Some(b'-') {
            self.at += 1;
        }
        if self.byte() == Some(b'0') {
            self.at += 1;
            if self.byte().is_some_and(|byte| byte.is_ascii_digit()) {
                return Err(self.bad(What::Syntax));
            }
        } else {
            self.digits()?;
        }
        if self.byte() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.byte(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.byte(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    /// One at least.
    fn digits(&mut self) -> Result<(), Bad> {
        let start = self.at;
        while self.byte().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        match self.byte() {
            _ if self.at > start => Ok(()),
            Some(_) => Err(self.bad(What::Syntax)),
            None => Err(self.bad(What::Ends)),
        }
    }

    fn word(&mut self, word: &str) -> Result<(), Bad> {
        let there = self.text.as_bytes()[self.at..].iter().zip(word.as_bytes());
        let same = there.take_while(|(a, b)| a == b).count();
        self.at += same;
        if same == word.len() {
            Ok(())
        } else if self.at == self.text.len() {
            Err(self.bad(What::Ends))
        } else {
            Err(self.bad(What::Syntax))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use super::*;

    fn is_json(text: &str) -> bool {
        let mut walk = Walk::new(text);
        walk.value().and_then(|_| walk.end()).is_ok()
    }

    #[test]
    fn a_value_ends_where_it_ends_and_nesting_is_counted() {
        let text = r#" [1,{"a":[[]],"b":"]"}] ,"#;
        let mut walk = Walk::new(text);
        assert_eq!(walk.value(), Ok(r#"[1,{"a":[[]],"b":"]"}]"#));
        assert_eq!(walk.deepest(), 4);
        assert_eq!(walk.end(), Err(Bad { what: What::Syntax, at: 24 }));
    }

    /// JSON, and what is nearly JSON.
    fn texts() -> impl Strategy<Value = String> {
        const PARTS: [&str; 38] = [
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"",
            "\"a\"",
            "\"a\":",
            "\\",
            "\\u00e9",
            "\\uD8",
            "\\x",
            "\\\"",
            "\u{1}",
            "\n",
            " ",
            "é🙂",
            "0",
            "01",
            "-",
            "1",
            "-1.5e+3",
            ".",
            "e",
            "E5",
            "1.",
            "true",
            "tru",
            "false",
            "null",
            "nul",
            "{}",
            "[]",
            "[1,2]",
            r#"{"a":1}"#,
            "\u{7f}",
            "abcdefgh",
        ];
        let soup = prop::collection::vec(prop::sample::select(&PARTS[..]), 0..8)
            .prop_map(|parts| parts.concat());
        let leaf = prop_oneof![
            Just("null".to_owned()),
            any::<i64>().prop_map(|number| number.to_string()),
            any::<f64>().prop_map(|number| serde_json::json!(number).to_string()),
            any::<String>().prop_map(|text| serde_json::json!(text).to_string()),
        ];
        let json = leaf.prop_recursive(6, 40, 5, |inner| {
            let many = prop::collection::vec((any::<String>(), inner), 0..5);
            (many, any::<bool>()).prop_map(|(members, object)| {
                let name = |name: &str| serde_json::json!(name).to_string();
                let parts: Vec<String> = match object {
                    true => members
                        .iter()
                        .map(|(key, value)| format!("{} : {value}", name(key)))
                        .collect(),
                    false => members.into_iter().map(|(_, value)| value).collect(),
                };
                let (open, close) = if object { ("{\n", "}") } else { ("[ ", "]") };
                format!("{open}{}{close}", parts.join(" ,\t"))
            })
        });
        let changed = (
            json.clone(),
            any::<prop::sample::Index>(),
            prop::sample::select(&PARTS[..]),
            any::<bool>(),
        )
            .prop_map(|(text, at, part, cut)| {
                let at = text.floor_char_boundary(at.index(text.len() + 1));
                let rest = if cut { "" } else { &text[at..] };
                format!("{}{part}{rest}", &text[..at])
            });
        prop_oneof![2 => soup, 2 => json, 3 => changed]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn json_is_what_a_json_library_takes_for_it(text in texts()) {
            let theirs = serde_json::from_str::<&RawValue>(&text);
            prop_assert_eq!(is_json(&text), theirs.is_ok(), "{}", text);
        }
    }
}
