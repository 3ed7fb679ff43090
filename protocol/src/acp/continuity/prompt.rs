//! What of a prompt comes back in a replay.
//!
//! Agents show text as it was sent, in one chunk a block or in one for all; links, files and pictures each in its own way, or
//! not at all. So what is kept of a prompt is its text up to the first block that is none.

use sha2::{Digest as _, Sha256};

use crate::acp::frame;

/// How much of a prompt can be looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// All of it is text.
    Whole,
    /// It begins with text; something else follows.
    Beginning,
    /// Nothing: it begins with something else, or with `/`, and is a command then, of which each agent keeps what it likes.
    None,
}

/// A prompt, as far as it is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prompt {
    /// SHA-256 of the text.
    pub sha256: [u8; 32],
    /// The text's length in bytes.
    pub bytes: u64,
    /// See there.
    pub extent: Extent,
}

// === impl Prompt ===

impl Prompt {
    /// Of the content blocks of a `session/prompt`, as raw JSON.
    #[must_use]
    pub fn of(blocks: &[&str]) -> Self {
        let mut text = String::new();
        let mut extent = Extent::Whole;
        for block in blocks {
            match text_of(block) {
                Some(part) => text.push_str(&part),
                None => {
                    extent = Extent::Beginning;
                    break;
                }
            }
        }
        if text.is_empty() || text.starts_with('/') {
            extent = Extent::None;
        }
        let bytes = text.len() as u64;
        Self { sha256: Sha256::digest(text).into(), bytes, extent }
    }
}

/// The text of a content block, where it is one of text.
pub(super) fn text_of(block: &str) -> Option<std::borrow::Cow<'_, str>> {
    let kind = frame::member(block, &["type"]).and_then(frame::string)?;
    if kind != "text" {
        return None;
    }
    frame::member(block, &["text"]).and_then(frame::string)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: &str = r#"{"type":"resource_link","uri":"file:///x","name":"x"}"#;

    fn text(text: &str) -> String {
        serde_json::json!({"type": "text", "text": text}).to_string()
    }

    #[test]
    fn the_text_counts_and_not_how_it_is_cut_into_blocks_or_written() {
        let (a, b, ab) = (text("a\u{e9} "), text("\nb"), text("a\u{e9} \nb"));
        let whole = Prompt::of(&[&ab]);
        assert_eq!(Prompt::of(&[&a, &b]), whole);
        assert_eq!(Prompt::of(&[r#"{"text":"a\u00e9 \nb","type":"text","_meta":{}}"#]), whole);
        assert_eq!((whole.bytes, whole.extent), (6, Extent::Whole));
        assert_ne!(Prompt::of(&[&a]).sha256, whole.sha256);
    }

    #[test]
    fn what_is_no_text_ends_what_is_compared() {
        let (a, b) = (text("a"), text("b"));
        let prompt = Prompt::of(&[&a, LINK, &b]);
        assert_eq!(prompt.extent, Extent::Beginning);
        assert_eq!(prompt.sha256, Prompt::of(&[&a]).sha256);
        assert_eq!(Prompt::of(&[LINK, &b]).extent, Extent::None);
        assert_eq!(Prompt::of(&[]).extent, Extent::None);
        assert_eq!(Prompt::of(&[&text("/compact")]).extent, Extent::None);
    }
}
