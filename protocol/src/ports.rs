//! How the sessions of one machine share its TCP ports, whoever runs them.
//!
//! Sessions share the network namespace of their machine, and Landlock's port rules know numbers, not owners. So ports are
//! given out in ranges of [`RANGE`], each beginning at a multiple of it: two ranges are the same or disjoint, whoever
//! chose them. The first port of a range is its *claim*: a supervisor binds it for its life and no agent is ever granted
//! it, so the kernel gives a range to one worker at a time, across homes and users; it serves there, unless told otherwise. The
//! others are the session's.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

/// All that casemate gives out on one machine: an allocator's own, and each range of a worker. Nobody else gets one by its number.
pub const OURS: RangeInclusive<u16> = 20_000..=31_999;

/// Why nobody is handed a port by its number; `None`: it is none of casemate's.
#[must_use]
pub fn foreign(port: u16) -> Option<String> {
    let (first, last) = (OURS.start(), OURS.end());
    OURS.contains(&port).then(|| {
        format!(
            "port {port}: casemate gives out {first} to {last}, so that another session or an allocator may listen there: name a port \
             below or above; in a policy \"{{ports}}\" are the session's own"
        )
    })
}

/// Ports of a range: the claim and the session's own.
pub const RANGE: u16 = 16;

/// `count` ports from `first` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortRange {
    /// The first port.
    pub first: u16,
    /// How many.
    pub count: u16,
}

/// Where a worker looks for a free range, and with which one it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortPool {
    /// The first port of the first range, a multiple of [`RANGE`].
    pub first: u16,
    /// How many ranges; at least one, and none reaches beyond 65535.
    pub ranges: u16,
    /// The range to be tried first, below `ranges`. A session that gets the same one each time keeps its ports as long as
    /// nobody else took them.
    pub preferred: u16,
}

// === impl PortRange ===

impl PortRange {
    /// The ports; stops at 65535.
    pub fn iter(self) -> impl Iterator<Item = u16> {
        (self.first..=u16::MAX).take(usize::from(self.count))
    }

    /// What the agent of the range that `claim` begins may use.
    #[must_use]
    pub fn behind(claim: u16) -> Self {
        Self { first: claim.saturating_add(1), count: RANGE - 1 }
    }
}

// === impl PortPool ===

impl PortPool {
    /// Whether it is what its fields say that it is.
    #[must_use]
    pub fn is_sound(self) -> bool {
        let end = u32::from(self.first) + u32::from(self.ranges) * u32::from(RANGE);
        self.first >= RANGE
            && self.first.is_multiple_of(RANGE)
            && self.preferred < self.ranges
            && end <= u32::from(u16::MAX) + 1
    }

    /// Whether a port is in one of its ranges, as a claim or as a session's.
    #[must_use]
    pub fn has(self, port: u16) -> bool {
        let behind = u32::from(self.ranges) * u32::from(RANGE);
        port.checked_sub(self.first).is_some_and(|at| u32::from(at) < behind)
    }

    /// The claim of every range of a sound pool, once: the preferred one, those above, those below.
    pub fn claims(self) -> impl Iterator<Item = u16> {
        (self.preferred..self.ranges)
            .chain(0..self.preferred.min(self.ranges))
            .map(move |index| self.first + index * RANGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_range_is_tried_once_from_the_preferred_one_on() {
        let pool = PortPool { first: 21_008, ranges: 4, preferred: 2 };
        assert!(pool.is_sound());
        assert_eq!(pool.claims().collect::<Vec<_>>(), [21_040, 21_056, 21_008, 21_024]);
    }

    #[test]
    fn a_claim_is_no_port_of_any_session() {
        let pool = PortPool { first: 65_504, ranges: 2, preferred: 0 };
        assert!(pool.is_sound());
        let claims: Vec<u16> = pool.claims().collect();
        let own: Vec<u16> =
            pool.claims().flat_map(|claim| PortRange::behind(claim).iter()).collect();
        assert_eq!((claims.len(), own.len()), (2, 30));
        assert!(!own.iter().any(|port| claims.contains(port)));
        assert_eq!(own.last(), Some(&u16::MAX));
    }

    #[test]
    fn pools_whose_ranges_could_overlap_in_part_are_not_sound() {
        let sound = PortPool { first: 21_008, ranges: 4, preferred: 0 };
        for pool in [
            PortPool { first: 21_000, ..sound },
            PortPool { first: 0, ..sound },
            PortPool { ranges: 0, ..sound },
            PortPool { preferred: 4, ..sound },
            PortPool { first: 65_520, ranges: 2, ..sound },
        ] {
            assert!(!pool.is_sound(), "{pool:?}");
        }
    }
}
