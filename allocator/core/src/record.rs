//! What the allocator knows of one session, and every lawful change of it.
//!
//! The record is the authority; a worker is only ever believed as far as it fits the record. Each change checks the
//! phase it starts from, so that a late event of an old generation changes nothing.

use std::net::SocketAddr;

use casemate_protocol::api::{Intent, LastEnd, Phase};
use casemate_protocol::end::EndReason;
use casemate_protocol::ids::{BootId, Generation, Incarnation, SessionId, SlotId};
use casemate_protocol::key::Key;
use casemate_protocol::tier::Tier;
use casemate_protocol::tls::Pin;
use casemate_protocol::worker::Evidence;
use serde::{Deserialize, Serialize};

use crate::end::{self, Ending};
use crate::seat::Seat;

/// One session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its id.
    pub id: SessionId,
    /// Whose conversation it is.
    pub key: Key,
    /// Which life of the key.
    pub incarnation: Incarnation,
    /// The newest worker's number.
    pub generation: Generation,
    /// What it was asked to be.
    pub intent: Intent,
    /// Its slot.
    pub slot: SlotId,
    /// Its number among the slots: user id and ports follow from it.
    pub seat: Seat,
    /// What the profile promised when the session was made.
    pub terms: Terms,
    /// Where it stands.
    pub phase: Phase,
    /// Its worker, from the moment that its process exists; in a slot that sessions share, the same one as theirs.
    pub worker: Option<Worker>,
    /// The end that is under way, while [`Phase::Stopping`].
    pub ending: Option<Ending>,
    /// What becomes of its directory.
    pub storage: Storage,
    /// A worker of it served at least once: before that there is nothing in it to lose.
    pub served: bool,
    /// It was prompted at least once, or a command ran in it.
    #[serde(alias = "prompted")]
    pub used: bool,
    /// Why compute or storage ended last.
    pub last_end: Option<LastEnd>,
    /// Seconds since the Unix epoch.
    pub created: u64,
}

/// The part of a profile that decides about ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Terms {
    /// How long a worker may be idle, in milliseconds of its own monotonic clock.
    pub idle_ttl_ms: u64,
    /// What a close does to storage that holds nothing unpushed.
    pub close: CloseRule,
}

/// What a close does to clean storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CloseRule {
    /// Deletes it.
    Delete,
    /// Keeps it for so many seconds of the allocator's running time.
    Retain(u64),
}

/// A session's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Storage {
    /// In use by the session.
    Live,
    /// The session has ended; kept.
    Retained {
        /// Seconds of the allocator's running time until it goes; `None`: until someone discards it.
        left: Option<u64>,
    },
    /// To be deleted: decided, perhaps half done.
    Deleting,
    /// Gone.
    Deleted,
}

/// A worker's process on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    /// Which process, safe against reuse of its number.
    pub process: Process,
    /// Where and as what it serves; `None` until it has said so.
    pub serving: Option<Serving>,
}

/// A process: its number alone is used again by the kernel, the three together are not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The process id.
    pub pid: i32,
    /// Its start in clock ticks since boot (`/proc/PID/stat` field 22, proc(5)).
    pub started: u64,
    /// The kernel's `/proc/sys/kernel/random/boot_id`.
    pub kernel: String,
}

/// A worker that serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serving {
    /// Where `/acp` is.
    pub address: SocketAddr,
    /// Its start.
    pub boot: BootId,
    /// The tier it measured.
    pub tier: Tier,
    /// Who it proves to be; `None`: its door is plain HTTP.
    #[serde(default)]
    pub pin: Option<Pin>,
}

/// A change that does not fit the phase: a stale event, or a driver that does not hold the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a session in phase {phase:?} cannot {change}")]
pub struct WrongPhase {
    /// Where it stands.
    pub phase: Phase,
    /// What was tried.
    pub change: &'static str,
}

// === impl Record ===

