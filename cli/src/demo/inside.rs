//! The hidden command `inside`.

use crate::failure::Failure;

/// Its options.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Runs it.
pub(crate) fn run(_args: Args) -> Result<u8, Failure> {
    Err(Failure::new(70, "inside lands next"))
}
