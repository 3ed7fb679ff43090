//! `casemate acp`: an ACP agent on stdio whose agent works in isolated sessions.

use crate::failure::Failure;
use crate::intent::IntentArgs;
use crate::place::Place;

/// Options of `casemate acp`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    intent: IntentArgs,
    /// The conversation's name, where the host knows it (default: $CASEMATE_SESSION_KEY, else each session/new is new)
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

/// Serves the host until it hangs up.
pub(crate) fn run(args: Args, place: &Place, verbose: u8) -> Result<u8, Failure> {
    let intent = args.intent.into_intent()?;
    Err(Failure::new(70, format!("{intent:?} {:?} {place:?} {verbose}", args.key)))
}
