//! A machine in miniature: a durable book, processes and directories that survive a crash of the allocator, and the
//! driver's tasks, which do not. A task's steps are the driver's own: one durable change or one effect each.

use std::collections::{BTreeMap, BTreeSet};

use casemate_protocol::api::{Intent, Phase};
use casemate_protocol::end::EndReason;
use casemate_protocol::ids::{BootId, Generation, Incarnation, SessionId, SlotId};
use casemate_protocol::key::Key;
use casemate_protocol::tier::Tier;
use casemate_protocol::worker::{Activity, AgentState, Evidence};

use super::Event;
use crate::allocate::{self, Allocation, Refusal, Request, Seen};
use crate::end::{self, EndDecision, Ending};
use crate::record::{CloseRule, Process, Record, Serving, Storage, Terms};
use crate::recover::{Answer, Observed, Recovery, recover};
use crate::tick::{Observation, Tick, tick};

/// A worker's process.
#[derive(Debug, Clone)]
struct Proc {
    pid: i32,
    slot: SlotId,
    generation: Generation,
    boot: BootId,
    /// It has its configuration: holds the lock. Before that, it ends with the allocator that started it.
    told: bool,
    busy: bool,
    quiesced: bool,
}

/// What a slot's directory holds.
#[derive(Debug, Default, Clone)]
struct Dir {
    unpushed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Job {
    /// Directory, process, identity, configuration, ready.
    Start(u8),
    /// Quiesce, process, stopped.
    End(u8),
    /// Directory, written down.
    Delete(u8),
}

#[derive(Debug, Default)]
pub(super) struct World {
    book: BTreeMap<SessionId, Record>,
    keys: BTreeMap<Key, (Incarnation, SessionId)>,
    requests: BTreeMap<u8, Request>,
    procs: Vec<Proc>,
    dirs: BTreeMap<SlotId, Dir>,
    jobs: BTreeMap<SessionId, Job>,
    order: Vec<SessionId>,
    pids: i32,
    // What the invariants remember.
    newest: BTreeMap<SessionId, Generation>,
    used: BTreeSet<(SessionId, Generation)>,
    incarnations: BTreeSet<(Key, Incarnation)>,
    discarded: BTreeSet<SessionId>,
    promised: BTreeMap<u8, (u8, SessionId, bool)>,
}

impl World {
    fn pick(&self, n: usize) -> Option<SessionId> {
        let known: Vec<_> = self.order.iter().filter(|id| self.book.contains_key(*id)).collect();
        (!known.is_empty()).then(|| known[n % known.len()].clone())
    }

    fn job(&self, n: usize) -> Option<SessionId> {
        let all: Vec<_> = self.jobs.keys().collect();
        (!all.is_empty()).then(|| all[n % all.len()].clone())
    }

    pub(super) fn happen(&mut self, event: &Event) {
        match *event {
            Event::Allocate { key, request, body } => self.allocate(key, request, body),
            Event::Resume(n) => {
                let sessions = self.book.len();
                if let Some(id) = self.pick(n) {
                    let answer = allocate::resume(self.book.get(&id).map(Into::into));
                    assert!(!matches!(answer, Allocation::Create(_)));
                    self.enter(&answer);
                }
                assert_eq!(allocate::resume(None), Allocation::Refuse(Refusal::Unknown));
                assert_eq!(self.book.len(), sessions, "resume made a session");
            }
            Event::End { session, close, discard, force } => {
                if let Some(id) = self.pick(session) {
                    let reason = if close { EndReason::Close } else { EndReason::Shutdown };
                    self.end(&id, Ending { reason, close, discard, force, evidence: None });
                }
            }
            Event::Idle(n) => self.idle(n),
            Event::Step(n) => {
                if let Some(id) = self.job(n) {
                    self.step(&id);
                }
            }
            Event::Fail(n) => {
                if let Some(id) = self.job(n)
                    && matches!(self.jobs[&id], Job::Start(_))
                {
                    self.fail_start(&id);
                }
            }
            Event::WorkerDies(n) => self.worker_dies(n),
            Event::Prompt(n) => self.prompt(n),
            Event::TurnEnds(n) => {
                if !self.procs.is_empty() {
                    let n = n % self.procs.len();
                    self.procs[n].busy = false;
                }
            }
            Event::Push(n) => {
                if let Some(dir) =
                    self.pick(n).and_then(|id| self.dirs.get_mut(&self.book[&id].slot))
                {
                    dir.unpushed = false;
                }
            }
            Event::Age(seconds) => {
                let ids: Vec<_> = self.book.keys().cloned().collect();
                for id in ids {
                    if let Some(record) = self.book.get_mut(&id)
                        && record.age(seconds)
                        && record.storage == Storage::Deleting
                    {
                        self.jobs.insert(id, Job::Delete(0));
                    }
                }
            }
            Event::Crash => self.crash(),
        }
    }

