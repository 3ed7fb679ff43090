//! Names as the laxest of readers compares them.
//!
//! Go's encoding/json, and libraries of other languages on request, match member names without regard to case; the last
//! one wins. To such a host `Method` is `method`, so a name that only *looks* like one that counts would be read there
//! and not here. Whoever decides by a name decides by its folded form.

use std::borrow::Cow;

/// Lower case, with the four letters outside of ASCII that some rule takes for one inside: U+017F and U+212A by
/// Unicode's simple case folding (what Go does), U+0130 and U+0131 by the Turkish one.
fn fold(c: char) -> char {
    match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        '\u{130}' | '\u{131}' => 'i',
        other => other.to_ascii_lowercase(),
    }
}

/// The folded name.
#[must_use]
pub fn folded(name: &str) -> Cow<'_, str> {
    if name.chars().all(|c| fold(c) == c) {
        Cow::Borrowed(name)
    } else {
        Cow::Owned(name.chars().map(fold).collect())
    }
}

/// Whether the two are one name to a lax reader.
pub(super) fn alike(one: &str, other: &str) -> bool {
    one.chars().map(fold).eq(other.chars().map(fold))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_go_takes_for_one_name_is_one() {
        for name in [
            "sessionid",
            "SESSIONID",
            "SessionId",
            "\u{17f}e\u{17f}\u{17f}ionId",
            "sess\u{131}onId",
        ] {
            assert_eq!(folded(name), "sessionid");
            assert!(alike(name, "sessionId"));
        }
        assert_eq!(folded("\u{212a}ey"), "key");
        for name in ["session_id", "sessionId ", "sessionI", "", "s\u{e9}ssionId"] {
            assert!(!alike(name, "sessionId"), "{name}");
        }
    }
}
