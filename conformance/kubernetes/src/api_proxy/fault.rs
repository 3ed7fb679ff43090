//! What goes wrong, and with which request.

use std::fmt;
use std::time::Duration;

/// What happens to one mutating request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The caller dies before the server has heard of it.
    KillBeforeSend,
    /// The server has done it, and the caller dies before it hears of that.
    KillAfterEffect,
    /// The server never hears of it, and the caller gets this status: 409, 429, 500 and their like.
    Answer(u16),
    /// The server has done it, and the connection ends without a word.
    LostAnswer,
    /// The server has done it, and nothing comes, until the caller gives up.
    TimeOut,
}

/// A fault for the request with this number, counted from 1 since it was armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Armed {
    /// Which of the mutating requests.
    pub nth: u64,
    /// What.
    pub fault: Fault,
}

/// What becomes of events of watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Watches {
    /// Each comes so much later.
    pub delay: Duration,
    /// Every so-manyth is left out, as if it had never happened; 0: none. Bookmarks and errors always come.
    pub drop_every: u64,
}

/// A request that changes something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutation {
    /// Its method.
    pub method: String,
    /// Its path, with its query.
    pub path: String,
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

/// Does it change nothing by its method (RFC 9110, section 9.2.1)?
pub(super) fn is_safe(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "OPTIONS")
}

/// The body that goes with a status of ours, as the API server has it.
pub(super) fn status_body(code: u16) -> String {
    let reason = match code {
        409 => "Conflict",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "Unknown",
    };
    serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("a fault of the test: {reason}"), "reason": reason, "code": code,
    })
    .to_string()
}
