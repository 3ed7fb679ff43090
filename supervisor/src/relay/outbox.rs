//! What waits to be sent to one client: in order, counted in bytes.
//!
//! The relay puts in and never waits; whoever keeps things for the client takes out. [`Outbox::is_full`] lets the relay stop
//! reading the agent while that one has no room either. The relay's are [held](Outbox::hold): what was put in is taken out once
//! it is [let go](Outbox::release), which is when its journal is written.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs::File;
use std::rc::Rc;

use bytes::Bytes;
use casemate_protocol::codes::close;
use tokio::sync::Notify;

use super::receipts::Receipts;

/// More than this waiting, and the agent is read no further until the client has taken some.
const FULL: usize = 16 * 1024 * 1024;
/// The same while a client that keeps pace is waited for.
const NARROW: usize = 256 * 1024;
/// More than this waiting, and a replay before it must make way.
const PRESSING: usize = 1024 * 1024;

/// One thing to send.
#[derive(Debug)]
pub enum Item {
    /// One line.
    Line(Bytes),
    /// The first `length` bytes of a journal, line by line.
    Journal {
        /// The journal, as it was when the replay was asked for.
        file: File,
        /// How much of it belongs to the replay.
        length: u64,
    },
    /// Close with a code and words; nothing follows.
    Close(u16, String),
}

/// The queue of one client.
#[derive(Debug)]
pub struct Outbox {
    items: RefCell<VecDeque<Item>>,
    /// How many were put in and taken out so far; how many may be taken out, and how many once the relay says so.
    put: Cell<u64>,
    taken: Cell<u64>,
    free: Cell<u64>,
    marked: Cell<u64>,
    bytes: Cell<usize>,
    narrow: Cell<bool>,
    closed: Cell<bool>,
    /// Another client is in this one's place: why, in words.
    superseded: RefCell<Option<String>>,
    replaced: Notify,
    /// The connection's task has ended: whatever still waits will never be sent.
    done: Cell<bool>,
    filled: Notify,
    /// Shared by all clients of a worker: something has been taken.
    drained: Rc<Notify>,
    /// Of a client that numbers its lines and may be away for a while.
    receipts: Option<Rc<Receipts>>,
}

// === impl Outbox ===

impl Outbox {
    /// An empty queue.
    #[must_use]
    pub fn new(drained: Rc<Notify>) -> Rc<Self> {
        Rc::new(Self {
            items: RefCell::default(),
            put: Cell::new(0),
            taken: Cell::new(0),
            free: Cell::new(u64::MAX),
            marked: Cell::new(0),
            bytes: Cell::new(0),
            narrow: Cell::new(false),
            closed: Cell::new(false),
            superseded: RefCell::default(),
            replaced: Notify::new(),
            done: Cell::new(false),
            filled: Notify::new(),
            drained,
            receipts: None,
        })
    }

    /// An empty queue of a client that is told what became of its lines, and waited for.
    #[must_use]
    pub fn resumable(drained: Rc<Notify>, receipts: Rc<Receipts>) -> Rc<Self> {
        let outbox = Rc::into_inner(Self::new(drained)).expect("it is new");
        Rc::new(Self { receipts: Some(receipts), ..outbox })
    }

    /// What the client is told of its lines, where it is.
    #[must_use]
    pub fn receipts(&self) -> Option<&Rc<Receipts>> {
        self.receipts.as_ref()
    }

    /// From now on what is put in waits until it is let go.
    pub fn hold(&self) {
        self.free.set(self.put.get());
    }

    /// All that has been put in so far may go when [`Self::release`] is called next.
    pub fn mark(&self) {
        self.marked.set(self.put.get());
    }

    /// Lets go what was marked.
    pub fn release(&self) {
        if self.marked.get() > self.free.get() {
            self.free.set(self.marked.get());
            self.filled.notify_one();
        }
    }

