//! How deep a line is nested, in one pass without recursion.

/// The deepest nesting of objects and arrays that is relayed, the message itself being the first: what `serde_json`
/// reads by default. A parser that gives up on a deeper line may give up its connection, which other sessions share.
pub const MAX_DEPTH: usize = 127;

/// Whether a line, which is valid JSON, is nested deeper than [`MAX_DEPTH`].
pub(super) fn is_too_deep(valid: &str) -> bool {
    let bytes = valid.as_bytes();
    // Most lines have fewer brackets than that, those in strings included.
    if memchr::memchr2_iter(b'{', b'[', bytes).nth(MAX_DEPTH).is_none() {
        return false;
    }
    let (mut at, mut depth) = (0, 0usize);
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return true;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => at = after_string(bytes, at),
            _ => {}
        }
    }
    false
}

/// Past the closing quote of the string whose text begins at `at`.
fn after_string(bytes: &[u8], mut at: usize) -> usize {
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += found;
        if bytes[at] == b'"' {
            return at + 1;
        }
        // The backslash and what it escapes.
        at += 2;
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_one_of_serde_json() {
        for (depth, deep) in [(MAX_DEPTH, false), (MAX_DEPTH + 1, true)] {
            let arrays = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            let objects = format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
            for line in [arrays, objects] {
                assert_eq!(is_too_deep(&line), deep);
                assert_eq!(serde_json::from_str::<serde_json::Value>(&line).is_err(), deep);
            }
        }
    }

    #[test]
    fn brackets_in_strings_and_side_by_side_do_not_count() {
        let text = r#"[\"{\\"#.repeat(200);
        let beside = "[{}],".repeat(500);
        let line = format!(r#"{{"{text}":"{text}","b":[{beside}"\\"]}}"#);
        serde_json::from_str::<serde_json::Value>(&line).unwrap();
        assert!(!is_too_deep(&line));
    }
}