    fn allocate(&mut self, key: u8, request: u8, body: u8) {
        let thread = format!("{key}");
        let key = Key {
            tenant: "t".into(),
            agent: "a".into(),
            platform: "p".into(),
            thread: thread.clone(),
        };
        let digest = format!("{thread}/{body}");
        let row = self.keys.get(&key).cloned();
        let old = self.requests.get(&request);
        let seen = Seen {
            request: old.map(|old| (old, self.book.get(&old.session).map(Into::into))),
            newest: row.as_ref().and_then(|(_, id)| self.book.get(id)).map(Into::into),
            incarnation: row.as_ref().map_or(Incarnation::ZERO, |row| row.0),
        };
        let answer = allocate::allocate(seen, &digest);
        let created = matches!(answer, Allocation::Create(_));
        if let Some((first, ..)) = self.promised.get(&request).filter(|_| old.is_some()) {
            let same = old.is_some_and(|old| old.digest == digest);
            assert!(!created, "a repeated request made a session (first body {first})");
            let reused = answer == Allocation::Refuse(Refusal::RequestReused);
            assert_eq!(reused, !same, "conflict exactly where the body differs");
        }
        let named = match &answer {
            Allocation::Create(incarnation) => self.create(&key, *incarnation),
            Allocation::Resume(id) | Allocation::Attach(id) => id.clone(),
            Allocation::Wait(_) | Allocation::Refuse(_) => return,
        };
        let created = self.requests.get(&request).map_or(created, |request| request.created);
        self.requests.entry(request).or_insert_with(|| Request {
            digest,
            session: named.clone(),
            created,
        });
        let promise = self.promised.entry(request).or_insert((body, named.clone(), created));
        assert_eq!((&promise.1, promise.2), (&named, created), "same request, another answer");
        self.enter(&answer);
    }

    fn create(&mut self, key: &Key, incarnation: Incarnation) -> SessionId {
        assert!(
            self.incarnations.insert((key.clone(), incarnation)),
            "incarnation {incarnation} was given twice"
        );
        let id = SessionId::random();
        let seat = Record::free_seat(self.book.values()).expect("few sessions");
        let record = Record::new(
            id.clone(),
            (key.clone(), incarnation),
            Intent::default(),
            (SlotId::random(), seat),
            Terms { idle_ttl_ms: 1000, close: CloseRule::Retain(1500) },
            0,
        );
        self.keys.insert(key.clone(), (incarnation, id.clone()));
        self.order.push(id.clone());
        self.book.insert(id.clone(), record);
        self.jobs.insert(id.clone(), Job::Start(0));
        id
    }

    fn enter(&mut self, answer: &Allocation) {
        if let Allocation::Resume(id) = answer {
            self.book.get_mut(id).expect("named by the core").wake().expect("asleep");
            assert!(!self.jobs.contains_key(id), "a sleeping session is taken");
            self.jobs.insert(id.clone(), Job::Start(0));
        }
    }

    fn end(&mut self, id: &SessionId, ending: Ending) {
        let record = self.book.get_mut(id).expect("picked");
        match end::end(&*record, &ending) {
            EndDecision::Nothing | EndDecision::Wait | EndDecision::Invalid => {}
            EndDecision::Stop => {
                if ending.discard {
                    self.discarded.insert(id.clone());
                }
                record.begin_end(ending).expect("active");
                self.jobs.insert(id.clone(), Job::End(0));
            }
            EndDecision::Conclude => {
                if ending.discard {
                    self.discarded.insert(id.clone());
                }
                record.end_without_worker(ending, String::new(), 0).expect("no worker");
                if record.storage == Storage::Deleting {
                    self.jobs.insert(id.clone(), Job::Delete(0));
                }
            }
        }
    }

    fn idle(&mut self, n: usize) {
        let Some(id) = self.pick(n) else { return };
        let record = &self.book[&id];
        let Some(proc) = self.procs.iter().find(|proc| proc.slot == record.slot && !proc.busy)
        else {
            return;
        };
        let seen = Observation {
            activity: if proc.quiesced {
                Activity::Quiesced
            } else {
                Activity::Idle { for_ms: 1000 }
            },
            agent: AgentState::NotStarted,
            attachments: 0,
            used: record.used,
        };
        let (reason, close) = match tick(record, &seen) {
            Tick::Nothing => return,
            Tick::Stop(reason, _) => (reason, false),
            Tick::Close(reason, _) => (reason, true),
        };
        self.end(&id, Ending { reason, close, discard: false, force: false, evidence: None });
    }

