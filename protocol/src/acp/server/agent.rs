//! What the agent sends: each line is read once and goes to the part that knows it.

use bytes::Bytes;

use super::{Action, Server};
use crate::acp::fault::error_line;
use crate::acp::frame::{Frame, Kind, MAX_LINE, Outline, Owed};
use crate::codes::rpc;

/// How much of a line that is no message is shown, in characters.
const SHOWN: usize = 200;

/// The agent's process, as far as the role cares.
#[derive(Debug, Default)]
pub(super) enum Agent {
    /// Nobody has said `initialize`.
    #[default]
    Unstarted,
    /// Asked to start, or running.
    Running,
    /// Gone; so is this generation.
    Ended {
        /// In words.
        cause: String,
    },
}

/// The beginning of a line that is no message, for people: no control character reaches their terminal.
fn harmless(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(4 * SHOWN)]);
    text.chars().take(SHOWN).flat_map(char::escape_debug).collect()
}

// === impl Server ===

impl Server {
    /// The agent wrote a line.
    pub(super) fn agent_wrote(&mut self, line: &Bytes, now: u64, out: &mut Vec<Action>) {
        if !matches!(self.agent, Agent::Running) {
            return;
        }
        let line = match line.strip_suffix(b"\r") {
            Some(rest) => &line.slice_ref(rest),
            None => line,
        };
        if line.trim_ascii().is_empty() {
            return;
        }
        match Frame::of(line) {
            Ok(frame) => match frame.on_one_line() {
                None => self.agent_said(&frame, now, out),
                Some(flat) => {
                    let frame = Frame::of(&flat).expect("spaces between tokens change nothing");
                    self.agent_said(&frame, now, out);
                }
            },
            Err(error) => {
                let text = harmless(line);
                self.noise = Some(text.clone());
                out.push(Action::Log(format!("the agent wrote no message ({error}): {text}")));
                self.agent_misspoke(&Outline::of(line).owed, &error, now, out);
            }
        }
    }

    /// The agent wrote a line that is longer than [`MAX_LINE`], of which this is left.
    pub(super) fn agent_wrote_too_much(
        &mut self,
        outline: &Outline,
        now: u64,
        out: &mut Vec<Action>,
    ) {
        if matches!(self.agent, Agent::Running) {
            let length = outline.length;
            let why = format!("{length} bytes are more than the {MAX_LINE} that are relayed");
            out.push(Action::Log(format!("a line of the agent was dropped: {why}")));
            self.agent_misspoke(&outline.owed, &why, now, out);
        }
    }

    /// An answer that is not passed on is one that failed; a request that is not is refused.
    fn agent_misspoke(
        &mut self,
        owed: &Owed,
        why: &dyn std::fmt::Display,
        now: u64,
        out: &mut Vec<Action>,
    ) {
        match owed {
            Owed::Nobody => {}
            Owed::Sender(id) => {
                let text = format!("the request was dropped: {why}");
                let line = error_line(id, rpc::INVALID_REQUEST, &text, None);
                out.push(Action::AnswerAgent(line.into()));
            }
            Owed::Asker(id) => {
                let text = format!("the agent's answer was dropped: {why}");
                let failed = error_line(id, rpc::INTERNAL, &text, None);
                if let Ok(frame) = Frame::parse(&failed) {
                    self.agent_said(&frame, now, out);
                }
            }
        }
    }

    /// What a program wrote that has not said one ACP message: why it is of no use, in words.
    #[must_use]
    pub fn noise(&self) -> Option<String> {
        let text = self.noise.as_ref().filter(|_| !self.spoke)?;
        Some(format!(
            "it wrote `{text}` to its stdout, which is not ACP: check the command after `--`"
        ))
    }

    fn agent_said(&mut self, frame: &Frame<'_>, now: u64, out: &mut Vec<Action>) {
        self.spoke = true;
        match (frame.kind(), frame.method()) {
            (Kind::Notification, "session/update") => self.updated(frame, now, out),
            (Kind::Notification, "$/cancel_request") => self.ask_withdrawn(frame, out),
            (Kind::Notification, _) => {
                if let Some(client) = self.client.as_ref().filter(|client| client.answered) {
                    out.push(Action::ToClient(client.conn, frame.line()));
                }
            }
            (Kind::Response, _) if self.holds(frame, now) => {}
            (Kind::Response, _) => self.answered(frame, now, out),
            (Kind::Request, _) => self.asked(frame, now, out),
        }
    }
}
