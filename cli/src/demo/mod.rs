//! `casemate demo`: two sessions that try to reach each other.

pub(crate) mod inside;
pub(crate) mod scripted_agent;

use crate::failure::Failure;

/// Options of `casemate demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Runs it.
pub(crate) fn run(_args: Args) -> Result<u8, Failure> {
    Err(Failure::new(70, "the demo lands next"))
}
