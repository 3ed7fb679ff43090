//! What was said while a session was made, for everybody who asked for it.
//!
//! Owns the events from the first on, so that whoever asks again is told the same, however far it has come.

use std::cell::RefCell;
use std::rc::Rc;

use casemate_protocol::slot::BindEvent;
use casemate_protocol::worker::StartEvent;
use futures_util::stream::{self, LocalBoxStream, StreamExt as _};
use hyper::body::Bytes;
use serde::Serialize;
use tokio::sync::Notify;

use crate::report::Report;

/// What can be said.
pub trait Line: Clone + Serialize + From<StartEvent> + std::fmt::Debug + 'static {
    /// Whether nothing follows.
    fn is_last(&self) -> bool;
}

/// The events so far.
#[derive(Debug)]
pub struct Transcript<E = StartEvent> {
    events: RefCell<Vec<E>>,
    more: Notify,
}

// === impl Line ===

impl Line for StartEvent {
    fn is_last(&self) -> bool {
        !matches!(self, Self::Progress { .. })
    }
}

impl Line for BindEvent {
    fn is_last(&self) -> bool {
        self.is_last()
    }
}

// === impl Transcript ===

impl<E> Default for Transcript<E> {
    fn default() -> Self {
        Self { events: RefCell::default(), more: Notify::new() }
    }
}

impl<E: Line> Report for Transcript<E> {
    fn event(&self, event: &StartEvent) {
        self.say(event.clone().into());
    }
}

impl<E: Line> Transcript<E> {
    /// Says one.
    pub fn say(&self, event: E) {
        self.events.borrow_mut().push(event);
        self.more.notify_waiters();
    }

    /// All events as lines of JSON, up to the one that nothing follows.
    pub fn lines(self: Rc<Self>) -> LocalBoxStream<'static, Bytes> {
        stream::unfold(Some((self, 0)), |state| async move {
            let (transcript, next) = state?;
            let event = transcript.event_at(next).await;
            let last = event.is_last();
            let mut line = serde_json::to_vec(&event).ok()?;
            line.push(b'\n');
            Some((Bytes::from(line), (!last).then_some((transcript, next + 1))))
        })
        .boxed_local()
    }

    async fn event_at(&self, index: usize) -> E {
        loop {
            // No suspension point between the look and the wait: one thread says and hears all of it.
            if let Some(event) = self.events.borrow().get(index) {
                return event.clone();
            }
            self.more.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_protocol::worker::StartError;

    #[tokio::test]
    async fn everybody_hears_all_of_it_whenever_they_ask_and_nothing_follows_the_end() {
        let transcript = Rc::new(Transcript::<StartEvent>::default());
        transcript.progress("one".into());
        let early = Rc::clone(&transcript).lines();
        let (early, ()) = tokio::join!(early.collect::<Vec<_>>(), async {
            tokio::task::yield_now().await;
            transcript.progress("two".into());
            transcript.failed(&StartError::Other { message: "no".into() });
        });
        let late: Vec<_> = Rc::clone(&transcript).lines().collect().await;
        assert_eq!(early, late);
        assert_eq!(early.len(), 3);
        assert!(early[2].ends_with(b"}\n") && early[2].starts_with(br#"{"event":"failed""#));
    }
}
