//! The worker: provisions a session, confines its agent, runs it, relays for it, reports on it.
//!
//! One process serves one session ([`worker`]), or several of one user ([`shared`]), or waits for its one in a Pod ([`slot`]); everything long-lived runs on one thread. Pure
//! decisions ([`layout`], [`shield`], [`environment`], [`http::auth`]) stand apart from what acts on them.

mod access_lists;
pub mod audit;
pub mod bounds;
pub mod check;
pub mod config;
pub mod directories;
pub mod durable;
pub mod environment;
pub mod evidence;
pub mod exec;
pub mod guess;
pub mod hosted;
pub mod http;
pub mod init;
pub mod layout;
pub mod learning;
pub mod logging;
pub mod patch;
pub mod ports;
pub mod probe;
pub mod process;
pub mod provision;
pub mod redact;
pub mod relay;
pub mod report;
pub mod shared;
pub mod shield;
pub mod skills;
pub mod slot;
#[cfg(test)]
pub(crate) mod testing;
pub mod told;
pub mod walls;
pub mod worker;

pub use casemate_protocol::words;
