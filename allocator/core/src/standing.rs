//! What decides which session a caller gets, whether it may end and what idleness does to it: the same for both backends, whose
//! ledgers differ in what a *place* is (a process on this machine, or a slot of a cluster).

use casemate_protocol::api::Phase;
use casemate_protocol::ids::SessionId;

use crate::record::{Record, Storage, Terms};

/// Where a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing<'a> {
    /// Its id.
    pub id: &'a SessionId,
    /// Its phase.
    pub phase: Phase,
    /// What becomes of its files.
    pub storage: Storage,
    /// A worker of it served at least once.
    pub served: bool,
    /// It was prompted at least once, or a command ran in it.
    pub used: bool,
    /// What the profile promised.
    pub terms: Terms,
}

impl Standing<'_> {
    /// Ended without ever having served.
    #[must_use]
    pub fn half_made(&self) -> bool {
        self.phase == Phase::Ended && !self.served
    }
}

impl<'a> From<&'a Record> for Standing<'a> {
    fn from(record: &'a Record) -> Self {
        let Record { id, phase, storage, served, used, terms, .. } = record;
        Self { id, phase: *phase, storage: *storage, served: *served, used: *used, terms: *terms }
    }
}

impl<'a> From<&'a crate::slot::Session> for Standing<'a> {
    fn from(session: &'a crate::slot::Session) -> Self {
        let crate::slot::Session { id, phase, storage, served, used, terms, .. } = session;
        Self { id, phase: *phase, storage: *storage, served: *served, used: *used, terms: *terms }
    }
}