impl Record {
    /// A session that its first worker is to be started for. `created`: seconds since the Unix epoch.
    #[must_use]
    pub fn new(
        id: SessionId,
        (key, incarnation): (Key, Incarnation),
        intent: Intent,
        (slot, seat): (SlotId, Seat),
        terms: Terms,
        created: u64,
    ) -> Self {
        Self {
            id,
            key,
            incarnation,
            generation: Generation::ZERO.next(),
            intent,
            slot,
            seat,
            terms,
            phase: Phase::Starting,
            worker: None,
            ending: None,
            storage: Storage::Live,
            served: false,
            used: false,
            last_end: None,
            created,
        }
    }

    /// The lowest seat that the directory of none of these sessions has; `None` when all are taken.
    #[must_use]
    pub fn free_seat<'a>(sessions: impl IntoIterator<Item = &'a Self>) -> Option<Seat> {
        let there = sessions.into_iter().filter(|record| record.storage != Storage::Deleted);
        Seat::lowest_free(&there.map(|record| record.seat).collect())
    }

    fn expect(&self, phase: Phase, change: &'static str) -> Result<(), WrongPhase> {
        if self.phase == phase { Ok(()) } else { Err(WrongPhase { phase: self.phase, change }) }
    }

    /// A sleeping session gets its next worker: takes the session, in a new generation.
    ///
    /// # Errors
    /// [`WrongPhase`] unless asleep.
    pub fn wake(&mut self) -> Result<Generation, WrongPhase> {
        self.expect(Phase::Asleep, "wake")?;
        self.generation = self.generation.next();
        self.phase = Phase::Starting;
        Ok(self.generation)
    }

    /// The worker's process exists but knows nothing yet. Durable before it is told anything: after a crash it is found
    /// and ended by this.
    ///
    /// # Errors
    /// [`WrongPhase`] unless starting.
    pub fn launched(&mut self, process: Process) -> Result<(), WrongPhase> {
        self.expect(Phase::Starting, "launch")?;
        self.worker = Some(Worker { process, serving: None });
        Ok(())
    }

    /// The worker serves.
    ///
    /// # Errors
    /// [`WrongPhase`] unless starting with a process.
    pub fn ready(&mut self, serving: Serving) -> Result<(), WrongPhase> {
        self.expect(Phase::Starting, "become ready")?;
        let worker = self
            .worker
            .as_mut()
            .ok_or(WrongPhase { phase: self.phase, change: "become ready without a process" })?;
        worker.serving = Some(serving);
        self.phase = Phase::Active;
        self.served = true;
        Ok(())
    }

    /// The start failed and its process is gone. A session that never served is half made: it ends and its directory
    /// goes. Another one sleeps on, with the evidence it had: no agent ran since.
    ///
    /// # Errors
    /// [`WrongPhase`] unless starting.
    pub fn start_failed(&mut self, detail: String, at: u64) -> Result<(), WrongPhase> {
        self.expect(Phase::Starting, "fail to start")?;
        self.worker = None;
        let evidence = self.last_end.as_ref().and_then(|end| end.evidence.clone());
        self.last_end = Some(LastEnd { reason: EndReason::Failed, detail, evidence, at });
        if self.served {
            self.phase = Phase::Asleep;
        } else {
            self.phase = Phase::Ended;
            self.storage = Storage::Deleting;
        }
        Ok(())
    }

    /// A half-made session: ended without ever having served.
    #[must_use]
    pub fn half_made(&self) -> bool {
        self.phase == Phase::Ended && !self.served
    }

    /// Worker `generation` is proven gone without having been stopped.
    ///
    /// # Errors
    /// [`WrongPhase`] unless that generation is active.
    pub fn lost(
        &mut self,
        generation: Generation,
        detail: String,
        at: u64,
    ) -> Result<(), WrongPhase> {
        self.expect(Phase::Active, "lose its worker")?;
        if self.generation != generation {
            return Err(WrongPhase { phase: self.phase, change: "lose an older worker" });
        }
        self.worker = None;
        self.phase = Phase::Asleep;
        self.last_end = Some(LastEnd { reason: EndReason::Failed, detail, evidence: None, at });
        Ok(())
    }

    /// Worker `generation` is proven gone, whatever was under way, and no allocator saw it go.
    ///
    /// # Errors
    /// [`WrongPhase`] where it was no longer that generation's turn.
    pub fn gone_unseen(&mut self, generation: Generation, at: u64) -> Result<(), WrongPhase> {
        let words = |words: &str| words.to_owned();
        match self.phase {
            Phase::Active => {
                self.lost(generation, words("the worker ended while no allocator ran"), at)
            }
            Phase::Starting => {
                self.start_failed(words("the allocator ended while the worker was starting"), at)
            }
            Phase::Stopping => {
                self.stopped(words("the worker ended while it was being stopped"), at)
            }
            Phase::Asleep | Phase::Ended => Ok(()),
        }
    }

    /// Begins to end an active session: takes it.
    ///
    /// # Errors
    /// [`WrongPhase`] unless active.
    pub fn begin_end(&mut self, ending: Ending) -> Result<(), WrongPhase> {
        self.expect(Phase::Active, "begin to end")?;
        self.phase = Phase::Stopping;
        self.ending = Some(ending);
        Ok(())
    }

    /// The worker has refused new prompts from now on, and this is what the worktree holds.
    ///
    /// # Errors
    /// [`WrongPhase`] unless stopping.
    pub fn quiesced(&mut self, evidence: Option<Evidence>) -> Result<(), WrongPhase> {
        self.expect(Phase::Stopping, "be quiesced")?;
        if let Some(ending) = &mut self.ending {
            ending.evidence = evidence;
            if ending.reason == EndReason::Unused && !ending.is_clean() {
                // Never used, and yet something is there or may be: it only goes to sleep.
                ending.reason = EndReason::Idle;
                ending.close = false;
            }
        }
        Ok(())
    }

    /// The worker was busy: it goes on.
    ///
    /// # Errors
    /// [`WrongPhase`] unless stopping.
    pub fn reopened(&mut self) -> Result<(), WrongPhase> {
        self.expect(Phase::Stopping, "be reopened")?;
        self.phase = Phase::Active;
        self.ending = None;
        Ok(())
    }

    /// The worker that was being stopped is proven gone.
    ///
    /// # Errors
    /// [`WrongPhase`] unless stopping.
    pub fn stopped(&mut self, detail: String, at: u64) -> Result<(), WrongPhase> {
        self.expect(Phase::Stopping, "be stopped")?;
        let ending = self
            .ending
            .take()
            .ok_or(WrongPhase { phase: self.phase, change: "be stopped without a reason" })?;
        self.worker = None;
        self.conclude(&ending, detail, at);
        Ok(())
    }

    /// Ends a session that has no worker: one asleep, or one that has ended and whose kept directory is discarded.
    ///
    /// # Errors
    /// [`WrongPhase`] where a worker may live.
    pub fn end_without_worker(
        &mut self,
        mut ending: Ending,
        detail: String,
        at: u64,
    ) -> Result<(), WrongPhase> {
        if !matches!(self.phase, Phase::Asleep | Phase::Ended) {
            return Err(WrongPhase { phase: self.phase, change: "end without its worker" });
        }
        ending.evidence = self.last_end.as_ref().and_then(|end| end.evidence.clone());
        self.conclude(&ending, detail, at);
        Ok(())
    }

    fn conclude(&mut self, ending: &Ending, detail: String, at: u64) {
        self.last_end =
            Some(LastEnd { reason: ending.reason, detail, evidence: ending.evidence.clone(), at });
        if ending.close {
            self.phase = Phase::Ended;
            self.storage = end::storage_after(ending, self.storage, self.terms.close);
        } else {
            self.phase = Phase::Asleep;
        }
    }

    /// Retention spent `seconds` of the allocator's running time; true when something changed.
    pub fn age(&mut self, seconds: u64) -> bool {
        match &mut self.storage {
            Storage::Retained { left: Some(left) } => {
                *left = left.saturating_sub(seconds);
                if *left == 0 {
                    self.storage = Storage::Deleting;
                }
                true
            }
            _ => false,
        }
    }

    /// The directory is gone.
    ///
    /// # Errors
    /// [`WrongPhase`] unless its deletion was decided.
    pub fn deleted(&mut self) -> Result<(), WrongPhase> {
        self.expect(Phase::Ended, "lose its directory")?;
        if self.storage != Storage::Deleting {
            return Err(WrongPhase { phase: self.phase, change: "lose a directory that is kept" });
        }
        self.storage = Storage::Deleted;
        Ok(())
    }
}
