//! A thread that writes to journals what is much, while the relay reads on.
//!
//! One errand at a time, and what it works with goes there and comes back: nothing is shared. It is started by the first errand, and
//! where no thread is to be had the errand is done at once.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;

use bytes::Bytes;
use tokio::sync::Notify;

use super::file::Journal;

/// Enough for a loop that calls into the kernel.
const STACK: usize = 64 * 1024;

/// A journal, and the lines that it lacks.
#[derive(Debug)]
pub(super) struct Errand {
    pub(super) session: String,
    pub(super) journal: Journal,
    pub(super) parts: Vec<Bytes>,
}

/// One that is done; its parts are gone.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) session: String,
    pub(super) journal: Journal,
    pub(super) written: io::Result<()>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Writer {
    thread: Option<Thread>,
    under_way: bool,
    done: Arc<Notify>,
}

#[derive(Debug)]
struct Thread {
    errands: SyncSender<Errand>,
    results: Receiver<Done>,
}

impl Errand {
    pub(super) fn run(mut self) -> Done {
        let parts: Vec<&[u8]> = self.parts.iter().map(|part| &part[..]).collect();
        let written = self.journal.write(&parts);
        Done { session: self.session, journal: self.journal, written }
    }
}

// === impl Writer ===

impl Writer {
    /// An errand is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.under_way
    }

    /// Notified when an errand is done.
    pub(super) fn done(&self) -> Arc<Notify> {
        Arc::clone(&self.done)
    }

    /// Begins an errand; none may be under way. One that could not be begun is done.
    pub(super) fn begin(&mut self, errand: Errand) -> Option<Done> {
        if self.thread.is_none() {
            match Thread::start(Arc::clone(&self.done)) {
                Ok(thread) => self.thread = Some(thread),
                Err(error) => {
                    tracing::debug!(%error, "no thread for journals");
                    return Some(errand.run());
                }
            }
        }
        let thread = self.thread.as_ref()?;
        match thread.errands.send(errand) {
            Ok(()) => {
                self.under_way = true;
                None
            }
            // The thread ends with this sender, unless it panicked.
            Err(unsent) => Some(unsent.0.run()),
        }
    }

    /// The errand under way, once it is done.
    pub(super) fn wait(&mut self) -> Option<Done> {
        let done = self.thread.as_ref().filter(|_| self.under_way)?.results.recv().ok();
        self.under_way = false;
        done
    }

    /// The same, without waiting.
    pub(super) fn ready(&mut self) -> Option<Done> {
        let done = self.thread.as_ref().filter(|_| self.under_way)?.results.try_recv();
        self.under_way = matches!(done, Err(TryRecvError::Empty));
        done.ok()
    }
}

// === impl Thread ===

impl Thread {
    fn start(tell: Arc<Notify>) -> io::Result<Self> {
        let (errands, todo) = sync_channel::<Errand>(1);
        let (answer, results) = sync_channel(1);
        let work = move || {
            for errand in todo {
                if answer.send(errand.run()).is_err() {
                    return;
                }
                tell.notify_one();
            }
        };
        thread::Builder::new().name("journal".into()).stack_size(STACK).spawn(work)?;
        Ok(Self { errands, results })
    }
}
