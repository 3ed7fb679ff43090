//! A hosted session: what of a worker belongs to one session alone.
//!
//! The worker ([`crate::worker`]) has the spawner, the reaper, the shield, the slot's lock, the listener and the boot id. A session
//! has its trees, its walls, its ports, its state and its generation: made in [`ready`], served in [`live`], found by a
//! token's claims in [`registry`]. One session that is given at the start is the special case of many.

pub mod live;
pub mod ready;
pub mod registry;
pub mod state;
