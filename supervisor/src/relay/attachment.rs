//! One resumable attachment: what is kept for the client, in memory and on disk, whether it is connected or not.
//!
//! Owns [`SupervisorEnd`], its spool and the connection that has come last. [`Attachment::fill`] moves what the relay has
//! for the client here, so that the relay's own queue stays short while the client is away; `http::resumable` brings
//! it to the client. Neither waits for the other but by the notifications here.

use std::cell::RefCell;
use std::io::{BufRead as _, BufReader, Read as _};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use casemate_protocol::codes::close;
use casemate_protocol::relay::frame::Packet;
use casemate_protocol::relay::outgoing::Kept;
use casemate_protocol::relay::supervisor::{SupervisorEnd, Taken};
use hyper::upgrade::Upgraded;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout};

use super::journal::UNREADABLE;
use super::outbox::{Item, Outbox};
use super::patience::{self, Patience};
use super::receipts::Receipts;
use super::shelf::{AGAIN, Shelf};

/// More bytes than this are kept on disk.
const MEMORY: usize = 1024 * 1024;

/// See the module.
#[derive(Debug)]
pub struct Attachment {
    epoch: u64,
    ticket: String,
    end: RefCell<SupervisorEnd>,
    shelf: Shelf,
    /// The last message for the shelf, while the disk has no room for it: the client may have it from here.
    stuck: RefCell<Option<Bytes>>,
    arrival: RefCell<Option<Upgraded>>,
    /// A connection has come.
    arrived: Notify,
    /// There may be something to send, or the end.
    work: Rc<Notify>,
    /// Something that was kept is not any more.
    room: Notify,
    patience: RefCell<Patience>,
    receipts: Rc<Receipts>,
    started: Instant,
}

// === impl Attachment ===

impl Attachment {
    /// A new one, without a connection.
    #[must_use]
    pub fn new(epoch: u64, ticket: String, shelf: Shelf) -> Self {
        let work = Rc::new(Notify::new());
        Self {
            epoch,
            end: RefCell::new(SupervisorEnd::new(epoch, ticket.clone(), MEMORY, 0)),
            ticket,
            shelf,
            stuck: RefCell::default(),
            arrival: RefCell::default(),
            arrived: Notify::new(),
            receipts: Rc::new(Receipts::new(Rc::clone(&work))),
            work,
            room: Notify::new(),
            patience: RefCell::new(Patience::new()),
            started: Instant::now(),
        }
    }

    /// Its number.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// What reconnects.
    #[must_use]
    pub fn ticket(&self) -> String {
        self.ticket.clone()
    }

    /// What the client is told of its lines.
    #[must_use]
    pub fn receipts(&self) -> Rc<Receipts> {
        Rc::clone(&self.receipts)
    }

