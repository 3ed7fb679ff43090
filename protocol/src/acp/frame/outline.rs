//! What is remembered of a line that goes no further: enough to answer for it.
//!
//! A scanner of JSON's outer level, in constant memory: the line may be longer than anything that is relayed, or no JSON
//! within. It looks for the members that say who waits for what, and answers for nothing but one object of which they
//! leave no doubt.

use memchr::memchr2;

use super::fold::alike;
use super::string;

/// Who waits on account of a line. Ids are raw JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Owed {
    /// Nobody: it is a notification or no message at all, or does not say so clearly.
    #[default]
    Nobody,
    /// Its sender, for an answer under this id.
    Sender(String),
    /// Whoever asked its sender under this id.
    Asker(String),
}

/// The outline of a line that was dropped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outline {
    /// Its length in bytes, without the line end.
    pub length: u64,
    /// Who waits.
    pub owed: Owed,
}

/// Ids and member names longer than this are of no interest.
const LONGEST: usize = 256;

/// Looks at a line piece by piece.
#[derive(Debug, Default)]
pub struct Scanner {
    length: u64,
    depth: u64,
    /// Something stands before or behind the one object.
    beside: bool,
    begun: bool,
    in_string: bool,
    escaped: bool,
    /// At depth 1: before the colon of a member.
    in_name: bool,
    name: Vec<u8>,
    value: Vec<u8>,
    ids: usize,
    id: Option<String>,
    asks: Says,
    answers: Says,
}

/// Whether a member was there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Says {
    #[default]
    No,
    /// One that a lax reader takes for it.
    Nearly,
    Yes,
}

// === impl Outline ===

impl Outline {
    /// Of a whole line.
    #[must_use]
    pub fn of(line: &[u8]) -> Self {
        let mut scanner = Scanner::default();
        scanner.feed(line);
        scanner.finish()
    }
}

// === impl Scanner ===

impl Scanner {
    /// The next piece.
    pub fn feed(&mut self, piece: &[u8]) {
        self.length += piece.len() as u64;
        let mut rest = piece;
        while let [byte, after @ ..] = rest {
            rest = after;
            self.byte(*byte);
            if self.in_string && !self.escaped && !self.keeps() {
                rest = &rest[memchr2(b'"', b'\\', rest).unwrap_or(rest.len())..];
            }
        }
    }

    /// The outline, at the end of the line.
    #[must_use]
    pub fn finish(self) -> Outline {
        let whole = self.begun && self.depth == 0 && !self.in_string && !self.beside;
        let owed = match self.id.filter(|_| whole && self.ids == 1) {
            Some(id) if self.asks > Says::No && self.asks >= self.answers => Owed::Sender(id),
            Some(id) if self.answers > Says::No => Owed::Asker(id),
            _ => Owed::Nobody,
        };
        Outline { length: self.length, owed }
    }

    fn byte(&mut self, byte: u8) {
        if self.in_string {
            let ends = byte == b'"' && !self.escaped;
            self.escaped = byte == b'\\' && !self.escaped;
            self.in_string = !ends;
            return self.keep(byte);
        }
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => self.blank(),
            _ if self.depth == 0 && (self.begun || byte != b'{') => self.beside = true,
            b'"' => {
                self.in_string = true;
                self.keep(byte);
            }
            b'{' | b'[' => {
                self.begun = true;
                self.depth += 1;
                if self.depth == 1 {
                    self.next_member();
                }
            }
            b'}' | b']' => {
                if self.depth == 1 {
                    self.member_ends();
                }
                self.depth -= 1;
            }
            b',' if self.depth == 1 => {
                self.member_ends();
                self.next_member();
            }
            b':' if self.depth == 1 && self.in_name => self.in_name = false,
            byte => self.keep(byte),
        }
    }

    fn next_member(&mut self) {
        self.in_name = true;
        self.name.clear();
        self.value.clear();
    }

    fn member_ends(&mut self) {
        let name = std::str::from_utf8(self.name.trim_ascii()).ok().and_then(string);
        let Some(name) = name.filter(|_| !self.in_name) else { return };
        if alike(&name, "id") {
            self.ids += 1;
            self.id = id(&self.value);
        }
        let says = |known: &str| match () {
            () if name == known => Says::Yes,
            () if alike(&name, known) => Says::Nearly,
            () => Says::No,
        };
        self.asks = self.asks.max(says("method"));
        self.answers = self.answers.max(says("result")).max(says("error"));
    }

    /// Within a value it tells two words from one.
    fn blank(&mut self) {
        if self.depth == 1 && self.value.last().is_some_and(|byte| *byte != b' ') {
            self.keep(b' ');
        }
    }

    fn keeps(&self) -> bool {
        let into = if self.in_name { &self.name } else { &self.value };
        self.depth == 1 && into.len() < LONGEST
    }

    fn keep(&mut self, byte: u8) {
        if self.keeps() {
            let into = if self.in_name { &mut self.name } else { &mut self.value };
            into.push(byte);
        }
    }
}

