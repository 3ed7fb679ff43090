//! How far messages got when their attachment ended.

use crate::codes::Delivery;

/// Numbers of messages, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Reach {
    /// The last that was acknowledged.
    pub acked: u64,
    /// The last of which anything was sent.
    pub sent: u64,
}

// === impl Reach ===

impl Reach {
    /// What became of message `number`. `agent_ended`: it is known that no agent works on it any more.
    #[must_use]
    pub fn delivery(self, number: u64, agent_ended: bool) -> Delivery {
        if number > self.sent {
            Delivery::NotDelivered
        } else if number <= self.acked && agent_ended {
            Delivery::Interrupted
        } else {
            Delivery::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_never_sent_may_be_sent_again() {
        let reach = Reach { acked: 2, sent: 4 };
        let all = |ended| (1..=5).map(|number| reach.delivery(number, ended)).collect::<Vec<_>>();
        use Delivery::{Interrupted, NotDelivered, Unknown};
        assert_eq!(all(true), [Interrupted, Interrupted, Unknown, Unknown, NotDelivered]);
        assert_eq!(all(false), [Unknown, Unknown, Unknown, Unknown, NotDelivered]);
    }
}
