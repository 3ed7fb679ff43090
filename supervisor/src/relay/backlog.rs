//! What a client of the plain door has not taken: in order, in memory and then on the disk, so that its agent need not wait.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use bytes::Bytes;
use casemate_protocol::codes::close;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::outbox::{Item, Outbox};
use super::shelf::{AGAIN, Shelf};

/// More bytes than this are kept on disk.
const MEMORY: usize = 1024 * 1024;

/// One that waits.
#[derive(Debug)]
enum Entry {
    Here(Item),
    /// So many lines on the disk, the oldest of those there.
    Shelved(u64),
}

/// See the module.
#[derive(Debug)]
pub struct Backlog {
    entries: RefCell<VecDeque<Entry>>,
    /// Bytes of lines in memory.
    here: Cell<usize>,
    shelf: Shelf,
    filled: Notify,
    /// The client has taken something.
    taken: Notify,
}

// === impl Backlog ===

impl Backlog {
    /// Nothing waits.
    #[must_use]
    pub fn new(shelf: Shelf) -> Self {
        Self {
            entries: RefCell::default(),
            here: Cell::new(0),
            shelf,
            filled: Notify::new(),
            taken: Notify::new(),
        }
    }

    /// Takes what the relay has for the client, until its close.
    pub async fn fill(&self, outbox: &Outbox) {
        loop {
            let item = outbox.next().await;
            let over = matches!(item, Item::Close(..));
            match item {
                Item::Line(line) => {
                    let length = line.len();
                    self.keep(line).await;
                    outbox.sent(length);
                }
                item => self.entries.borrow_mut().push_back(Entry::Here(item)),
            }
            self.filled.notify_one();
            if over {
                return;
            }
        }
    }

    /// Keeps a line. A full disk or shelf keeps the relay waiting, until the client has taken enough.
    async fn keep(&self, line: Bytes) {
        loop {
            if self.entries.borrow().is_empty() || self.here.get() + line.len() <= MEMORY {
                self.here.set(self.here.get() + line.len());
                return self.entries.borrow_mut().push_back(Entry::Here(Item::Line(line)));
            }
            self.shelf.room().await;
            if self.shelf.append(&line) {
                break;
            }
            let _ = timeout(AGAIN, self.taken.notified()).await;
        }
        let mut entries = self.entries.borrow_mut();
        match entries.back_mut() {
            Some(Entry::Shelved(count)) => *count += 1,
            _ => entries.push_back(Entry::Shelved(1)),
        }
    }

    /// The next item. Cancel-safe; for one taker.
    pub async fn next(&self) -> Item {
        loop {
            if let Some(item) = self.pop() {
                self.taken.notify_one();
                return item;
            }
            self.filled.notified().await;
        }
    }

    fn pop(&self) -> Option<Item> {
        let mut entries = self.entries.borrow_mut();
        if let Some(Entry::Shelved(count)) = entries.front_mut() {
            *count -= 1;
            if *count == 0 {
                entries.pop_front();
            }
            return Some(match self.shelf.pop() {
                Ok(Some(line)) => Item::Line(line.into()),
                lost => {
                    tracing::error!(?lost, "what was kept for a client cannot be read");
                    let words = "what was kept for you is lost: attach anew";
                    Item::Close(close::INTERNAL, words.to_owned())
                }
            });
        }
        match entries.pop_front()? {
            Entry::Here(item) => {
                if let Item::Line(line) = &item {
                    self.here.set(self.here.get() - line.len());
                }
                Some(item)
            }
            Entry::Shelved(_) => None,
        }
    }

    /// Nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.borrow().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::super::spool::Spool;
    use super::*;

    #[test]
    fn on_a_full_disk_whoever_reads_is_not_held_up() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            // A file, which nothing can be made in.
            std::fs::write(dir.path().join("full"), "").unwrap();
            let backlog = Backlog::new(Shelf::new(Spool::new(dir.path().join("full"), 1), 1 << 30));
            let outbox = Outbox::new(Rc::new(Notify::new()));
            let line = |number: u8| vec![number; MEMORY * 2 / 3];
            for number in 0..12 {
                outbox.put(Item::Line(line(number).into()));
            }
            outbox.put(Item::Close(1000, "end".into()));
            let read = async {
                for number in 0..12 {
                    let Item::Line(got) = backlog.next().await else { panic!("no line") };
                    assert!(got == line(number), "{number}");
                }
            };
            let both = async { tokio::join!(read, backlog.fill(&outbox)) };
            timeout(60 * AGAIN, both).await.expect("held up");
        });
    }

    #[test]
    fn lines_come_out_in_order_whether_they_were_in_memory_or_on_the_disk() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(in_order());
    }

    async fn in_order() {
        let dir = tempfile::tempdir().unwrap();
        let spool = || std::fs::read_dir(dir.path().join("spool")).map_or(0, Iterator::count);
        let shelf = Shelf::new(Spool::new(dir.path().join("spool"), 1), u64::MAX);
        let backlog = Backlog::new(shelf);
        let outbox = Outbox::new(Rc::new(Notify::new()));
        let line = |number: u8| vec![number; MEMORY / 4];
        for number in 0..12 {
            outbox.put(Item::Line(line(number).into()));
        }
        outbox.put(Item::Close(1000, "end".into()));
        backlog.fill(&outbox).await;
        assert_eq!((spool(), outbox.is_full()), (1, false));
        for number in 0..12 {
            let Item::Line(got) = backlog.next().await else { panic!("no line") };
            assert!(got == line(number), "{number}");
            if number == 5 {
                backlog.keep(b"later"[..].into()).await;
            }
        }
        assert!(matches!(backlog.next().await, Item::Close(1000, _)));
        assert!(matches!(backlog.next().await, Item::Line(line) if line == "later"));
        assert_eq!((spool(), backlog.is_empty()), (0, true));
    }
}
