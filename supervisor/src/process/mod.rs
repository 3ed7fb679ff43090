//! Processes of the session: starting them behind a wall, waiting for them, reading what they say.
//!
//! [`Reaper`](reaper::Reaper) is the one owner of waits. [`agent`] is the long-lived process, [`confined`] the short
//! ones (git). All of it runs on one thread, so a pid is registered before its end can be seen.

pub mod agent;
pub mod confined;
pub mod lines;
pub mod reaper;
pub mod stderr;
