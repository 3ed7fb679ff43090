//! The part of a session's ledger that decides, and its lawful changes. Each is written with the version that was read, or not at all.

use std::time::Duration;

use casemate_protocol::api::{LastEnd, Phase};
use casemate_protocol::end::EndReason;
use casemate_protocol::ids::{Generation, Incarnation, SessionId, SlotId};
use casemate_protocol::worker::Evidence;

use super::{Cause, Uid};
use crate::end::{Ending, storage_after};
use crate::record::{Storage, Terms};

/// Which worker of which session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The session.
    pub session: SessionId,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The worker's generation.
    pub generation: Generation,
}

/// What a session needs of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum VolumeNeed {
    /// None of the slot's: its files go with the Pod, or lie in a volume of somebody else.
    None,
    /// One of its own, which it does not have yet.
    New,
    /// This one and no other.
    Have(Uid),
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Session {
    /// The incarnation's id.
    pub id: SessionId,
    /// Digest of its key.
    pub key: String,
    /// Which life of the key.
    pub incarnation: Incarnation,
    /// The newest worker's number.
    pub generation: Generation,
    /// Where it stands.
    pub phase: Phase,
    /// Its slot.
    pub slot: SlotId,
    /// The Pod of this generation's worker, from before it is bound.
    pub pod: Option<Uid>,
    /// Its volume.
    pub volume: VolumeNeed,
    /// What becomes of that.
    pub storage: Storage,
    /// The end that is under way while [`Phase::Stopping`]. While [`Phase::Starting`]: its worker is started for nothing but to look
    /// what its volume holds, then it ends like this; no client is ever let in.
    pub ending: Option<Ending>,
    /// The worker takes no prompts any more, and `ending` has its evidence.
    pub quiesced: bool,
    /// Why compute or storage ended last.
    pub last_end: Option<LastEnd>,
    /// A worker served at least once.
    pub served: bool,
    /// It was prompted at least once, or a command ran in it.
    pub used: bool,
    /// Starts that failed since.
    pub failed: u32,
    /// How many are tried.
    pub attempts: u32,
    /// What the profile promised when the incarnation was opened.
    pub terms: Terms,
}

impl Session {
    /// What its present worker's Pod is claimed by.
    #[must_use]
    pub fn claim(&self) -> Claim {
        Claim {
            session: self.id.clone(),
            incarnation: self.incarnation,
            generation: self.generation,
        }
    }

    /// How long to wait before the next try: nothing before the first, then 1 s, doubling up to 60 s.
    #[must_use]
    pub fn back_off(&self) -> Duration {
        match self.failed {
            0 => Duration::ZERO,
            failed => Duration::from_secs(60.min(1 << (failed - 1).min(6))),
        }
    }

    /// The next worker's number, above `floor`.
    fn next_worker(mut self, floor: Generation) -> Self {
        self.generation = self.generation.max(floor).next();
        self.pod = None;
        self
    }

    /// A sleeping session gets its next worker.
    #[must_use]
    pub fn wake(self) -> Self {
        Self { phase: Phase::Starting, failed: 0, ..self.next_worker(Generation::ZERO) }
    }

    /// A volume or a Pod knows a newer worker than the ledger: it was restored from a backup. What it knew of volumes' contents
    /// then is not what they hold now.
    #[must_use]
    pub fn raise(self, floor: Generation) -> Self {
        let mut raised = self.next_worker(floor);
        if let Some(end) = &mut raised.last_end {
            end.evidence = None;
        }
        if matches!(raised.storage, Storage::Deleting | Storage::Deleted) {
            raised.storage = Storage::Retained { left: None };
        }
        raised
    }

    /// Another session was quicker: another slot.
    #[must_use]
    pub fn elsewhere(self, slot: SlotId) -> Self {
        Self { slot, ..self.next_worker(Generation::ZERO) }
    }

    /// Its volume is there.
    #[must_use]
    pub fn with_volume(self, uid: Uid) -> Self {
        Self { volume: VolumeNeed::Have(uid), ..self }
    }

    /// This is the Pod of its present generation, and no other will be.
    #[must_use]
    pub fn in_pod(self, pod: Uid) -> Self {
        Self { pod: Some(pod), ..self }
    }

    /// Its worker is bound and serves. One that was started to look is stopped at once.
    #[must_use]
    pub fn serving(self) -> Self {
        let phase = if self.ending.is_some() { Phase::Stopping } else { Phase::Active };
        Self { phase, served: true, failed: 0, ..self }
    }

