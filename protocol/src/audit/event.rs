//! What an event says, as OCSF has it.
//!
//! Classes, activities and attributes are those of schema 1.5.0. What the schema has no place for is in `unmapped`, under
//! names of casemate's own that do not change. [`Event`]s are made by the constructors in `kinds`, one a kind.

use serde_json::{Map, Value, json};

use super::line::{Head, Line};
use crate::ids::{Generation, SessionId};

/// The schema that the events follow.
const SCHEMA: &str = "1.5.0";

/// The event classes in use; the number is `class_uid`, its thousands `category_uid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// A process was launched or has ended.
    ProcessActivity = 1007,
    /// Something was refused that a policy, or the shield, does not allow.
    DetectionFinding = 2004,
    /// A caller was let in, or not.
    Authentication = 3002,
    /// A caller was given the means to get in.
    AuthorizeSession = 3003,
    /// A session, a policy or a log was made, changed or deleted.
    EntityManagement = 3004,
    /// The supervisor or the allocator started or stopped.
    ApplicationLifecycle = 6002,
}

/// How grave it is; the number is `severity_id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// As it should be.
    Informational = 1,
    /// Worth a look some time.
    Low = 2,
    /// Something was refused or got lost.
    Medium = 3,
    /// A wall, or the log itself, did not hold.
    High = 4,
}

/// Who writes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Source {
    /// `supervisor` or `allocator`.
    pub program: &'static str,
    /// The program's version.
    pub version: &'static str,
    /// The slot that a supervisor lives in.
    pub slot: Option<String>,
}

/// One event, not yet a line.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub(super) code: &'static str,
    pub(super) class: Class,
    pub(super) activity: u8,
    pub(super) activity_name: &'static str,
    pub(super) severity: Severity,
    /// Whether what was tried succeeded, where something was tried.
    pub(super) success: Option<bool>,
    pub(super) message: String,
    /// Further attributes of the class.
    pub(super) attributes: Map<String, Value>,
    /// What the schema has no place for.
    pub(super) unmapped: Map<String, Value>,
    /// How many events this one stands for.
    pub(super) count: u64,
    /// Whose it is, in a worker's log.
    pub(super) session: Option<(SessionId, Generation)>,
}

// === impl Class ===

impl Class {
    /// `class_name`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ProcessActivity => "Process Activity",
            Self::DetectionFinding => "Detection Finding",
            Self::Authentication => "Authentication",
            Self::AuthorizeSession => "Authorize Session",
            Self::EntityManagement => "Entity Management",
            Self::ApplicationLifecycle => "Application Lifecycle",
        }
    }

    fn category(self) -> &'static str {
        match self {
            Self::ProcessActivity => "System Activity",
            Self::DetectionFinding => "Findings",
            Self::Authentication | Self::AuthorizeSession | Self::EntityManagement => {
                "Identity & Access Management"
            }
            Self::ApplicationLifecycle => "Application Activity",
        }
    }
}

// === impl Severity ===

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Self::Informational => "Informational",
            Self::Low => "Low",
            Self::Medium => "Medium",
            Self::High => "High",
        }
    }
}

// === impl Event ===

impl Event {
    /// The stable name of its kind (`agent.launched`), `metadata.event_code` in the line.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// How many events it stands for.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The same event, in one session of a worker.
    #[must_use]
    pub fn of(mut self, session: &SessionId, generation: Generation) -> Self {
        self.session = Some((session.clone(), generation));
        self
    }

    /// The same event, standing for `count` of them.
    #[must_use]
    pub fn counted(mut self, count: u64) -> Self {
        self.count = count;
        self
    }

    /// The same event, telling as well how many before it could not be written.
    #[must_use]
    pub fn after_lost(mut self, lost: u64) -> Self {
        if lost > 0 {
            self.unmapped.insert("lost_before".to_owned(), lost.into());
        }
        self
    }

    /// The line after `last`, with its line end, and the new head. `time` is in milliseconds since the Unix epoch.
    #[must_use]
    pub fn seal(&self, source: &Source, time: u64, last: Head) -> (Vec<u8>, Head) {
        let class_uid = self.class as u32;
        let mut line = self.attributes.clone();
        let mut put = |name: &str, value: Value| line.insert(name.to_owned(), value);
        put("activity_id", self.activity.into());
        put("activity_name", self.activity_name.into());
        put("category_name", self.class.category().into());
        put("category_uid", (class_uid / 1000).into());
        put("class_name", self.class.name().into());
        put("class_uid", class_uid.into());
        put("count", self.count.into());
        put("message", self.message.clone().into());
        put("metadata", metadata(self.code, source));
        put("severity", self.severity.name().into());
        put("severity_id", (self.severity as u8).into());
        put("time", time.into());
        put("type_uid", (class_uid * 100 + u32::from(self.activity)).into());
        if let Some(success) = self.success {
            put("status", if success { "Success" } else { "Failure" }.into());
            put("status_id", if success { 1 } else { 2 }.into());
        }
        let name = format!("casemate-{}", source.program);
        line.insert(
            "actor".to_owned(),
            match &self.session {
                Some((session, _)) => json!({ "app_name": name, "session": { "uid": session } }),
                None => json!({ "app_name": name }),
            },
        );
        if let Some(slot) = &source.slot {
            line.entry("device")
                .or_insert_with(|| json!({ "type": "Worker", "type_id": 99, "uid": slot }));
        }
        let mut unmapped = self.unmapped.clone();
        if let Some((_, generation)) = &self.session {
            unmapped.insert("generation".to_owned(), generation.0.into());
        }
        Line::seal(last, &line, &unmapped)
    }
}

fn metadata(code: &str, source: &Source) -> Value {
    json!({
        "version": SCHEMA,
        "event_code": code,
        "log_name": "audit",
        "product": {
            "name": "casemate",
            "vendor_name": "casemate",
            "version": source.version,
            "feature": { "name": source.program },
        },
    })
}
