//! Up to which line of a worker everything is written to the host.

use std::cell::Cell;

use tokio::sync::Notify;

/// Of one link. Lines are counted from 1.
#[derive(Debug, Default)]
pub(super) struct Receipt {
    settled: Cell<u64>,
    /// There may be something to do for the link.
    pub(super) work: Notify,
}

// === impl Receipt ===

impl Receipt {
    /// All up to `line` are written.
    pub(super) fn settle(&self, line: u64) {
        self.settled.set(self.settled.get().max(line));
        self.work.notify_one();
    }

    /// The last one that is.
    pub(super) fn settled(&self) -> u64 {
        self.settled.get()
    }
}
