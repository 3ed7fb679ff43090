//! The relay: one task that owns the ACP role, the agent and what both leave on the disk.

pub mod attachment;
pub mod attachments;
pub mod backlog;
pub mod driver;
pub mod generation;
pub mod journal;
mod lasting;
pub mod outbox;
pub mod patience;
pub mod prompts;
pub mod receipts;
pub mod saved;
pub mod shelf;
pub mod spool;
pub mod view;
