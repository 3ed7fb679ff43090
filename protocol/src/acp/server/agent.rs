//! What the agent sends: each line is read once and goes to the part that knows it.

use super::{Action, Server};
use crate::acp::fault::error_line;
use crate::acp::frame::{Frame, FrameError, Kind, answered_by};
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
    pub(super) fn agent_wrote(&mut self, line: &[u8], now: u64, out: &mut Vec<Action>) {
        if !matches!(self.agent, Agent::Running) {
            return;
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.trim_ascii().is_empty() {
            return;
        }
        match Frame::parse(line) {
            Ok(frame) => match frame.on_one_line() {
                None => self.agent_said(&frame, now, out),
                Some(flat) => {
                    let frame = Frame::parse(&flat).expect("spaces between tokens change nothing");
                    self.agent_said(&frame, now, out);
                }
            },
            Err(error) => {
                let text = harmless(line);
                self.noise = Some(text.clone());
                out.push(Action::Log(format!("the agent wrote no message ({error}): {text}")));
                self.agent_misspoke(line, &error, now, out);
            }
        }
    }

    /// An answer that is not passed on is one that failed.
    fn agent_misspoke(&mut self, line: &[u8], why: &FrameError, now: u64, out: &mut Vec<Action>) {
        let Some(id) = std::str::from_utf8(line).ok().and_then(answered_by) else { return };
        let text = format!("the agent's answer was dropped: {why}");
        let failed = error_line(id, rpc::INTERNAL, &text, None);
        if let Ok(frame) = Frame::parse(&failed) {
            self.agent_said(&frame, now, out);
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
                    out.push(Action::ToClient(client.conn, frame.text().as_bytes().to_vec()));
                }
            }
            (Kind::Response, _) => self.answered(frame, now, out),
            (Kind::Request, _) => self.asked(frame, now, out),
        }
    }
}
