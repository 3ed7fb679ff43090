//! The sessions of a worker, by name.
//!
//! Owns the list; a session is in it from the moment on that it is served until its generation is over.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use casemate_protocol::ids::SessionId;

use super::live::Hosted;

/// The sessions that are served now.
#[derive(Debug, Default)]
pub struct Registry {
    sessions: RefCell<BTreeMap<SessionId, Rc<Hosted>>>,
}

// === impl Registry ===

impl Registry {
    /// From now on calls for this session get there.
    pub fn add(&self, hosted: Rc<Hosted>) {
        self.sessions.borrow_mut().insert(hosted.fixed.session.clone(), hosted);
    }

    /// From now on they do not.
    pub fn remove(&self, session: &SessionId) {
        self.sessions.borrow_mut().remove(session);
    }

    /// A session by name.
    #[must_use]
    pub fn get(&self, session: &SessionId) -> Option<Rc<Hosted>> {
        self.sessions.borrow().get(session).cloned()
    }

    /// All of them, by name.
    #[must_use]
    pub fn all(&self) -> Vec<Rc<Hosted>> {
        self.sessions.borrow().values().cloned().collect()
    }
}
