//! The Kubernetes backend's words: its custom resources, and the objects that a slot is made of.
//!
//! Pure: no client, no clock, no randomness. What the resources mean is decided in `casemate-allocator-core`.

pub mod allocate;
pub mod kept;
pub mod ledger;
pub mod observe;
pub mod resource;
pub mod slot;
