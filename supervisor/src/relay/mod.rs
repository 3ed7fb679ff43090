//! The relay: one task that owns the ACP role, the agent and what both leave on the disk.

pub mod driver;
pub mod generation;
pub mod journal;
pub mod outbox;
pub mod saved;
pub mod view;
