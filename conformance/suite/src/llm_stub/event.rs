//! One event of an answer's stream, as server-sent events carry it.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;

/// What is sent at once.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Event {
    /// The event's name, where the format names its events.
    pub name: Option<&'static str>,
    /// Its one line of data.
    pub data: String,
    /// The answer's pause follows it.
    pub pauses: bool,
}

// === impl Event ===

impl Event {
    /// An event without a name.
    pub(super) fn unnamed(data: &Value) -> Self {
        Self { name: None, data: data.to_string(), pauses: false }
    }

    /// An event whose data repeat its name as `type`.
    pub(super) fn typed(name: &'static str, mut data: Value) -> Self {
        data["type"] = name.into();
        Self { name: Some(name), data: data.to_string(), pauses: false }
    }

    /// The answer's pause follows it.
    pub(super) fn then_pause(mut self) -> Self {
        self.pauses = true;
        self
    }

    /// As it goes over the wire.
    pub(super) fn on_the_wire(&self) -> String {
        let name = self.name.map(|name| format!("event: {name}\n")).unwrap_or_default();
        format!("{name}data: {}\n\n", self.data)
    }
}

/// The text of a message's content: one text or a list of parts.
pub(super) fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

/// An id that no other answer of this process has: agents take a call whose id they know for one that was answered.
pub(super) fn fresh_id(prefix: &str) -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);
    format!("{prefix}_{}", LAST.fetch_add(1, Ordering::Relaxed))
}
