//! Signals to the worker: those that end it, and those that are its agent's to deal with.

use casemate_protocol::codes::close;
use casemate_protocol::worker::StartError;
use nix::sys::signal::Signal;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::sync::mpsc;

use super::other;
use crate::relay::driver::Order;

/// Signals that are the agent's to deal with.
const FORWARDED: [Signal; 5] =
    [Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGWINCH];

/// TERM and INT.
#[derive(Debug)]
pub(super) struct Ending {
    terminate: Signals,
    interrupt: Signals,
}

// === impl Ending ===

impl Ending {
    /// Listens from now on.
    ///
    /// # Errors
    /// [`StartError::Other`] where the kernel refuses a handler.
    pub(super) fn listen() -> Result<Self, StartError> {
        let listen = |kind, name| signal(kind).map_err(|error| other(name, &error));
        Ok(Self {
            terminate: listen(SignalKind::terminate(), "no SIGTERM")?,
            interrupt: listen(SignalKind::interrupt(), "no SIGINT")?,
        })
    }

    /// Completes with the next of them.
    pub(super) async fn wanted(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// From now on they stop a session.
    pub(super) fn stop(mut self, orders: mpsc::Sender<Order>) {
        tokio::task::spawn_local(async move {
            self.wanted().await;
            let stop = Order::Stop(close::GOING_AWAY, "the worker was stopped".to_owned());
            // Where nobody takes orders any more the worker is ending already.
            let _ = orders.send(stop).await;
        });
    }
}

/// Passes on to a session's agent what is the agent's.
pub(super) fn forward(orders: &mpsc::Sender<Order>) {
    for number in FORWARDED {
        let orders = orders.clone();
        match signal(SignalKind::from_raw(number as i32)) {
            Ok(mut signals) => drop(tokio::task::spawn_local(async move {
                while signals.recv().await.is_some() {
                    if orders.send(Order::Signal(number)).await.is_err() {
                        return;
                    }
                }
            })),
            Err(error) => tracing::warn!(%error, %number, "not forwarded"),
        }
    }
}

/// Of a worker of many sessions no agent is meant, and none of these shall end it.
pub(super) fn ignore() {
    for number in FORWARDED {
        if let Err(error) = signal(SignalKind::from_raw(number as i32)) {
            tracing::warn!(%error, %number, "not ignored");
        }
    }
}
