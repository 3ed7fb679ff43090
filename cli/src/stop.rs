//! The signals by which a person or a session's end asks a command to take down what it made.

use casemate_protocol::codes::exit;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// Ctrl-C, TERM, and the end of the terminal. From [`Stop::listen`] on none of them ends the process by itself.
pub(crate) struct Stop {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

// === impl Stop ===

impl Stop {
    /// Before anything exists that would have to be taken down.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|error| {
                Failure::because(exit::SOFTWARE, "cannot listen for signals", &error)
            })
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// The number of the signal that came. Cancel-safe.
    pub(crate) async fn asked(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => 2,
            _ = self.terminate.recv() => 15,
            _ = self.hangup.recv() => 1,
        }
    }

    /// Does the work, unless a signal comes first: then its number. A terminal's signal reaches our helpers as well, so it
    /// is looked for before their end is.
    pub(crate) async fn or<T>(&mut self, work: impl Future<Output = T>) -> Result<T, u8> {
        tokio::select! {
            biased;
            signal = self.asked() => Err(signal),
            done = work => Ok(done),
        }
    }
}
