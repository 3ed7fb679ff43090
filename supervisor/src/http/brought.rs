//! What a connection has brought and the relay has not taken.
//!
//! The relay takes nothing while its agent is far behind. A connection is listened to all the same, or nobody would miss a client that
//! goes away meanwhile: up to a bound, which a client that waits for its agent does not reach.

use casemate_protocol::acp::server::Conn;
use tokio::sync::mpsc::{self, error::SendError};

use crate::relay::driver::{FromClient, Sent};

/// More lines than this, or more bytes besides the first of them, and the connection is read no further.
const MANY: usize = 32 * 1024;
const MUCH: usize = 1024 * 1024;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Brought {
    lines: Vec<Sent>,
    first: usize,
    bytes: usize,
}

// === impl Brought ===

impl Brought {
    pub(super) fn push(&mut self, line: Sent) {
        let (Sent::Line(bytes) | Sent::Ahead(bytes)) = &line;
        if self.lines.is_empty() {
            (self.first, self.bytes) = (bytes.len(), 0);
        }
        self.bytes += bytes.len();
        self.lines.push(line);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    pub(super) fn has_room(&self) -> bool {
        self.lines.is_empty() || (self.lines.len() < MANY && self.bytes - self.first < MUCH)
    }

    /// Hands all to the relay, or nothing where this is given up: a send that is given up would take it along.
    ///
    /// # Errors
    /// The relay is over.
    pub(super) async fn hand_on(
        &mut self,
        conn: Conn,
        relay: &mpsc::Sender<FromClient>,
    ) -> Result<(), SendError<()>> {
        if !self.lines.is_empty() {
            relay.reserve().await?.send(FromClient::Lines(conn, std::mem::take(&mut self.lines)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn what_a_connection_brought_stays_where_it_ends_while_the_relay_has_no_room() {
        let (relay, mut end) = mpsc::channel(1);
        let mut brought = Brought::default();
        brought.push(Sent::Line("one".into()));
        assert!(brought.hand_on(Conn(1), &relay).now_or_never().is_some() && brought.is_empty());
        for text in ["two", "three"] {
            brought.push(Sent::Ahead(text.into()));
            // Given up, as by a connection that breaks.
            assert!(brought.hand_on(Conn(1), &relay).now_or_never().is_none());
        }
        assert!(matches!(end.try_recv(), Ok(FromClient::Lines(_, first)) if first.len() == 1));
        assert!(brought.hand_on(Conn(1), &relay).now_or_never().is_some());
        let Ok(FromClient::Lines(_, rest)) = end.try_recv() else { panic!("lost") };
        assert!(
            matches!(&rest[..], [Sent::Ahead(two), Sent::Ahead(three)] if two == "two" && three == "three")
        );
    }

    #[test]
    fn the_longest_line_leaves_room_for_short_ones_and_many_of_any_length_do_not() {
        let mut brought = Brought::default();
        brought.push(Sent::Line(vec![0; 64 << 20].into()));
        brought.push(Sent::Ahead(vec![0; MUCH - 1].into()));
        assert!(brought.has_room());
        brought.push(Sent::Line("x".into()));
        assert!(!brought.has_room());
        let mut brought = Brought::default();
        (1..MANY).for_each(|_| brought.push(Sent::Line("".into())));
        assert!(brought.has_room());
        brought.push(Sent::Line("".into()));
        assert!(!brought.has_room());
    }
}
