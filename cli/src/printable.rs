//! Words of agents, chats and repositories, made fit for a terminal: what it would obey, or a reader would not see, is spelt out.
//!
//! By general category (UAX #44): controls (Cc), formats (Cf: writing that is turned round, zero widths, tags), line and paragraph
//! separators, private use. Letters and marks of every script stay as they are.

use unicode_properties::{GeneralCategory, UnicodeGeneralCategory as _};
use unicode_width::UnicodeWidthStr as _;

/// On one line, with each character seen.
pub(crate) fn line(text: &str) -> String {
    shown(text, |c| match c {
        '\n' | '\t' | '\r' => Some(' '),
        c if is_seen(c) => Some(c),
        _ => None,
    })
}

/// Lines stay lines; what joins letters and emoji (U+200C, U+200D) stays, since a text may need it to be read.
pub(crate) fn text(text: &str) -> String {
    shown(text, |c| (matches!(c, '\n' | '\t' | '\u{200c}' | '\u{200d}') || is_seen(c)).then_some(c))
}

/// `text`, filled up with spaces to so many columns of a terminal.
pub(crate) fn column(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(text.width())))
}

/// In columns of a terminal.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

fn shown(text: &str, passes: impl Fn(char) -> Option<char>) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match passes(c) {
            Some(c) => out.push(c),
            None => out.extend(c.escape_unicode()),
        }
    }
    out
}

fn is_seen(c: char) -> bool {
    use GeneralCategory::{
        Control, Format, LineSeparator, ParagraphSeparator, PrivateUse, Surrogate,
    };
    let unseen = [Control, Format, LineSeparator, ParagraphSeparator, PrivateUse, Surrogate];
    !unseen.contains(&c.general_category())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_a_cursor_turns_text_round_or_is_not_seen_is_spelt_out() {
        for hidden in [
            '\u{1b}',
            '\u{7}',
            '\u{9b}',
            '\u{7f}',
            '\u{ad}',
            '\u{61c}',
            '\u{200b}',
            '\u{200e}',
            '\u{202e}',
            '\u{2028}',
            '\u{2029}',
            '\u{2060}',
            '\u{2066}',
            '\u{2069}',
            '\u{feff}',
            '\u{e0041}',
            '\u{fff9}',
            '\u{e000}',
        ] {
            let spelt = format!("a{}b", hidden.escape_unicode());
            assert_eq!(line(&format!("a{hidden}b")), spelt);
            assert_eq!(text(&format!("a{hidden}b")), spelt);
        }
        assert_eq!(line("a\u{200d}b\u{200c}"), "a\\u{200d}b\\u{200c}");
        assert_eq!(line("a\nb\tc\rd"), "a b c d");
        assert_eq!(text("a\nb\tc\rd"), "a\nb\tc\\u{d}d");
    }

    #[test]
    fn every_script_is_readable() {
        for words in ["naïve", "cafe\u{301}", "Привет", "中文", "हिन्दी", "العربية", "🦀"]
        {
            assert_eq!((line(words), text(words)), (words.to_owned(), words.to_owned()));
        }
        assert_eq!(text("👩\u{200d}💻 می\u{200c}خواهم"), "👩\u{200d}💻 می\u{200c}خواهم");
    }

    #[test]
    fn columns_are_counted_as_a_terminal_does() {
        assert_eq!((width("中文"), width("cafe\u{301}")), (4, 4));
        assert_eq!(column("中", 4), "中  ");
        assert_eq!(column("abc", 2), "abc");
    }
}
