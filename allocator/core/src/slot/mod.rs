//! Sessions whose workers live in slots of a cluster: a Pod and what belongs to it, under one random name.
//!
//! [`decide`] is level-triggered: it has no memory but the session, which the cluster's API server keeps, and says one thing to
//! do, with what it was decided about (UID and version) in it. So an allocator may be killed between any two of them, and two may
//! act at once: what an action was decided about is no longer there for the second, and the API server refuses it.
//!
//! What the API server is relied on for:
//!
//! - a write of the session, a claim and a deletion name UID and version, and are refused where either is another;
//! - a name is given to one Pod at a time; a Pod that is being deleted has its name until it is gone.
//!
//! And of the driver: it looks at the session first and at the slot's objects after it, at the API server and not at a copy of
//! unknown age, before it does what ends something ([`Action::Write`] and the deletions).
//!
//! Invariants, checked in every state that a small world can reach (`tests`):
//!
//! 1. At most one Pod a session has a worker that is bound to it, and it is never one of an older generation than a former one.
//! 2. Nothing is deleted that is not the session's.
//! 3. No volume is deleted that holds unpushed work, unless somebody said `discard`.
//! 4. A generation never falls, and each worker has one of its own.
//! 5. No worker of a session that is active is ended but by what happens to it.
//! 6. A session that has a volume never gets another one, and none is made for it again.

mod action;
mod cause;
mod decide;
pub mod pool;
mod session;
pub mod sweep;
#[cfg(test)]
mod tests;
mod world;

pub use action::{Action, Obstacle};
pub use cause::Cause;
pub use decide::decide;
pub use session::{Claim, Session, VolumeNeed};
pub use world::{Anchor, Object, Pod, PodState, Uid, Version, Volume, WorkerSeen, World};
