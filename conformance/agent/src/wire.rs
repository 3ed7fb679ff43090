//! stdout, and the requests that this agent has in flight to its client.
//!
//! Invariants: one line is written whole under one lock; a request id is used once per process; an answer wakes
//! exactly the turn that waits for it.

use std::collections::HashMap;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

/// What the client answered.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    Result(Value),
    Error(Value),
}

/// Cheap to clone; all clones write the same stream.
#[derive(Clone)]
pub(crate) struct Wire {
    shared: Arc<Shared>,
}

struct Shared {
    out: Mutex<Box<dyn Write + Send>>,
    next_id: AtomicU64,
    waiting: Mutex<HashMap<u64, Sender<Answer>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Wire ===

impl Wire {
    pub(crate) fn new(out: impl Write + Send + 'static) -> Self {
        Self {
            shared: Arc::new(Shared {
                out: Mutex::new(Box::new(out)),
                next_id: AtomicU64::new(1),
                waiting: Mutex::default(),
            }),
        }
    }

    /// Bytes as they are. A client that has gone is noticed by the end of stdin, so a failed write is not an event.
    pub(crate) fn raw(&self, bytes: &[u8]) {
        let mut out = lock(&self.shared.out);
        let _ = out.write_all(bytes).and_then(|()| out.flush());
    }

    fn line(&self, message: &Value) {
        let mut bytes = message.to_string().into_bytes();
        bytes.push(b'\n');
        self.raw(&bytes);
    }

    pub(crate) fn answer(&self, id: &Value, result: &Value) {
        self.line(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    pub(crate) fn refuse(&self, id: &Value, code: i64, message: &str) {
        let error = json!({"code": code, "message": message});
        self.line(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
    }

    pub(crate) fn notify(&self, method: &str, params: &Value) {
        self.line(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// Sends a request; the answer arrives in `to`, by [`Wire::settle`] on the reading thread. Returns its id.
    pub(crate) fn request(&self, method: &str, params: &Value, to: Sender<Answer>) -> u64 {
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        lock(&self.shared.waiting).insert(id, to);
        self.line(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// Gives up waiting for a request.
    pub(crate) fn forget(&self, id: u64) {
        lock(&self.shared.waiting).remove(&id);
    }

    /// Takes an answer of the client; one that nobody waits for is dropped.
    pub(crate) fn settle(&self, message: &Value) {
        let waiting = message["id"].as_u64().and_then(|id| lock(&self.shared.waiting).remove(&id));
        if let Some(waiting) = waiting {
            let answer = match message.get("error") {
                Some(error) => Answer::Error(error.clone()),
                None => Answer::Result(message["result"].clone()),
            };
            // The turn may have been cancelled in the meantime.
            let _ = waiting.send(answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn an_answer_reaches_only_the_request_that_it_names() {
        let wire = Wire::new(std::io::sink());
        let (first_to, first) = channel();
        let (second_to, second) = channel();
        wire.request("a", &json!({}), first_to);
        let id = wire.request("b", &json!({}), second_to);
        wire.settle(&json!({"id": id, "error": {"code": -1}}));
        wire.settle(&json!({"id": 999, "result": {}}));
        assert_eq!(second.try_recv(), Ok(Answer::Error(json!({"code": -1}))));
        assert!(first.try_recv().is_err());
    }
}
