//! Which commands run: they hold an idle-stop off, and are told when the session ends.
//!
//! Single-threaded. A [`Hold`] is one command from the moment its call was admitted to its last word.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use casemate_protocol::worker::Activity;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Commands at a time: a worker has 64 connections in all, and the allocator needs some.
pub const MOST: u32 = 32;

/// The table of commands; all that is known of one is that it runs.
#[derive(Debug, Default)]
pub struct Running {
    count: Cell<u32>,
    /// Since when there has been one all the time.
    since: Cell<Option<Instant>>,
    last_end: Cell<Option<Instant>>,
    any_ever: Cell<bool>,
    over: Cell<bool>,
    hang_up: Notify,
    left: Notify,
}

/// One command; dropping it says that it is over.
#[derive(Debug)]
pub struct Hold(Rc<Running>);

// === impl Running ===

impl Running {
    /// Room for one more; `None` where [`MOST`] run or the session is ending.
    #[must_use]
    pub fn enter(self: &Rc<Self>) -> Option<Hold> {
        if self.count.get() >= MOST || self.over.get() {
            return None;
        }
        if self.count.get() == 0 {
            self.since.set(Some(Instant::now()));
        }
        self.count.set(self.count.get() + 1);
        Some(Hold(Rc::clone(self)))
    }

    /// How many run.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count.get()
    }

    /// A command was started: the session is used from now on.
    pub fn started(&self) {
        self.any_ever.set(true);
    }

    /// Whether one was ever started; a request that ran nothing is none.
    #[must_use]
    pub fn any_ever(&self) -> bool {
        self.any_ever.get()
    }

    /// The worker's activity, given that of its turns: a command is work, and idleness begins anew when the last one ends.
    #[must_use]
    pub fn with(&self, turns: Activity) -> Activity {
        let running = self.since.get().map(|since| since.elapsed());
        let ended = self.last_end.get().map(|end| end.elapsed());
        combine(turns, running, ended)
    }

    /// The session ends: no new ones, and those that run are told.
    pub fn hang_up(&self) {
        self.over.set(true);
        self.hang_up.notify_waiters();
    }

    /// Completes when [`Self::hang_up`] was called.
    pub async fn hung_up(&self) {
        while !self.over.get() {
            self.hang_up.notified().await;
        }
    }

    /// Completes when none runs.
    pub async fn none(&self) {
        while self.count.get() > 0 {
            self.left.notified().await;
        }
    }
}

fn combine(turns: Activity, running: Option<Duration>, ended: Option<Duration>) -> Activity {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    match (turns, running) {
        (Activity::Quiesced, _) => Activity::Quiesced,
        (Activity::Busy { for_ms }, running) => {
            Activity::Busy { for_ms: for_ms.max(running.map_or(0, ms)) }
        }
        (Activity::Idle { .. }, Some(running)) => Activity::Busy { for_ms: ms(running) },
        (Activity::Idle { for_ms }, None) => {
            Activity::Idle { for_ms: for_ms.min(ended.map_or(u64::MAX, ms)) }
        }
    }
}

// === impl Hold ===

impl Drop for Hold {
    fn drop(&mut self) {
        let running = &self.0;
        running.count.set(running.count.get() - 1);
        if running.count.get() == 0 {
            running.since.set(None);
            running.last_end.set(Some(Instant::now()));
            running.left.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_work_and_idleness_begins_anew_behind_it() {
        let (idle, busy) = (Activity::Idle { for_ms: 9000 }, Activity::Busy { for_ms: 50 });
        let second = Some(Duration::from_secs(1));
        assert_eq!(combine(idle, None, None), idle);
        assert_eq!(combine(idle, second, None), Activity::Busy { for_ms: 1000 });
        assert_eq!(combine(idle, None, second), Activity::Idle { for_ms: 1000 });
        assert_eq!(combine(busy, second, second), Activity::Busy { for_ms: 1000 });
        assert_eq!(combine(busy, None, second), busy);
        assert_eq!(combine(Activity::Quiesced, second, None), Activity::Quiesced);
    }

    #[test]
    fn there_is_room_for_so_many_and_for_none_at_the_end() {
        let running = Rc::<Running>::default();
        let holds: Vec<_> = (0..MOST).map(|_| running.enter().unwrap()).collect();
        assert!(running.enter().is_none() && running.count() == MOST);
        drop(holds);
        assert!(running.enter().is_some());
        assert_eq!(running.count(), 0);
        running.hang_up();
        assert!(running.enter().is_none());
    }
}
