//! The hidden command `inside`: what a hostile agent tries, run from an agent's shell.

use crate::failure::Failure;

/// Its options.
#[derive(Debug, clap::Args)]
#[command(after_help = casemate_inside::USAGE)]
pub(crate) struct Args {
    /// The attack and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    attack: Vec<String>,
}

/// Tries it; one line of JSON an attempt.
pub(crate) fn run(args: Args) -> Result<u8, Failure> {
    Ok(casemate_inside::run(&args.attack, &mut std::io::stdout().lock()))
}
