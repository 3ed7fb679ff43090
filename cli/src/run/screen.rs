//! What the person sees: the agent's words on stdout, what it does on stderr.

use std::io::{IsTerminal as _, Write as _};

use serde_json::Value;

use crate::printable;

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
        let shown = if self.terminal { printable::text(text) } else { text.to_owned() };
        let mut stdout = std::io::stdout().lock();
        // Whoever closed stdout does not want the words; the work goes on.
        let _ = stdout.write_all(shown.as_bytes()).and_then(|()| stdout.flush());
        self.open_line = !text.is_empty() && !text.ends_with('\n');
    }

    fn note(&mut self, kind: &str, text: &str) {
        self.turn_ends();
        eprintln!("  [{kind}] {}", printable::line(text));
    }
}
