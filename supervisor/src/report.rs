//! What is said while a session is made: one JSON line an event, on the worker's stdout for whoever started it.
//!
//! Invariant: nothing follows `ready` or `failed`, and a reader that has gone away is no reason to stop.

use std::io::Write as _;

use casemate_protocol::worker::{StartError, StartEvent};

/// Somewhere to say it.
pub trait Report: std::fmt::Debug {
    /// Says one event.
    fn event(&self, event: &StartEvent);

    /// Says what is being done now.
    fn progress(&self, what: String) {
        tracing::info!(%what, "starting");
        self.event(&StartEvent::Progress { what });
    }

    /// Says why there is no start.
    fn failed(&self, error: &StartError) {
        tracing::error!(%error, "did not start");
        self.event(&StartEvent::Failed { error: error.clone() });
    }
}

/// This process's stdout. A closed pipe is ignored: workers outlive the allocator that started them.
#[derive(Debug, Clone, Copy)]
pub struct Stdout;

// === impl Stdout ===

impl Report for Stdout {
    fn event(&self, event: &StartEvent) {
        if let Ok(mut line) = serde_json::to_vec(event) {
            line.push(b'\n');
            let mut out = std::io::stdout().lock();
            let _ = out.write_all(&line).and_then(|()| out.flush());
        }
    }
}