    /// Nobody can come back to it.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.end.borrow().is_over()
    }

    /// A connection with its ticket has come; the newest counts.
    pub fn arrive(&self, stream: Upgraded) {
        self.arrival.replace(Some(stream));
        self.arrived.notify_one();
    }

    /// Completes once there is a newer connection.
    pub async fn arrived(&self) {
        while self.arrival.borrow().is_none() {
            self.arrived.notified().await;
        }
    }

    /// The connection that has come, once it has; `None` where the attachment is over before.
    pub async fn connection(&self) -> Option<Upgraded> {
        loop {
            if self.is_over() {
                return None;
            }
            if let Some(stream) = self.arrival.take() {
                self.end.borrow_mut().opened();
                return Some(stream);
            }
            let deadline = self.end.borrow().deadline();
            tokio::select! {
                () = self.arrived.notified() => {}
                () = self.work.notified() => {}
                () = at(deadline.map(|at| self.started + Duration::from_millis(at))) => {
                    self.end.borrow_mut().tick(self.now());
                }
            }
        }
    }

    /// The connection is gone.
    pub fn cut(&self) {
        self.end.borrow_mut().cut(self.now());
    }

    /// It ends without a word.
    pub fn drop_now(&self) {
        self.end.borrow_mut().drop_now();
    }

    /// The client broke the protocol.
    pub fn breach(&self, words: &str) {
        self.end.borrow_mut().lose(close::PROTOCOL, words);
        self.work.notify_one();
    }

    /// Takes a frame of the client; what came of it.
    ///
    /// # Errors
    /// The breach, in words; the client is told by the next frame.
    pub fn take(&self, frame: &Bytes) -> Result<Option<Taken>, String> {
        let taken = self.end.borrow_mut().take(frame);
        self.work.notify_one();
        self.room.notify_one();
        taken.map_err(|violation| violation.to_string())
    }

    /// An acknowledgement that may wait a moment for something that goes with it; `None` where there is none.
    pub fn acknowledgement(&self) -> Option<Packet> {
        self.end.borrow_mut().acknowledgement()
    }

    /// There is one.
    pub fn owes(&self) -> bool {
        self.end.borrow().flow().owes()
    }

    /// The next frame for the client, but for such a one; `None` while there is none.
    pub fn frame(&self) -> Option<Packet> {
        let (taken, settled) = self.receipts.counts();
        let mut end = self.end.borrow_mut();
        end.flow_mut().taken(taken);
        end.flow_mut().settled(settled);
        let frame = end.pressing();
        if end.flow().wants_spooled() {
            while end.flow().wants_spooled() {
                match self.shelf.pop() {
                    Ok(Some(line)) => end.flow_mut().unspooled(line.into()),
                    Ok(None) => match self.stuck.take() {
                        Some(line) => end.flow_mut().unspooled(line),
                        None => break,
                    },
                    Err(error) => {
                        tracing::error!(%error, "what was kept for a client cannot be read");
                        end.lose(close::INTERNAL, "what was kept for you is lost: attach anew");
                        break;
                    }
                }
            }
            self.room.notify_one();
        }
        frame.or_else(|| end.pressing())
    }

    /// The last frame, where one is owed.
    pub fn answer(&self) -> Option<Packet> {
        self.end.borrow().answer()
    }

    /// There may be something to send.
    pub async fn work(&self) {
        self.work.notified().await;
    }

    /// Takes what the relay has for the client, until its end, or until another client is in its place: for that it waits for nothing.
    pub async fn filled(&self, outbox: &Outbox) {
        tokio::select! {
            biased;
            reason = outbox.superseded() => {
                self.end.borrow_mut().leave(close::SUPERSEDED, &reason, self.now());
                self.work.notify_one();
            }
            () = self.fill(outbox) => {}
        }
    }

    async fn fill(&self, outbox: &Outbox) {
        loop {
            match outbox.next().await {
                Item::Line(line) => {
                    let length = line.len();
                    self.wait_for_a_reader(length, outbox).await;
                    self.keep(line).await;
                    outbox.sent(length);
                }
                Item::Journal { file, length } => {
                    let mut journal = BufReader::new(file.take(length));
                    let mut copied = 0;
                    loop {
                        // It lies on the disk already: no more of it than the client takes, unless its agent would have to wait.
                        while self.end.borrow().flow().bytes_kept() > MEMORY / 2
                            && !outbox.presses()
                        {
                            tokio::select! {
                                () = self.room.notified() => {}
                                () = outbox.pressed() => {}
                            }
                        }
                        if copied > MEMORY {
                            copied = 0;
                            yield_now().await;
                        }
                        let mut line = Vec::new();
                        match journal.read_until(b'\n', &mut line) {
                            Ok(0) => break,
                            Ok(_) => {}
                            Err(error) => {
                                tracing::error!(%error, "a journal cannot be read");
                                self.end.borrow_mut().lose(close::INTERNAL, UNREADABLE);
                                return self.work.notify_one();
                            }
                        }
                        line.pop_if(|byte| *byte == b'\n');
                        copied += line.len();
                        self.keep(line.into()).await;
                    }
                }
                Item::Close(code, reason) => {
                    self.end.borrow_mut().leave(code, &reason, self.now());
                    return self.work.notify_one();
                }
            }
        }
    }

    /// Keeps a message. A full disk or spool keeps the relay waiting instead of losing anything, until the client has taken enough.
    async fn keep(&self, line: Bytes) {
        self.shelf.room().await;
        let kept = self.end.borrow_mut().push(line);
        self.work.notify_one();
        let Kept::Spool(line) = kept else { return };
        let mut next = Some(line);
        while let Some(line) = next.filter(|line| !self.shelf.append(line)) {
            self.stuck.replace(Some(line));
            self.work.notify_one();
            let _ = timeout(AGAIN, self.room.notified()).await;
            next = self.stuck.take();
        }
    }

    /// Where a message would go to the disk although its client reads: see [`patience`].
    async fn wait_for_a_reader(&self, length: usize, outbox: &Outbox) {
        let hopes = {
            let end = self.end.borrow();
            let flow = end.flow();
            flow.is_open()
                && flow.would_spool(length)
                && self.patience.borrow_mut().has(flow.bytes_acknowledged())
        };
        if hopes {
            let room = async {
                while self.end.borrow().flow().would_spool(length) {
                    self.room.notified().await;
                }
            };
            outbox.narrow(true);
            let _ = timeout(patience::WAIT, room).await;
            outbox.narrow(false);
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Completes then, or never.
pub async fn at(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use casemate_protocol::relay::flow::{Brought, Flow};

    use super::*;
    use crate::relay::spool::Spool;

    #[test]
    fn on_a_full_disk_whoever_reads_is_not_held_up() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            // A file, which nothing can be made in.
            std::fs::write(dir.path().join("full"), "").unwrap();
            let shelf = Shelf::new(Spool::new(dir.path().join("full"), 1), 1 << 30);
            let attachment = Attachment::new(1, "ticket".into(), shelf);
            attachment.end.borrow_mut().opened();
            let mut client = Flow::client();
            client.opened();
            let outbox = Outbox::new(Rc::default());
            let line = |number: u8| vec![number; MEMORY * 2 / 3];
            for number in 0..12 {
                outbox.put(Item::Line(line(number).into()));
            }
            outbox.put(Item::Close(close::NORMAL, "end".into()));
            let read = async {
                // A client that keeps pace is waited for; what one does not take in time finds no room.
                sleep_until(Instant::now() + 10 * patience::WAIT).await;
                assert!(attachment.stuck.borrow().is_some());
                let mut number = 0;
                while number < 12 {
                    while let Some(frame) = client.frame() {
                        attachment.take(&frame.to_bytes()).unwrap();
                    }
                    let Some(frame) = attachment.frame() else {
                        attachment.work().await;
                        continue;
                    };
                    let brought = client.take(&frame.to_bytes()).unwrap();
                    if let Brought::Message(seq, got) = brought {
                        assert!(got == line(number), "{number}");
                        client.settled(seq);
                        number += 1;
                    }
                }
            };
            let both = async { tokio::join!(read, attachment.fill(&outbox)) };
            timeout(60 * AGAIN, both).await.expect("held up");
        });
    }
}
