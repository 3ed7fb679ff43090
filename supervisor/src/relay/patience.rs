//! When a client that reads is waited for instead of the disk being used.
//!
//! Pure. An agent is often quicker than its client by a little. To hold it back for a moment is cheaper than to write what it
//! says to a file and read it again; but an agent of a client that reads slowly, or not at all, must not be held back for long:
//! it hears a cancel only where it is not waiting to write.

use std::time::Duration;

/// The longest wait.
pub(super) const WAIT: Duration = Duration::from_millis(10);

/// What a client has to take for the next wait: at 25 MB/s its agent waits as it would on a pipe, at 1 MB/s for 4 % of the time.
const PRICE: u64 = 256 * 1024;

/// See the module.
#[derive(Debug)]
pub(super) struct Patience {
    /// How much the client had taken when it was last waited for, in bytes.
    waited_at: u64,
    /// Nothing was ever waited for.
    fresh: bool,
}

// === impl Patience ===

impl Patience {
    /// With one wait in hand.
    #[must_use]
    pub(super) fn new() -> Self {
        Self { waited_at: 0, fresh: true }
    }

    /// Whether a client that has taken so many bytes in all is waited for once more.
    pub(super) fn has(&mut self, taken: u64) -> bool {
        let has = self.fresh || taken - self.waited_at >= PRICE;
        if has {
            (self.fresh, self.waited_at) = (false, taken);
        }
        has
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_nothing_is_waited_for_once_and_who_takes_much_again_and_again() {
        let mut patience = Patience::new();
        assert!(patience.has(0));
        assert!((0..1000).all(|_| !patience.has(PRICE - 1)));
        assert!((1..1000).all(|times| patience.has(times * PRICE) && !patience.has(times * PRICE)));
    }

    #[test]
    fn an_agent_waits_for_a_slow_reader_for_a_small_part_of_the_time() {
        let mut patience = Patience::new();
        // One second of 1 MB/s, asked each millisecond.
        let waits = (0..1000).filter(|ms| patience.has(ms * 1000)).count();
        assert!(waits <= 5, "{waits} waits of {WAIT:?}");
    }
}