    fn worker_dies(&mut self, n: usize) {
        if self.procs.is_empty() {
            return;
        }
        let dead = self.procs.remove(n % self.procs.len());
        // The watcher tells, whatever the session is doing; a stale or foreign phase refuses.
        for record in self.book.values_mut().filter(|record| record.slot == dead.slot) {
            let _ = record.lost(dead.generation, String::new(), 0);
        }
    }

    fn prompt(&mut self, n: usize) {
        let Some(id) = self.pick(n) else { return };
        let record = self.book.get_mut(&id).expect("picked");
        let proc = self.procs.iter_mut().find(|proc| proc.slot == record.slot && proc.told);
        if let Some(proc) = proc
            && !proc.quiesced
            && record.phase == Phase::Active
        {
            proc.busy = true;
            record.used = true;
            if let Some(dir) = self.dirs.get_mut(&record.slot) {
                dir.unpushed = true;
            }
        }
    }

    fn step(&mut self, id: &SessionId) {
        let Some(job) = self.jobs.get(id).copied() else { return };
        let next = match job {
            Job::Start(step) => self.start_step(id, step),
            Job::End(step) => self.end_step(id, step),
            Job::Delete(step) => self.delete_step(id, step),
        };
        match next {
            Some(job) => self.jobs.insert(id.clone(), job),
            None => self.jobs.remove(id),
        };
    }

    fn start_step(&mut self, id: &SessionId, step: u8) -> Option<Job> {
        let record = self.book.get_mut(id).expect("a start's session");
        let slot = record.slot.clone();
        let own = |proc: &&mut Proc| proc.slot == slot;
        match step {
            0 => {
                self.dirs.entry(slot).or_default();
            }
            1 => {
                self.pids += 1;
                assert!(
                    self.used.insert((id.clone(), record.generation)),
                    "generation {} has a second worker",
                    record.generation
                );
                self.procs.push(Proc {
                    pid: self.pids,
                    slot,
                    generation: record.generation,
                    boot: BootId::random(),
                    told: false,
                    busy: false,
                    quiesced: false,
                });
            }
            // From here on, a worker that died is a failed start.
            2 => {
                let Some(proc) = self.procs.iter_mut().find(own) else { return self.failed(id) };
                let process = Process { pid: proc.pid, started: 0, kernel: String::new() };
                record.launched(process).expect("starting");
            }
            3 => {
                let Some(proc) = self.procs.iter_mut().find(own) else { return self.failed(id) };
                proc.told = true;
            }
            _ => {
                let Some(proc) = self.procs.iter_mut().find(own) else { return self.failed(id) };
                let address = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
                let boot = proc.boot.clone();
                record
                    .ready(Serving { address, boot, tier: Tier::Namespace, pin: None })
                    .expect("starting");
                return None;
            }
        }
        Some(Job::Start(step + 1))
    }

    fn failed(&mut self, id: &SessionId) -> Option<Job> {
        let record = self.book.get_mut(id).expect("a start's session");
        record.start_failed(String::new(), 0).expect("starting");
        record.half_made().then_some(Job::Delete(0))
    }

    fn fail_start(&mut self, id: &SessionId) {
        let slot = self.book[id].slot.clone();
        self.procs.retain(|proc| proc.slot != slot);
        match self.failed(id) {
            Some(job) => self.jobs.insert(id.clone(), job),
            None => self.jobs.remove(id),
        };
    }

    fn end_step(&mut self, id: &SessionId, step: u8) -> Option<Job> {
        let record = self.book.get_mut(id).expect("an end's session");
        let slot = record.slot.clone();
        match step {
            0 => {
                let proc = self.procs.iter_mut().find(|proc| proc.slot == slot);
                let force = record.ending.as_ref().is_some_and(|ending| ending.force);
                match proc {
                    Some(proc) if proc.busy && !force => {
                        record.reopened().expect("stopping");
                        return None;
                    }
                    Some(proc) if !proc.busy => {
                        proc.quiesced = true;
                        let unpushed = u64::from(self.dirs[&slot].unpushed);
                        let evidence = Evidence { unpushed, ..Evidence::default() };
                        record.quiesced(Some(evidence)).expect("stopping");
                    }
                    _ => {}
                }
            }
            1 => self.procs.retain(|proc| proc.slot != slot),
            _ => {
                record.stopped(String::new(), 0).expect("stopping");
                return (record.storage == Storage::Deleting).then_some(Job::Delete(0));
            }
        }
        Some(Job::End(step + 1))
    }

