//! `casemate acp`: an ACP agent on stdio whose agent works in isolated sessions.
//!
//! The decisions are [`casemate_protocol::acp::bridge`]'s; [`driver`] feeds it and does what it says, [`host`] is stdio,
//! [`link`] one attachment to a worker, [`refuse`] the answer where nothing can begin. stdout carries ACP and nothing else.

mod driver;
mod hold;
mod host;
mod link;
mod receipt;
mod refuse;

use casemate_protocol::acp::bridge::Settings;

use crate::attach::Allocator;
use crate::failure::Failure;
use crate::intent::IntentArgs;
use crate::place::Place;
use crate::{notice, runtime};

const BEGINS: &str = "stdout carries ACP alone. What keeps it from beginning, such as a repository that does not exist, is the \
                      answer to the host's first request, then the exit code.";

/// Options of `casemate acp`.
#[derive(Debug, clap::Args)]
#[command(after_help = BEGINS)]
pub(crate) struct Args {
    #[command(flatten)]
    intent: IntentArgs,
    /// The conversation's name, where the host knows it (default: $CASEMATE_SESSION_KEY, else each session/new is new)
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

/// Serves the host until it hangs up or a signal comes. Both are a detach, an orderly end: sessions go on.
pub(crate) fn run(args: Args, place: &Place, verbose: u8) -> Result<u8, Failure> {
    let settings = settings(args, place).inspect_err(refuse::tell)?;
    notice::say(&settings.intent);
    runtime::log_to_stderr(verbose);
    let runtime = runtime::start()?;
    let allocator = Allocator::of(place.clone());
    let code = runtime.block_on(driver::serve(settings, allocator));
    // A read of stdin may be blocked for ever in its thread: do not wait for it.
    runtime.shutdown_background();
    code
}

fn settings(args: Args, place: &Place) -> Result<Settings, Failure> {
    place.check_owner()?;
    let named = std::env::var("CASEMATE_SESSION_KEY").ok().filter(|key| !key.is_empty());
    Ok(Settings { intent: args.intent.into_intent()?, key: args.key.or(named) })
}
