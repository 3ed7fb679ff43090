//! Why a policy file is refused, and where in it.

/// Why a policy file is refused, with line and column where there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyError {
    /// Line and column, both from 1, counted in characters.
    pub position: Option<(usize, usize)>,
    /// What is wrong and how to mend it.
    pub message: String,
}

// === impl PolicyError ===

impl PolicyError {
    /// An error at a byte offset of the text.
    pub(super) fn at(text: &str, offset: usize, message: impl Into<String>) -> Self {
        Self { position: Some(position(text, offset)), message: message.into() }
    }

    /// An error of the table that begins in `line` of the text: at what it quotes of that table, else at the table itself.
    #[must_use]
    pub fn in_table(text: &str, line: usize, quoted: &str, message: impl Into<String>) -> Self {
        let begins = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
        let table = text.get(begins..).unwrap_or_default();
        let ends = table.find("\n[").unwrap_or(table.len());
        let strings = [format!("\"{quoted}\""), format!("'{quoted}'")];
        let found = strings.iter().find_map(|string| table[..ends].find(string.as_str()));
        Self::at(text, begins + found.unwrap_or(0), message)
    }

    /// What the TOML reader or serde found.
    pub(super) fn from_toml(text: &str, error: &toml::de::Error) -> Self {
        let found = error.message().trim();
        let message = match error.span().and_then(|span| text.get(span)) {
            Some(key) if found == "duplicate key" => {
                format!("`{key}` is there twice, and was named above already: merge the two")
            }
            _ => format!("{found}{}", advice(error.message())),
        };
        Self { position: error.span().map(|span| position(text, span.start)), message }
    }
}

impl std::fmt::Display for PolicyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some((line, column)) = self.position {
            write!(f, "line {line} column {column}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for PolicyError {}

/// Line and column of a byte offset, both from 1.
pub(super) fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// What to do about a message of serde's, which only says what is wrong.
fn advice(message: &str) -> &'static str {
    if message.starts_with("missing field `reason`") {
        ": add reason = \"why this rule exists\""
    } else if message.starts_with("missing field") {
        ": add it"
    } else if message.starts_with("unknown field") {
        ": correct its name or remove it"
    } else if message.starts_with("unknown variant") {
        ": use one of those"
    } else {
        ""
    }
}
