//! The one owner of waits: SIGCHLD wakes it, [`casemate_sandbox::reap`] says who ended.
//!
//! Owns the table of pids that somebody waits for; every other ended child is an orphan of the session, reaped and
//! counted. Spawning and reaping happen on one thread without a suspension point between a spawn and its
//! registration, so no end is missed.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use casemate_sandbox::{Exit, SessionSpawner, Spawner};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, oneshot};

/// How long the kernel may take to deliver the ends of killed processes.
const KILLED_WITHIN: Duration = Duration::from_secs(5);
/// Between two looks whether a session's threads are gone.
const LOOK: Duration = Duration::from_millis(1);

/// Waits for children.
#[derive(Debug)]
pub struct Reaper {
    waited_for: RefCell<HashMap<i32, Waiting>>,
    spawner: i32,
    spawner_ended: Cell<bool>,
    ended: Notify,
    orphans: Cell<u64>,
    sessions: Cell<u64>,
}

/// Somebody waits for a process of this session.
#[derive(Debug)]
struct Waiting {
    session: u64,
    tell: oneshot::Sender<Exit>,
}

/// The session's spawner, and who waits for what it starts.
#[derive(Debug)]
pub struct Session {
    /// Starts and kills.
    pub spawner: SessionSpawner,
    /// Waits.
    pub reaper: Rc<Reaper>,
    /// Tells its processes from those of the reaper's other sessions.
    number: u64,
}

// === impl Reaper ===

impl Reaper {
    /// A reaper that takes the end of `spawner` for what it is.
    #[must_use]
    pub fn new(spawner: &Spawner) -> Rc<Self> {
        Rc::new(Self {
            waited_for: RefCell::default(),
            spawner: spawner.pid(),
            spawner_ended: Cell::new(false),
            ended: Notify::new(),
            orphans: Cell::new(0),
            sessions: Cell::new(0),
        })
    }

    /// Subscribes to SIGCHLD; do this before anything is spawned.
    ///
    /// # Errors
    /// sigaction(2)'s.
    pub fn subscribe() -> io::Result<Signal> {
        signal(SignalKind::child())
    }

    /// Reaps for ever.
    pub async fn run(self: Rc<Self>, mut children: Signal) {
        loop {
            self.reap();
            if children.recv().await.is_none() {
                return;
            }
        }
    }

    /// Completes when the spawner process has ended: the session can no longer be started or killed.
    pub async fn spawner_end(&self) {
        while !self.spawner_ended.get() {
            self.ended.notified().await;
        }
    }

    /// The end of a process of ours that is of no session.
    pub fn end_of_own(&self, pid: i32) -> oneshot::Receiver<Exit> {
        let (tell, told) = oneshot::channel();
        // Sessions count from 1.
        self.waited_for.borrow_mut().insert(pid, Waiting { session: 0, tell });
        told
    }

    /// Orphans reaped so far.
    #[must_use]
    pub fn orphans(&self) -> u64 {
        self.orphans.get()
    }

    fn reap(&self) {
        for (pid, exit) in casemate_sandbox::reap() {
            let waiting = self.waited_for.borrow_mut().remove(&pid);
            match waiting {
                // A receiver that has gone away no longer cares.
                Some(waiting) => drop(waiting.tell.send(exit)),
                None if pid == self.spawner => {
                    self.spawner_ended.set(true);
                    tracing::warn!(%exit, "the spawner process ended");
                }
                None => self.orphans.set(self.orphans.get() + 1),
            }
            self.ended.notify_waiters();
        }
    }

    /// Returns when no process of a session that somebody waits for is left.
    async fn all_ended(&self, session: u64) {
        while self.waited_for.borrow().values().any(|waiting| waiting.session == session) {
            self.ended.notified().await;
        }
    }
}

// === impl Session ===

impl Session {
    /// A session whose processes `reaper` waits for.
    #[must_use]
    pub fn new(spawner: SessionSpawner, reaper: Rc<Reaper>) -> Self {
        let number = reaper.sessions.get() + 1;
        reaper.sessions.set(number);
        Self { spawner, reaper, number }
    }

    /// The end of a process just spawned.
    pub fn end_of(&self, pid: i32) -> oneshot::Receiver<Exit> {
        let (tell, told) = oneshot::channel();
        let waiting = Waiting { session: self.number, tell };
        self.reaper.waited_for.borrow_mut().insert(pid, waiting);
        told
    }

    /// Kills every process of the session and waits for those that were started from here.
    pub async fn end(&self) {
        if let Err(error) = self.spawner.kill_all() {
            tracing::error!(%error, "could not kill the session's processes");
        }
        if tokio::time::timeout(KILLED_WITHIN, self.reaper.all_ended(self.number)).await.is_err() {
            tracing::error!("killed processes have not ended: they hang in the kernel");
        }
    }

    /// Ends it for good: its processes, daemons included, and its threads in the spawner. Returns when all are gone, or when
    /// the kernel did not let them go in time; false then.
    pub async fn close(&self) -> bool {
        self.end().await;
        self.spawner.close();
        let gone = async {
            while !self.spawner.is_gone() {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(KILLED_WITHIN, gone).await.is_ok()
    }
}
