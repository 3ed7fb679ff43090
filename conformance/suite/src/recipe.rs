//! Lines byte by byte, as both ends of a test write them: of what they consist, and in which pieces they are written.
//!
//! A recipe is rendered by whoever writes the line and by whoever expects it, each with the ids of its own side. So a line
//! that arrives as it is expected differs from the one that was written in these ids alone.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

/// A part of a line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Part {
    /// As it stands.
    Text(String),
    /// As they stand, text or not.
    Bytes(Vec<u8>),
    /// A text, so many times.
    Fill(String, usize),
    /// The message's id.
    Id,
    /// The id that its writer has given to a request of its own.
    Own(String),
    /// The session's id.
    Session,
    /// A carriage return between two tokens, for which a space arrives.
    Break,
}

/// A line without its end.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Recipe(pub Vec<Part>);

/// What the spliced spans hold on one side. All raw JSON.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// The message's id.
    pub id: &'a str,
    /// The session's.
    pub session: &'a str,
    /// What stands for a [`Part::Break`].
    pub line_break: &'a str,
}

/// What the framing agent is told by the text of a prompt.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Order {
    /// Lines to write, each with its end.
    pub lines: Vec<(Recipe, String)>,
    /// The answer to the prompt in place of the report; its id is the prompt's.
    pub answer: Option<Recipe>,
    /// How long the pieces are in which all this is written, over and over; none: at once.
    pub pieces: Vec<usize>,
}

/// What the framing agent has heard of one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    /// Of the line without its LF, in hex.
    pub sha256: String,
    /// In bytes.
    pub length: usize,
    /// Raw JSON, where it is JSON and has one.
    pub id: Option<String>,
    /// The code of its error, where it is one.
    pub code: Option<i64>,
}

/// The conversation that the framing agent knows.
pub const SESSION: &str = "framing-1";

/// How it spells it: with an escape, which is another text for the same name.
pub const SPELLED: &str = r#""fr\u0061ming-1""#;

// === impl Recipe ===

impl Recipe {
    /// From text in which `$ID`, `$SESSION` and `$CR` stand for what they say, and `$FILL` for `unit`, `times` over.
    #[must_use]
    pub fn of(text: &str, unit: &str, times: usize) -> Self {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            let (before, word) = rest.split_at(at);
            parts.push(Part::Text(before.to_owned()));
            let known = [
                ("$ID", Part::Id),
                ("$SESSION", Part::Session),
                ("$CR", Part::Break),
                ("$FILL", Part::Fill(unit.to_owned(), times)),
            ];
            let found = known.into_iter().find(|(name, _)| word.starts_with(name));
            let (name, part) = found.unwrap_or(("$", Part::Text("$".to_owned())));
            parts.push(part);
            rest = &word[name.len()..];
        }
        parts.push(Part::Text(rest.to_owned()));
        Self(parts)
    }

    /// The same, to be rendered with the id under which a request arrives.
    #[must_use]
    pub fn renamed(&self) -> Self {
        let part = |part: &Part| if let Part::Own(_) = part { Part::Id } else { part.clone() };
        Self(self.0.iter().map(part).collect())
    }

    /// The same with a text in place of `from`, which stands there once.
    #[must_use]
    pub fn with(mut self, from: &str, part: Part) -> Self {
        let found = self.0.iter().enumerate().find_map(|(at, part)| match part {
            Part::Text(text) => {
                text.split_once(from).map(|(a, b)| (at, a.to_owned(), b.to_owned()))
            }
            _ => None,
        });
        let (at, before, after) = found.expect("it stands there");
        self.0.splice(at..=at, [Part::Text(before), part, Part::Text(after)]);
        self
    }

    /// The bytes.
    #[must_use]
    pub fn render(&self, side: Side<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => out.extend_from_slice(text.as_bytes()),
                Part::Bytes(bytes) => out.extend_from_slice(bytes),
                Part::Fill(unit, times) => out.extend_from_slice(unit.repeat(*times).as_bytes()),
                Part::Own(id) => out.extend_from_slice(id.as_bytes()),
                Part::Id => out.extend_from_slice(side.id.as_bytes()),
                Part::Session => out.extend_from_slice(side.session.as_bytes()),
                Part::Break => out.extend_from_slice(side.line_break.as_bytes()),
            }
        }
        out
    }
}

/// SHA-256 in hex.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes in pieces of these lengths, over and over, each by a write of its own.
///
/// # Errors
/// The writer's.
pub fn write_in_pieces(to: &mut impl Write, mut bytes: &[u8], pieces: &[usize]) -> io::Result<()> {
    let mut lengths = pieces.iter().copied().cycle();
    while !bytes.is_empty() {
        let length = lengths.next().unwrap_or(bytes.len()).clamp(1, bytes.len());
        to.write_all(&bytes[..length])?;
        to.flush()?;
        bytes = &bytes[length..];
    }
    Ok(())
}
