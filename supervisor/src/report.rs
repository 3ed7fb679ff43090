//! What the worker says while it starts: one JSON line an event on stdout, for the allocator.
//!
//! Invariant: nothing follows `ready` or `failed`, and a reader that has gone away is no reason to stop.

use std::io::Write as _;

use casemate_protocol::worker::{StartError, StartEvent};

/// Writes one event. A closed pipe is ignored: workers outlive the allocator that started them.
pub fn event(event: &StartEvent) {
    if let Ok(mut line) = serde_json::to_vec(event) {
        line.push(b'\n');
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(&line).and_then(|()| out.flush());
    }
}

/// Says what is being done now.
pub fn progress(what: impl Into<String>) {
    let what = what.into();
    tracing::info!(%what, "starting");
    event(&StartEvent::Progress { what });
}

/// Says why the worker did not start.
pub fn failed(error: &StartError) {
    tracing::error!(%error, "did not start");
    event(&StartEvent::Failed { error: error.clone() });
}