    /// Queues an item; what follows a close is dropped, and what nobody takes any more.
    pub fn put(&self, item: Item) {
        if self.closed.get() || self.done.get() {
            return;
        }
        match &item {
            Item::Line(line) => self.bytes.set(self.bytes.get() + line.len()),
            Item::Journal { .. } => {}
            Item::Close(code, reason) => {
                self.closed.set(true);
                if *code == close::SUPERSEDED {
                    self.superseded.replace(Some(reason.clone()));
                    self.replaced.notify_one();
                }
            }
        }
        self.items.borrow_mut().push_back(item);
        self.put.set(self.put.get() + 1);
        if self.put.get() <= self.free.get() {
            self.filled.notify_one();
        }
    }

    /// The next item. Cancel-safe; for one taker.
    pub async fn next(&self) -> Item {
        loop {
            if self.taken.get() < self.free.get()
                && let Some(item) = self.items.borrow_mut().pop_front()
            {
                self.taken.set(self.taken.get() + 1);
                return item;
            }
            self.filled.notified().await;
        }
    }

    /// So much waits that whoever is at something else should see to it.
    #[must_use]
    pub fn presses(&self) -> bool {
        self.bytes.get() > PRESSING
    }

    /// Completes once it does. For whoever takes from it.
    pub async fn pressed(&self) {
        while !self.presses() {
            self.filled.notified().await;
        }
    }

    /// Completes once another client is in this one's place; why, in words. What still waits is of no use then.
    pub async fn superseded(&self) -> String {
        loop {
            if let Some(reason) = self.superseded.borrow().clone() {
                return reason;
            }
            self.replaced.notified().await;
        }
    }

    /// Whether the client is being waited for: the relay then reads the agent less far ahead.
    pub fn narrow(&self, narrow: bool) {
        self.narrow.set(narrow);
        self.drained.notify_one();
    }

    /// Tells that `bytes` of lines have been sent.
    pub fn sent(&self, bytes: usize) {
        self.bytes.set(self.bytes.get().saturating_sub(bytes));
        self.drained.notify_one();
    }

    /// Tells that the connection's task has ended: what still waits is for nobody.
    pub fn finish(&self) {
        self.done.set(true);
        self.items.take();
        self.bytes.set(0);
        self.drained.notify_one();
    }

    /// The connection's task has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.done.get()
    }

    /// More is waiting than should.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.bytes.get() > if self.narrow.get() { NARROW } else { FULL }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn it_is_full_above_the_bound_and_not_after_the_client_took_some() {
        let outbox = Outbox::new(Rc::new(Notify::new()));
        outbox.put(Item::Line(vec![0; FULL].into()));
        assert!(!outbox.is_full());
        outbox.put(Item::Line(vec![0; 1].into()));
        assert!(outbox.is_full());
        outbox.sent(FULL);
        assert!(!outbox.is_full());
    }

    #[test]
    fn what_is_held_comes_out_when_it_was_marked_and_let_go() {
        let outbox = Outbox::new(Rc::new(Notify::new()));
        let next = || {
            let next = std::pin::pin!(outbox.next());
            match next.now_or_never()? {
                Item::Line(line) => Some(line[0]),
                other => panic!("{other:?}"),
            }
        };
        let put = |number: u8| outbox.put(Item::Line(vec![number].into()));
        put(1);
        outbox.hold();
        put(2);
        assert_eq!((next(), next()), (Some(1), None));
        outbox.release();
        assert_eq!(next(), None);
        outbox.mark();
        put(3);
        outbox.release();
        assert_eq!((next(), next()), (Some(2), None));
        outbox.mark();
        outbox.release();
        assert_eq!((next(), next()), (Some(3), None));
    }

    #[test]
    fn nothing_is_kept_for_whoever_is_gone() {
        let outbox = Outbox::new(Rc::new(Notify::new()));
        outbox.put(Item::Line(vec![0; FULL + 1].into()));
        outbox.finish();
        outbox.put(Item::Line(vec![0; FULL + 1].into()));
        assert!(!outbox.is_full() && outbox.items.borrow().is_empty());
    }

    #[test]
    fn nothing_follows_a_close() {
        let outbox = Outbox::new(Rc::new(Notify::new()));
        outbox.put(Item::Close(1001, "x".into()));
        outbox.put(Item::Line(vec![2].into()));
        let items = outbox.items.borrow();
        assert!(matches!(items.iter().collect::<Vec<_>>()[..], [Item::Close(1001, _)]));
    }
}
