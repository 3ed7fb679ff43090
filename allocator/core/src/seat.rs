//! A slot's number on its machine. Ports and, for a root allocator, the user id follow from it, so that two slots never
//! share either. A seat is free again when its slot's directory is gone.

use casemate_protocol::worker::PortRange;
use serde::{Deserialize, Serialize};

/// The first port of seat 0.
const FIRST_PORT: u16 = 21_000;
/// Ports above stay free: the kernel's own ephemeral range begins at 32768.
const PORT_LIMIT: u16 = 32_000;
/// Ports of one seat.
const PORTS: u16 = 16;
/// Seats on one machine.
pub const SEATS: u16 = (PORT_LIMIT - FIRST_PORT) / PORTS;
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

    /// Its ports.
    #[must_use]
    pub fn ports(self) -> PortRange {
        PortRange { first: FIRST_PORT + self.0 % SEATS * PORTS, count: PORTS }
    }

    /// The user id that its worker has when the allocator is root.
    #[must_use]
    pub fn uid(self) -> u32 {
        FIRST_UID + u32::from(self.0)
    }
}