/// A string, a number or null, and nothing that only begins like one.
fn id(raw: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(raw.trim_ascii()).ok().filter(|_| raw.len() < LONGEST)?;
    let one = text.starts_with(|c: char| matches!(c, '"' | '-' | '0'..='9' | 'n'));
    let json = serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok();
    (one && json).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owed(line: &str) -> Owed {
        let mut scanner = Scanner::default();
        for byte in line.as_bytes() {
            scanner.feed(&[*byte]);
        }
        let outline = scanner.finish();
        assert_eq!(outline, Outline::of(line.as_bytes()), "in pieces as whole");
        assert_eq!(outline.length, line.len() as u64);
        outline.owed
    }

    fn asker(id: &str) -> Owed {
        Owed::Asker(id.to_owned())
    }

    fn sender(id: &str) -> Owed {
        Owed::Sender(id.to_owned())
    }

    #[test]
    fn the_outer_id_is_found_wherever_it_stands_and_inner_ones_are_not_taken() {
        let line = "\t{\"result\":{\"id\":1,\"x\":[\"}\",\"\\\"id\\\":2,\"]},\"jsonrpc\":\"2.0\", \"id\" \r:\t\"a,b\\\"\" } ";
        assert_eq!(owed(line), asker(r#""a,b\"""#));
        for id in
            ["0", "-1.5e+300", "null", r#""""#, r#""\u0061é""#, "123456789012345678901234567890"]
        {
            assert_eq!(owed(&format!(r#"{{"id":{id},"error":{{}}}}"#)), asker(id));
            assert_eq!(owed(&format!(r#"{{"method":"m","id": {id} }}"#)), sender(id));
        }
    }

    #[test]
    fn a_request_is_told_from_an_answer_however_it_is_spelled() {
        assert_eq!(owed(r#"{"method":"fs/read","id":9,"params":{"id":1}}"#), sender("9"));
        assert_eq!(owed(r#"{"\u006dethod":"m","\u0069d":9}"#), sender("9"));
        assert_eq!(owed(r#"{"method":"m","id":9,"result":1}"#), sender("9"));
        assert_eq!(owed(r#"{"Method":"m","id":9,"result":1}"#), asker("9"));
        assert_eq!(owed(r#"{"Method":"m","id":9}"#), sender("9"));
        assert_eq!(owed(r#"{"Result":"m","id":9}"#), asker("9"));
        assert_eq!(owed(r#"{"method":"a","method":"b","id":9}"#), sender("9"));
        assert_eq!(owed(r#"{"r\u0065sult":"NaN","id":9}"#), asker("9"));
    }

    #[test]
    fn what_leaves_a_doubt_is_owed_nothing() {
        for line in [
            r#"id: 5, hello "id":3"#,
            r#"x {"id":3,"result":1}"#,
            r#"{"id":3,"result":1} x"#,
            r#"{"id":3,"result":1}{}"#,
            r#"[{"id":3,"result":1}]"#,
            r#"{"id":3,"result":1"#,
            r#"{"id":3,"result":"}"#,
            r#"{"id":3,"id":4,"result":1}"#,
            r#"{"id":3,"ID":4,"result":1}"#,
            r#"{"id":3}"#,
            r#"{"level":"info","id":3,"msg":"a log"}"#,
            r#"{"id":tru,"result":1}"#,
            r#"{"id":1 2,"result":1}"#,
            r#"{"id":{},"result":1}"#,
            r#"{"id":"a"b,"result":1}"#,
            r#"{"id","result":1}"#,
            "}",
            "",
        ] {
            assert_eq!(owed(line), Owed::Nobody, "{line}");
        }
        let long = "x".repeat(LONGEST);
        assert_eq!(owed(&format!(r#"{{"id":"{long}","result":1}}"#)), Owed::Nobody);
        assert_eq!(owed(&format!(r#"{{"{long}":"{long}","result":1,"id":1}}"#)), asker("1"));
    }
}
