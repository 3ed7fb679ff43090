//! The files of audit logs: one writer ([`Log`]), one reader ([`verify`], [`lines`]).
//!
//! A log is `audit.ndjson` in a directory that no agent is granted, mode 0600, and `audit.ndjson.1`, the file before it.
//! What the lines mean and what makes a chain is `casemate_protocol::audit`'s; here are bytes, disks and crashes.

mod log;
mod read;

pub use log::{Log, OpenError};
pub use read::{Found, lines, newest, verify};

/// The file that is written.
pub const FILE: &str = "audit.ndjson";
/// The file before it.
pub const FILE_BEFORE: &str = "audit.ndjson.1";

#[cfg(test)]
mod tests;
