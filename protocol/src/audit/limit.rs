//! Keeps a flood of one kind from pushing everything else out of a log of bounded size. Pure: the clock is the caller's.

use std::collections::HashMap;

/// How long a window is, in milliseconds.
const WINDOW: u64 = 60_000;
/// How many of a kind a window takes one by one.
const ONE_BY_ONE: u64 = 10;

/// Lets the first events of each kind through; the others are counted, and the count goes with the next one.
#[derive(Debug, Default)]
pub struct Limiter {
    kinds: HashMap<&'static str, Kind>,
}

#[derive(Debug, Default)]
struct Kind {
    since: u64,
    passed: u64,
    held: u64,
}

// === impl Limiter ===

impl Limiter {
    /// An event of `kind` at `now` (milliseconds of a clock that never goes back). How many events it stands for, itself
    /// included, or `None` where it is only counted.
    pub fn admit(&mut self, kind: &'static str, now: u64) -> Option<u64> {
        let entry = self.kinds.entry(kind).or_default();
        if entry.passed == 0 || now.saturating_sub(entry.since) >= WINDOW {
            entry.since = now;
            entry.passed = 0;
        }
        if entry.passed >= ONE_BY_ONE {
            entry.held += 1;
            return None;
        }
        entry.passed += 1;
        Some(1 + std::mem::take(&mut entry.held))
    }

    /// What was counted and not yet told, kind by kind: for the end.
    pub fn held(&mut self) -> Vec<(&'static str, u64)> {
        let held = self.kinds.iter_mut().filter(|(_, kind)| kind.held > 0);
        let mut all: Vec<_> =
            held.map(|(name, kind)| (*name, std::mem::take(&mut kind.held))).collect();
        all.sort_unstable();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_every_event_is_told_of_once() {
        let mut limiter = Limiter::default();
        let mut told = 0;
        let mut lines = 0;
        for at in 0..200_000 {
            if let Some(count) = limiter.admit("a", at) {
                told += count;
                lines += 1;
            }
        }
        let held = limiter.held();
        assert_eq!(lines, 4 * ONE_BY_ONE, "200 s are 4 windows");
        assert_eq!(told + held.iter().map(|(_, held)| held).sum::<u64>(), 200_000);
        assert!(limiter.held().is_empty());
    }

    #[test]
    fn one_kind_does_not_hold_up_another() {
        let mut limiter = Limiter::default();
        while limiter.admit("a", 0).is_some() {}
        assert_eq!(limiter.admit("b", 0), Some(1));
    }
}
