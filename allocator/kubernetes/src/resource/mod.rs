//! Custom resources of the group `casemate.dev`.
//!
//! A [`WorkerProfile`] is the administrator's: what workers are, and who may use them. A [`WorkerSession`] is the
//! allocator's: everything that it must not forget is in its `spec`, because a restore of a backup drops `status`.

#![expect(unreachable_pub, reason = "deriving a schema with rules makes a public copy of the type")]
#![allow(clippy::duplicated_attributes, reason = "two columns of a printed table have one type")]

mod definitions;
pub mod profile;
mod schema;
pub mod session;
pub mod text;

pub use definitions::definitions;
pub use profile::{WorkerProfile, WorkerProfileSpec, WorkerProfileStatus};
pub use session::{WorkerSession, WorkerSessionSpec, WorkerSessionStatus};

/// The group of the custom resources, and the prefix of labels and annotations.
pub const GROUP: &str = "casemate.dev";
