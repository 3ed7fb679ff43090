//! What callers see of a record. Looking never wakes anything.

use std::path::PathBuf;
use std::sync::Arc;

use casemate_allocator_core::record::{Record, Storage};
use casemate_allocator_core::tick;
use casemate_protocol::api::{ApiError, ErrorKind, SessionList, SessionView, WorkerView};
use casemate_protocol::ids::SessionId;

use super::{Driver, Live};
use crate::home::Home;
use crate::refusal::{IntoApi as _, refuse};
use crate::store::Stored;

/// A record as callers see it, by what the one who watches its worker knows: names of handed variables, not their values.
fn of(home: &Home, record: &Record, programs: &[PathBuf], live: Option<&Live>) -> SessionView {
    // Where a session shares its slot its trees are at a place that is not its name.
    let place = home.place(&record.slot, &record.id).ok().flatten();
    let seen = live.and_then(|live| live.seen.as_ref());
    let worker = record.worker.as_ref().and_then(|worker| {
        let serving = worker.serving.as_ref()?;
        Some(WorkerView {
            boot: serving.boot.clone(),
            tier: serving.tier,
            pid: u32::try_from(worker.process.pid).ok()?,
            activity: seen.map(|seen| seen.activity),
            matrix: live.and_then(|live| live.matrix.clone()),
            usage: live.and_then(|live| live.usage.clone()),
            worktree: match &place {
                Some(place) => place.join("work"),
                None => home.worktree(&record.slot, &record.id),
            },
        })
    });
    let kept = matches!(record.storage, Storage::Retained { .. });
    let kept = kept.then(|| match &place {
        Some(place) => place.clone(),
        None => home.trees(&record.slot, &record.id),
    });
    let mut intent = record.intent.clone();
    for value in intent.env.values_mut() {
        value.clear();
    }
    SessionView {
        id: record.id.clone(),
        key: record.key.clone(),
        incarnation: record.incarnation,
        generation: record.generation,
        intent,
        phase: record.phase,
        slot: record.slot.clone(),
        worker,
        last_end: record.last_end.clone(),
        next: tick::next(record, seen),
        kept,
        created: record.created,
        programs: programs.to_vec(),
    }
}

/// The same where nobody watches.
pub(crate) fn unwatched(home: &Home, stored: &Stored) -> SessionView {
    of(home, &stored.record, &stored.plan.programs, None)
}

impl Driver {
    /// The record as callers see it.
    pub(super) fn view(&self, record: &Record, programs: &[PathBuf]) -> SessionView {
        of(&self.home, record, programs, self.living(record).as_ref())
    }

    /// With what is granted of programs.
    pub(super) fn whole_view(&self, stored: &Stored) -> SessionView {
        self.view(&stored.record, &stored.plan.programs)
    }

    /// `GET /v1/sessions`.
    pub(crate) fn list(self: &Arc<Self>) -> Result<SessionList, ApiError> {
        let all = self.store.sessions().map_err(|error| error.into_api())?;
        Ok(SessionList { sessions: all.iter().map(|stored| self.whole_view(stored)).collect() })
    }

    /// `GET /v1/sessions/{id}`.
    pub(crate) fn show(self: &Arc<Self>, id: &SessionId) -> Result<SessionView, ApiError> {
        match self.store.session(id).map_err(|error| error.into_api())? {
            Some(stored) => Ok(self.whole_view(&stored)),
            None => Err(refuse(ErrorKind::NotFound, format!("no session {id}"))),
        }
    }
}
