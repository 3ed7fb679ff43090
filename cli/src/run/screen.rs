//! What the person sees: the agent's words on stdout, what it does on stderr.

use std::io::{IsTerminal as _, Write as _};

use serde_json::Value;

/// The screen.
#[derive(Debug)]
pub(super) struct Screen {
    /// stdout is a terminal: control characters in an agent's words would move its cursor.
    terminal: bool,
    thoughts: bool,
    /// The agent's last words ended in the middle of a line.
    open_line: bool,
}

// === impl Screen ===

impl Screen {
    /// `thoughts`: the agent's thoughts are shown, too.
    pub(super) fn new(thoughts: bool) -> Self {
        Self { terminal: std::io::stdout().is_terminal(), thoughts, open_line: false }
    }

    /// Something of ours.
    pub(super) fn say(&mut self, text: &str) {
        self.turn_ends();
        eprintln!("casemate: {text}");
    }

    /// One `session/update`.
    pub(super) fn update(&mut self, update: &Value) {
        let text = update["content"]["text"].as_str().unwrap_or("");
        match update["sessionUpdate"].as_str() {
            Some("agent_message_chunk") => self.words(text),
            Some("agent_thought_chunk") if self.thoughts => self.note("thinks", text),
            Some("tool_call") => self.note("tool", update["title"].as_str().unwrap_or("?")),
            Some("tool_call_update") if update["status"] == "failed" => {
                self.note("failed", update["title"].as_str().unwrap_or("the last tool"));
            }
            _ => {}
        }
    }

    /// The agent's line is ended where it did not end it.
    pub(super) fn turn_ends(&mut self) {
        if self.open_line {
            self.words("\n");
        }
    }

    fn words(&mut self, text: &str) {
        let shown = if self.terminal { visible(text) } else { text.to_owned() };
        let mut stdout = std::io::stdout().lock();
        // Whoever closed stdout does not want the words; the work goes on.
        let _ = stdout.write_all(shown.as_bytes()).and_then(|()| stdout.flush());
        self.open_line = !text.is_empty() && !text.ends_with('\n');
    }

    fn note(&mut self, kind: &str, text: &str) {
        self.turn_ends();
        eprintln!("  [{kind}] {}", printable(text));
    }
}

/// On one line and without control characters.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Lines stay lines; no other control character passes.
fn visible(text: &str) -> String {
    let passes = |c: char| matches!(c, '\n' | '\t') || !c.is_control();
    text.chars().map(|c| if passes(c) { c } else { '\u{fffd}' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_cannot_write_escape_sequences_to_the_terminal() {
        assert_eq!(
            visible("a\u{1b}]0;title\u{7}\nb\t\u{9b}31m"),
            "a\u{fffd}]0;title\u{fffd}\nb\t\u{fffd}31m"
        );
        assert_eq!(printable("a\nb\u{1b}c"), "a b c");
    }
}
