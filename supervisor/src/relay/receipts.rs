//! What a client may be told of its lines: which the role has taken, which were dealt with.
//!
//! The relay writes, the connection reads; neither waits.

use std::cell::Cell;
use std::rc::Rc;

use tokio::sync::Notify;

/// Of one client. Lines are counted from 1.
#[derive(Debug)]
pub struct Receipts {
    taken: Cell<u64>,
    /// Whose settlement is under way: a mark in the agent's stdin queue stands for it.
    marked: Cell<u64>,
    settled: Cell<u64>,
    /// Whom to tell that something changed.
    news: Rc<Notify>,
}

// === impl Receipts ===

impl Receipts {
    /// Of a client that has sent nothing yet.
    #[must_use]
    pub fn new(news: Rc<Notify>) -> Self {
        Self { taken: Cell::new(0), marked: Cell::new(0), settled: Cell::new(0), news }
    }

    /// The role has taken one more line.
    pub fn take(&self) {
        self.taken.set(self.taken.get() + 1);
        self.news.notify_one();
    }

    /// The lines up to which a settlement may begin now, where that is more than before; `waiting` is the first that
    /// must stay open.
    pub fn mark(&self, waiting: Option<u64>) -> Option<u64> {
        let to = waiting.map_or(self.taken.get(), |first| self.taken.get().min(first - 1));
        (to > self.marked.replace(to.max(self.marked.get()))).then_some(to)
    }

    /// All up to `line` were written whole, or need not be.
    pub fn settle(&self, line: u64) {
        self.settled.set(self.settled.get().max(line));
        self.news.notify_one();
    }

    /// Taken, settled.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.taken.get(), self.settled.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_waits_keeps_it_and_its_followers_open() {
        let receipts = Receipts::new(Rc::default());
        (0..3).for_each(|_| receipts.take());
        assert_eq!(receipts.mark(Some(2)), Some(1));
        assert_eq!(receipts.mark(Some(2)), None);
        assert_eq!(receipts.mark(None), Some(3));
        receipts.settle(1);
        assert_eq!(receipts.counts(), (3, 1));
    }
}
