//! The hidden command `scripted-agent`: the bundled ACP agent, so that there is one program to ship.

use crate::failure::Failure;

/// Its options: none; the prompts say what it does.
#[derive(Debug, clap::Args)]
#[command(after_help = casemate_scripted_agent::USAGE)]
pub(crate) struct Args {}

/// Serves ACP on stdio.
pub(crate) fn run(_args: Args) -> Result<u8, Failure> {
    Ok(casemate_scripted_agent::run())
}