    fn delete_step(&mut self, id: &SessionId, step: u8) -> Option<Job> {
        let record = self.book.get_mut(id).expect("a deletion's session");
        if step == 0 {
            if let Some(dir) = self.dirs.remove(&record.slot) {
                let lawful = !dir.unpushed || self.discarded.contains(id) || !record.served;
                assert!(lawful, "unpushed work of {record:?} was deleted");
            }
            return Some(Job::Delete(1));
        }
        if record.half_made() {
            self.book.remove(id);
            let gone: Vec<_> = self
                .requests
                .iter()
                .filter(|(_, request)| request.session == *id)
                .map(|(&request, _)| request)
                .collect();
            for request in gone {
                // Never answered: its promise goes with it.
                self.requests.remove(&request);
                self.promised.remove(&request);
            }
        } else {
            record.deleted().expect("decided");
        }
        None
    }

    fn crash(&mut self) {
        self.jobs.clear();
        self.procs.retain(|proc| proc.told);
        let ids: Vec<_> = self.book.keys().cloned().collect();
        for id in ids {
            for round in 0.. {
                assert!(round < 6, "{id} does not settle");
                if self.recover_once(&id) {
                    break;
                }
            }
        }
    }

    fn recover_once(&mut self, id: &SessionId) -> bool {
        let Some(record) = self.book.get_mut(id) else { return true };
        let proc = self.procs.iter().find(|proc| proc.slot == record.slot);
        let recorded = record.worker.as_ref().map(|worker| worker.process.pid);
        let seen = Observed {
            process: self.procs.iter().any(|proc| Some(proc.pid) == recorded),
            lock: proc.is_some(),
            answer: proc
                .map(|proc| Answer { boot: proc.boot.clone(), generation: proc.generation }),
        };
        let slot = record.slot.clone();
        match recover(record, &seen) {
            Recovery::Nothing | Recovery::Adopt => return true,
            Recovery::Kill => self.procs.retain(|proc| proc.slot != slot),
            Recovery::MarkLost => {
                record.lost(record.generation, String::new(), 0).expect("active");
            }
            Recovery::FailStart => record.start_failed(String::new(), 0).expect("starting"),
            Recovery::Conclude => record.stopped(String::new(), 0).expect("stopping"),
            Recovery::FinishEnd => self.run(id, Job::End(0)),
            Recovery::Delete => self.run(id, Job::Delete(0)),
        }
        false
    }

    fn run(&mut self, id: &SessionId, job: Job) {
        self.jobs.insert(id.clone(), job);
        while self.jobs.contains_key(id) {
            self.step(id);
        }
    }

    /// What holds at every instant.
    pub(super) fn check(&mut self) {
        let mut seats = BTreeSet::new();
        for (id, record) in &self.book {
            let alive: Vec<_> = self.procs.iter().filter(|proc| proc.slot == record.slot).collect();
            assert!(alive.len() <= 1, "two workers of {id}: {alive:?}");
            if matches!(record.phase, Phase::Asleep | Phase::Ended) {
                assert!(alive.is_empty(), "{:?} with a worker: {alive:?}", record.phase);
            }
            let newest = self.newest.entry(id.clone()).or_insert(Generation::ZERO);
            assert!(*newest <= record.generation, "the generation of {id} fell");
            *newest = record.generation;
            if record.storage != Storage::Deleted {
                assert!(seats.insert(record.seat), "seat {:?} twice", record.seat);
            }
            let open = self
                .book
                .values()
                .filter(|other| other.key == record.key && other.phase != Phase::Ended);
            assert!(open.count() <= 1, "two open sessions of {}", record.key);
            if record.phase != Phase::Ended && record.served {
                assert!(self.dirs.contains_key(&record.slot), "{id} lost its directory");
            }
        }
        let slots: BTreeSet<_> = self.book.values().map(|record| &record.slot).collect();
        assert!(self.procs.iter().all(|proc| slots.contains(&proc.slot)), "a worker of nobody");
    }

    /// What holds once nothing is under way.
    pub(super) fn check_settled(&self) {
        assert!(self.jobs.is_empty());
        for record in self.book.values() {
            assert!(
                !matches!(record.phase, Phase::Starting | Phase::Stopping),
                "{record:?} is left in between"
            );
            assert_ne!(record.storage, Storage::Deleting);
            let kept = record.storage != Storage::Deleted;
            assert_eq!(self.dirs.contains_key(&record.slot), kept, "{record:?}");
        }
        let slots: BTreeSet<_> = self.book.values().map(|record| &record.slot).collect();
        assert!(self.dirs.keys().all(|slot| slots.contains(slot)), "a directory of nobody");
    }
}
