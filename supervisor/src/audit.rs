//! The worker's audit log, `state/audit.ndjson`, as the rest of the supervisor sees it.
//!
//! Owns the log for the worker's life; one thread writes. An event that something depends on is [`Audit::require`]d: where
//! it cannot be written the worker does not start. Any other is recorded as well as the disk allows and counted where it
//! does not: a full volume, which an agent can bring about, is no way to stop its supervisor.

use std::cell::RefCell;
use std::fs::File;
use std::path::Path;
use std::rc::Rc;

use casemate_audit::Log;
use casemate_protocol::audit::{Event, Head, Source};
use casemate_protocol::ids::{Generation, SessionId, SlotId};
use casemate_protocol::worker::StartError;

use crate::words::chain;

/// A handle on the log, for the worker itself or for one of its sessions.
#[derive(Debug, Clone)]
pub struct Audit {
    log: Rc<RefCell<Log>>,
    session: Option<(SessionId, Generation)>,
}

// === impl Audit ===

impl Audit {
    /// Opens the log in `state`, and goes on by descriptor: the path may go away.
    ///
    /// # Errors
    /// [`StartError::Volume`].
    pub fn open(state: &Path, slot: &SlotId) -> Result<Self, StartError> {
        let source = Source {
            program: "supervisor",
            version: env!("CARGO_PKG_VERSION"),
            slot: Some(slot.to_string()),
        };
        let directory = File::open(state).map_err(|error| volume(&error))?;
        let log = Log::open(directory.into(), source).map_err(|error| volume(&error))?;
        Ok(Self { log: Rc::new(RefCell::new(log)), session: None })
    }

    /// The same log, for one session's events.
    #[must_use]
    pub fn of(&self, session: &SessionId, generation: Generation) -> Self {
        Self { log: Rc::clone(&self.log), session: Some((session.clone(), generation)) }
    }

    fn named(&self, event: Event) -> Event {
        match &self.session {
            Some((session, generation)) => event.of(session, *generation),
            None => event,
        }
    }

    /// Writes events that something depends on, and makes them durable.
    ///
    /// # Errors
    /// [`StartError::Volume`].
    pub fn require(&self, events: impl IntoIterator<Item = Event>) -> Result<(), StartError> {
        let events: Vec<Event> = events.into_iter().map(|event| self.named(event)).collect();
        self.log.borrow_mut().require(&events).map_err(|error| volume(&error))
    }

    /// Writes an event, or counts it.
    pub fn record(&self, event: Event) {
        self.log.borrow_mut().record(self.named(event));
    }

    /// How the worker ended, or why it did not start.
    ///
    /// # Errors
    /// What it is given.
    pub fn keep(&self, ended: Result<u8, StartError>) -> Result<u8, StartError> {
        match &ended {
            Ok(code) => self.record(Event::stopped("supervisor", *code)),
            Err(error) => self.not_started(error),
        }
        self.log.borrow_mut().settle();
        ended
    }

    fn not_started(&self, error: &StartError) {
        let words = error.to_string();
        if let StartError::Shield { .. } = error {
            self.record(Event::shield_failed(&words));
        }
        self.record(Event::not_started("supervisor", error.kind(), &words));
    }

    /// The newest durable line.
    #[must_use]
    pub fn head(&self) -> Option<Head> {
        self.log.borrow_mut().head()
    }

    /// Events that could not be written.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.log.borrow().lost()
    }
}

fn volume(error: &dyn std::error::Error) -> StartError {
    StartError::Volume { message: format!("state/: {}", chain(error)) }
}
