//! A spool whose writer waits for room instead of losing anything: above a limit, and on a full disk. Nobody who reads waits with it.

use std::cell::{Cell, RefCell};
use std::io;
use std::time::Duration;

use tokio::sync::Notify;

use super::spool::Spool;

/// How long to wait until a full disk is tried again.
pub const AGAIN: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub struct Shelf {
    spool: RefCell<Spool>,
    /// More bytes than this, and a writer waits.
    limit: u64,
    /// Something was taken out.
    room: Notify,
    /// The disk was said to be full.
    said: Cell<bool>,
}

// === impl Shelf ===

impl Shelf {
    /// An empty one that takes about `limit` bytes.
    #[must_use]
    pub fn new(spool: Spool, limit: u64) -> Self {
        Self { spool: RefCell::new(spool), limit, room: Notify::new(), said: Cell::new(false) }
    }

    /// Completes once there is room. For one writer.
    pub async fn room(&self) {
        while self.spool.borrow().bytes() > self.limit {
            self.room.notified().await;
        }
    }

    /// Appends a message; false where the disk is full. Then it is tried again after [`AGAIN`], unless the client takes it first.
    pub fn append(&self, line: &[u8]) -> bool {
        match self.spool.borrow_mut().append(line) {
            Ok(()) => self.said.set(false),
            Err(error) => {
                if !self.said.replace(true) {
                    tracing::error!(%error, "no room to keep what a client has not taken: its agent waits");
                }
                return false;
            }
        }
        true
    }

    /// Takes the oldest message out; `None` where there is none.
    ///
    /// # Errors
    /// Opening and reading.
    pub fn pop(&self) -> io::Result<Option<Vec<u8>>> {
        let popped = self.spool.borrow_mut().pop();
        self.room.notify_one();
        popped
    }
}
