//! A command in a session: `GET /v1/exec`, upgraded to a WebSocket.
//!
//! The first message is an [`ExecRequest`] as JSON text. Every later one is binary: a byte that names the channel, then
//! data. Channels 0 to 4 and 255 are those of Kubernetes' remote command protocol, version 5 (`v5.channel.k8s.io`), so
//! that its clients are near; [`channel::SIGNAL`] and [`channel::TAKEN`] are ours. The last message is [`ExecEnd`]
//! on [`channel::STATUS`].
//!
//! Neither side sends more than [`WINDOW`] bytes of a channel beyond what the other has said it took: so both always
//! read, a signal passes data that nobody takes, and nothing grows.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Bytes of one channel that may be under way.
pub const WINDOW: u64 = 1024 * 1024;
/// The longest message, its channel's byte included.
pub const MAX_MESSAGE: usize = 64 * 1024;
/// The longest first message: above what execve(2) takes.
pub const MAX_REQUEST: usize = 4 * 1024 * 1024;

/// What the first byte of a message says.
pub mod channel {
    /// To the command.
    pub const STDIN: u8 = 0;
    /// From the command; on a terminal, all that it writes.
    pub const STDOUT: u8 = 1;
    /// From the command.
    pub const STDERR: u8 = 2;
    /// The last message: [`super::ExecEnd`] as JSON.
    pub const STATUS: u8 = 3;
    /// To the terminal: [`super::TerminalSize`] as JSON, named as Kubernetes names it.
    pub const RESIZE: u8 = 4;
    /// To the command's process group: a signal's name, `INT` say.
    pub const SIGNAL: u8 = 5;
    /// A channel's byte and, as 8 bytes with the highest first, how much of it has been taken in all.
    pub const TAKEN: u8 = 6;
    /// A channel's byte: nothing more comes on it.
    pub const CLOSE: u8 = 255;
}

/// What is to be run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecRequest {
    /// Program and arguments. A program without a slash is looked for in the session's `PATH`.
    pub argv: Vec<String>,
    /// Variables on top of the agent's. `CASEMATE_*` are the session's own and are refused.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Where it runs, relative to the worktree; `None`: there.
    #[serde(default)]
    pub cwd: Option<PathBuf>,
    /// On a terminal of its own; `None`: on three pipes.
    #[serde(default)]
    pub tty: Option<TerminalSize>,
    /// How long it may run, in milliseconds, at least 1; `None`: for ever.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
}

/// A terminal's size in characters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
pub struct TerminalSize {
    /// Columns.
    pub width: u16,
    /// Rows.
    pub height: u16,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "end")]
pub enum ExecEnd {
    /// It ended by itself, or of a signal.
    Exited {
        /// Its exit code, or 128 + the signal.
        code: u8,
        /// The signal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
    },
    /// It ran for longer than it may and was ended.
    TimedOut,
    /// There is no such program ([`crate::codes::exit::NOT_FOUND`]).
    NotFound {
        /// Where it was looked for.
        message: String,
    },
    /// It is there and cannot be run ([`crate::codes::exit::NOT_RUNNABLE`]).
    NotRunnable {
        /// What failed.
        message: String,
    },
    /// The request is wrong.
    Refused {
        /// What to mend.
        message: String,
    },
    /// The session ended while it ran.
    SessionEnded,
}

// === impl ExecEnd ===

impl ExecEnd {
    /// The exit code of a program that stands for the command.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        use crate::codes::exit;
        match self {
            Self::Exited { code, .. } => *code,
            Self::TimedOut => exit::TIMED_OUT,
            Self::NotFound { .. } => exit::NOT_FOUND,
            Self::NotRunnable { .. } => exit::NOT_RUNNABLE,
            Self::Refused { .. } => exit::USAGE,
            Self::SessionEnded => exit::UNAVAILABLE,
        }
    }
}

/// A message of a channel.
#[must_use]
pub fn message(channel: u8, data: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(1 + data.len());
    message.push(channel);
    message.extend_from_slice(data);
    message
}

/// The message that says how much of a channel has been taken.
#[must_use]
pub fn taken(channel: u8, total: u64) -> Vec<u8> {
    let mut message = vec![channel::TAKEN, channel];
    message.extend_from_slice(&total.to_be_bytes());
    message
}

/// Channel and total of the data of a [`channel::TAKEN`] message; `None` where it is malformed.
#[must_use]
pub fn read_taken(data: &[u8]) -> Option<(u8, u64)> {
    let (channel, total) = data.split_first()?;
    Some((*channel, u64::from_be_bytes(total.try_into().ok()?)))
}

/// What one side may still send on a channel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Window {
    sent: u64,
    taken: u64,
}

// === impl Window ===

impl Window {
    /// How many bytes may be sent now.
    #[must_use]
    pub fn room(&self) -> usize {
        usize::try_from(WINDOW.saturating_sub(self.sent - self.taken)).unwrap_or(usize::MAX)
    }

    /// So many were sent.
    pub fn sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }

    /// The other side has taken so many in all. Never falls, and nothing is taken that was not sent: false for such a
    /// claim, and nothing changed.
    pub fn taken(&mut self, total: u64) -> bool {
        let holds = (self.taken..=self.sent).contains(&total);
        if holds {
            self.taken = total;
        }
        holds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_closes_and_opens_and_believes_no_impossible_claim() {
        let mut window = Window::default();
        let whole = usize::try_from(WINDOW).unwrap();
        assert_eq!(window.room(), whole);
        window.sent(whole);
        assert_eq!(window.room(), 0);
        assert!(window.taken(7) && window.room() == 7);
        assert!(!window.taken(6) && !window.taken(WINDOW + 1));
        assert_eq!(window.room(), 7);
    }

    #[test]
    fn what_was_taken_survives_the_wire() {
        let message = taken(channel::STDOUT, 0x0102_0304_0506);
        assert_eq!(message[0], channel::TAKEN);
        assert_eq!(read_taken(&message[1..]), Some((channel::STDOUT, 0x0102_0304_0506)));
        assert!((0..9).all(|length| read_taken(&message[1..][..length]).is_none()));
    }

    #[test]
    fn a_request_names_its_fields_and_refuses_others() {
        let text = r#"{"argv":["ls"],"tty":{"Width":80,"Height":24}}"#;
        let request: ExecRequest = serde_json::from_str(text).unwrap();
        assert_eq!(request.tty, Some(TerminalSize { width: 80, height: 24 }));
        assert!(serde_json::from_str::<ExecRequest>(r#"{"argv":["ls"],"user":"root"}"#).is_err());
        let end = serde_json::to_string(&ExecEnd::Exited { code: 3, signal: None }).unwrap();
        assert_eq!(end, r#"{"end":"exited","code":3}"#);
        assert_eq!(ExecEnd::TimedOut.exit_code(), 124);
    }
}
