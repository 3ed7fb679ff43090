//! What is remembered of a line that is too long to relay: enough to answer for it.
//!
//! A scanner of JSON's outer level: it looks for the members `id` and `method` of the one object, whatever their
//! order, in constant memory. It does not validate; a line that lies about itself is refused either way.

/// The outline of a dropped line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Overlong {
    /// Its length in bytes, without the line end.
    pub length: u64,
    /// The raw JSON of its `id`.
    pub id: Option<String>,
    /// It has a `method`: it is a request or a notification, not an answer.
    pub has_method: bool,
}

/// Ids and member names longer than this are of no interest.
const LONGEST: usize = 256;

/// Looks at a line piece by piece.
#[derive(Debug, Default)]
pub struct Scanner {
    found: Overlong,
    depth: u32,
    in_string: bool,
    escaped: bool,
    /// At depth 1: before the colon of a member.
    in_name: bool,
    name: Vec<u8>,
    value: Vec<u8>,
}

// === impl Scanner ===

impl Scanner {
    /// The next piece.
    pub fn feed(&mut self, piece: &[u8]) {
        self.found.length += piece.len() as u64;
        for &byte in piece {
            self.byte(byte);
        }
    }

    /// The outline, at the end of the line.
    #[must_use]
    pub fn finish(self) -> Overlong {
        self.found
    }

    fn byte(&mut self, byte: u8) {
        if self.in_string {
            let ends = byte == b'"' && !self.escaped;
            self.escaped = byte == b'\\' && !self.escaped;
            self.in_string = !ends;
            self.keep(byte);
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.keep(byte);
            }
            b'{' | b'[' => {
                self.depth += 1;
                if self.depth == 1 {
                    self.next_member();
                }
            }
            b'}' | b']' => {
                if self.depth == 1 {
                    self.member_ends();
                }
                self.depth = self.depth.saturating_sub(1);
            }
            b',' if self.depth == 1 => {
                self.member_ends();
                self.next_member();
            }
            b':' if self.depth == 1 && self.in_name => self.in_name = false,
            byte if byte.is_ascii_whitespace() => {}
            byte => self.keep(byte),
        }
    }

    fn next_member(&mut self) {
        self.in_name = true;
        self.name.clear();
        self.value.clear();
    }

    fn member_ends(&mut self) {
        match self.name.as_slice() {
            b"\"id\"" if !self.value.is_empty() && self.value.len() < LONGEST => {
                self.found.id = String::from_utf8(std::mem::take(&mut self.value)).ok();
            }
            b"\"method\"" => self.found.has_method = true,
            _ => {}
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.depth != 1 {
            return;
        }
        let into = if self.in_name { &mut self.name } else { &mut self.value };
        if into.len() < LONGEST {
            into.push(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(line: &str) -> Overlong {
        let mut scanner = Scanner::default();
        for byte in line.as_bytes() {
            scanner.feed(&[*byte]);
        }
        scanner.finish()
    }

    #[test]
    fn the_outer_id_is_found_wherever_it_stands_and_inner_ones_are_not_taken() {
        let line = r#"{"result":{"id":1,"x":["}","\"id\":2,"]},"jsonrpc":"2.0", "id" : "a,b\"" }"#;
        let found = scan(line);
        assert_eq!(found.id.as_deref(), Some(r#""a,b\"""#));
        assert!(!found.has_method);
        assert_eq!(found.length, line.len() as u64);
    }

    #[test]
    fn a_request_is_told_from_an_answer() {
        let found = scan(r#"{"method":"fs/write_text_file","id":9,"params":{"id":1}}"#);
        assert_eq!((found.id.as_deref(), found.has_method), (Some("9"), true));
    }

    #[test]
    fn noise_has_no_id() {
        assert_eq!(scan("id: 5, hello \"id\":3").id, None);
    }
}