    /// A start failed. It is tried again in the next generation, or given up.
    #[must_use]
    pub fn start_failed(self, cause: &Cause, at: u64) -> Self {
        let failed = self.failed + u32::from(cause.counts());
        if failed >= self.attempts {
            return self.give_up(cause, at);
        }
        let last_end = Some(self.failure(cause, at));
        Self { failed, last_end, ..self.next_worker(Generation::ZERO) }
    }

    /// No further start is tried: after too many, or because a caller will not wait. One that never served is half made and goes.
    #[must_use]
    pub fn give_up(self, cause: &Cause, at: u64) -> Self {
        let last_end = Some(self.failure(cause, at));
        let mut next = Self { last_end, ..self.next_worker(Generation::ZERO) };
        match next.ending.take() {
            // It could not be looked into: what it holds stays unknown.
            Some(ending) => next.concluded(&ending, at),
            None if next.served => Self { phase: Phase::Asleep, ..next },
            None => Self { phase: Phase::Ended, storage: Storage::Deleting, ..next },
        }
    }

    /// No agent ran since the last end, so its evidence holds.
    fn failure(&self, cause: &Cause, at: u64) -> LastEnd {
        let evidence = self.last_end.as_ref().and_then(|end| end.evidence.clone());
        LastEnd { reason: EndReason::Failed, detail: cause.to_string(), evidence, at }
    }

    /// Its worker is gone and nobody stopped it: what its worktree holds is not known.
    #[must_use]
    pub fn lost(mut self, cause: &Cause, at: u64) -> Self {
        self.last_end = Some(LastEnd {
            reason: EndReason::Failed,
            detail: cause.to_string(),
            evidence: None,
            at,
        });
        self.phase = Phase::Asleep;
        self.pod = None;
        self
    }

    /// Begins to end an active session.
    #[must_use]
    pub fn stopping(self, ending: Ending) -> Self {
        Self { phase: Phase::Stopping, ending: Some(ending), quiesced: false, ..self }
    }

    /// Its worker was busy: it goes on, and the end is off.
    #[must_use]
    pub fn reopened(self) -> Self {
        Self { phase: Phase::Active, ending: None, ..self }
    }

    /// Its worker takes no prompts any more, or is gone.
    #[must_use]
    pub fn was_quiesced(mut self, evidence: Option<Evidence>) -> Self {
        if let Some(ending) = &mut self.ending {
            ending.evidence = evidence;
            if ending.reason == EndReason::Unused && !ending.is_clean() {
                ending.reason = EndReason::Idle;
                ending.close = false;
            }
        }
        self.quiesced = true;
        self
    }

    /// Its Pod is gone, as was asked for.
    #[must_use]
    pub fn stopped(mut self, at: u64) -> Self {
        self.quiesced = false;
        self.pod = None;
        let Some(ending) = self.ending.take() else { return self };
        self.concluded(&ending, at)
    }

    /// Ends a session that sleeps, or discards the volume of one that has ended. What was found in its worktree last still holds, for
    /// no agent ran since. Where nothing was found (its worker was lost), a worker is started to look, before anything is judged.
    #[must_use]
    pub fn close_asleep(self, mut ending: Ending, at: u64) -> Self {
        ending.evidence = self.last_end.as_ref().and_then(|end| end.evidence.clone());
        let unknown = ending.evidence.is_none() && !ending.discard && self.served;
        if unknown && self.phase == Phase::Asleep && matches!(self.volume, VolumeNeed::Have(_)) {
            return Self { ending: Some(ending), quiesced: false, ..self.wake() };
        }
        self.concluded(&ending, at)
    }

    fn concluded(mut self, ending: &Ending, at: u64) -> Self {
        let detail = String::new();
        self.last_end =
            Some(LastEnd { reason: ending.reason, detail, evidence: ending.evidence.clone(), at });
        if ending.close {
            self.phase = Phase::Ended;
            self.storage = storage_after(ending, self.storage, self.terms.close);
        } else {
            self.phase = Phase::Asleep;
        }
        self
    }

    /// Its volume is gone.
    #[must_use]
    pub fn deleted(self) -> Self {
        Self { storage: Storage::Deleted, volume: VolumeNeed::None, ..self }
    }
}
