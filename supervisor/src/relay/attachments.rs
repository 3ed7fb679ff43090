//! Which attachment of a session a ticket opens.
//!
//! Owns the key of the session's tickets, made anew for each generation, and the newest attachment. An older one runs to
//! its end by itself; nobody gets back to it.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use casemate_protocol::relay::ticket::{Refused, TicketKey};

use super::attachment::Attachment;
use super::shelf::Shelf;
use super::spool::Spool;

/// Of one session.
#[derive(Debug)]
pub struct Attachments {
    key: TicketKey,
    /// Where spools lie.
    directory: PathBuf,
    /// How many bytes are kept for a client, about.
    limit: u64,
    newest: Cell<u64>,
    current: RefCell<Option<Rc<Attachment>>>,
}

// === impl Attachments ===

impl Attachments {
    /// None yet. What a killed worker left in `state/spool` is removed.
    ///
    /// # Errors
    /// Removing it.
    pub fn new(state: &Path, limit: u64) -> io::Result<Self> {
        let directory = state.join("spool");
        Spool::clear(&directory)?;
        Ok(Self {
            key: TicketKey::generate(),
            directory,
            limit,
            newest: Cell::new(0),
            current: RefCell::default(),
        })
    }

    /// A client attached by the plain door: no ticket before it is good any more. Where to keep what it does not take.
    pub fn plain(&self, epoch: u64) -> Shelf {
        self.newest.set(epoch.max(self.newest.get()));
        self.current.take();
        self.shelf(epoch)
    }

    fn shelf(&self, epoch: u64) -> Shelf {
        Shelf::new(Spool::new(self.directory.clone(), epoch), self.limit)
    }

    /// A new attachment, which supersedes all others.
    pub fn begin(&self, epoch: u64) -> Rc<Attachment> {
        let shelf = self.shelf(epoch);
        let attachment = Rc::new(Attachment::new(epoch, self.key.ticket(epoch), shelf));
        self.newest.set(epoch.max(self.newest.get()));
        self.current.replace(Some(Rc::clone(&attachment)));
        attachment
    }

    /// An attachment is over.
    pub fn end(&self, epoch: u64) {
        let mut current = self.current.borrow_mut();
        if current.as_ref().is_some_and(|attachment| attachment.epoch() == epoch) {
            *current = None;
        }
    }

    /// Whether a ticket is of this session at all.
    #[must_use]
    pub fn epoch(&self, ticket: &str) -> Option<u64> {
        self.key.epoch(ticket)
    }

    /// The attachment that a ticket of this epoch opens.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn find(&self, epoch: u64) -> Result<Rc<Attachment>, Refused> {
        let current = self.current.borrow();
        match current.as_ref().filter(|attachment| attachment.epoch() == epoch) {
            Some(attachment) if !attachment.is_over() => Ok(Rc::clone(attachment)),
            None if epoch < self.newest.get() => Err(Refused::Superseded),
            _ => Err(Refused::Over),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_attachment_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let attachments = Attachments::new(dir.path(), 1).unwrap();
        let ticket = attachments.begin(1).ticket();
        assert_eq!(attachments.epoch(&ticket), Some(1));
        assert_eq!(Attachments::new(dir.path(), 1).unwrap().epoch(&ticket), None);
        assert!(attachments.find(1).is_ok());
        attachments.begin(2);
        assert_eq!(attachments.find(1).err(), Some(Refused::Superseded));
        attachments.end(1);
        assert!(attachments.find(2).is_ok());
        attachments.end(2);
        assert_eq!(attachments.find(2).err(), Some(Refused::Over));
        drop(attachments.plain(3));
        assert_eq!(attachments.find(2).err(), Some(Refused::Superseded));
    }
}
