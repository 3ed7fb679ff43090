//! A slot's number in its home. For a root allocator the user id follows from it, so that two slots never share one; and
//! the range of ports that its workers try first, so that a session keeps its ports as long as nobody else took them. A
//! seat is free again when its slot's directory is gone.

use casemate_protocol::ports::{PortPool, RANGE};
use serde::{Deserialize, Serialize};

/// The first port of the pool, a multiple of [`RANGE`].
const FIRST_PORT: u16 = 21_008;
/// Ports from here on stay free: the kernel's own ephemeral range begins at 32768.
const PORT_LIMIT: u16 = 32_000;
/// Seats in one home, and ranges of ports on one machine.
pub const SEATS: u16 = (PORT_LIMIT - FIRST_PORT) / RANGE;
/// User id of seat 0: above the ranges that login.defs and systemd hand out (up to 1,879,048,191), below 2^31.
const FIRST_UID: u32 = 1_900_000_000;

/// A seat, below [`SEATS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seat(pub u16);

impl Seat {
    /// The lowest seat that is not taken; `None` when all are.
    #[must_use]
    pub fn lowest_free(taken: &std::collections::BTreeSet<Self>) -> Option<Self> {
        (0..SEATS).map(Self).find(|seat| !taken.contains(seat))
    }

    /// Where its workers look for ports. Other homes' seats prefer the same ranges; the workers settle it among
    /// themselves, by the kernel.
    #[must_use]
    pub fn ports(self) -> PortPool {
        PortPool { first: FIRST_PORT, ranges: SEATS, preferred: self.0 % SEATS }
    }

    /// The user id that its worker has when the allocator is root.
    #[must_use]
    pub fn uid(self) -> u32 {
        FIRST_UID + u32::from(self.0)
    }
}
