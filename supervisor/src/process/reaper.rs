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

/// Waits for children.
#[derive(Debug)]
pub struct Reaper {
    waited_for: RefCell<HashMap<i32, oneshot::Sender<Exit>>>,
    spawner: i32,
    spawner_ended: Cell<bool>,
    ended: Notify,
    orphans: Cell<u64>,
}

/// The session's spawner, and who waits for what it starts.
#[derive(Debug)]
pub struct Session {
    /// Starts and kills.
    pub spawner: SessionSpawner,
    /// Waits.
    pub reaper: Rc<Reaper>,
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

    /// The end of a process just spawned.
    pub fn end_of(&self, pid: i32) -> oneshot::Receiver<Exit> {
        let (tell, told) = oneshot::channel();
        self.waited_for.borrow_mut().insert(pid, tell);
        told
    }

    /// Completes when the spawner process has ended: the session can no longer be started or killed.
    pub async fn spawner_end(&self) {
        while !self.spawner_ended.get() {
            self.ended.notified().await;
        }
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
                Some(tell) => drop(tell.send(exit)),
                None if pid == self.spawner => {
                    self.spawner_ended.set(true);
                    tracing::warn!(%exit, "the spawner process ended");
                }
                None => self.orphans.set(self.orphans.get() + 1),
            }
            self.ended.notify_waiters();
        }
    }

    /// Waits until no process that somebody waits for is left, a bounded time.
    async fn all_ended(&self) {
        while !self.waited_for.borrow().is_empty() {
            self.ended.notified().await;
        }
    }
}

// === impl Session ===

impl Session {
    /// Kills every process of the session and waits for those that were started from here.
    pub async fn end(&self) {
        if let Err(error) = self.spawner.kill_all() {
            tracing::error!(%error, "could not kill the session's processes");
        }
        if tokio::time::timeout(KILLED_WITHIN, self.reaper.all_ended()).await.is_err() {
            tracing::error!("killed processes have not ended: they hang in the kernel");
        }
    }
}
