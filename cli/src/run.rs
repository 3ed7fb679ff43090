//! `casemate run`: one throw-away session.

use std::path::PathBuf;

use crate::failure::Failure;
use crate::intent::IntentArgs;

/// Options of `casemate run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    intent: IntentArgs,
    /// Say this to the agent; repeatable; without it, each line of stdin is a prompt
    #[arg(long, value_name = "TEXT")]
    prompt: Vec<String>,
    /// Answer the agent's permission requests instead of asking on the terminal
    #[arg(long, value_name = "ANSWER")]
    allow: Option<Allow>,
    /// Save the session's work as a patch
    #[arg(long, value_name = "FILE")]
    patch: Option<PathBuf>,
}

/// How permission requests are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Allow {
    /// Each one is allowed, once.
    All,
    /// Each one is refused.
    None,
}

/// Runs it to its end and removes everything.
pub(crate) fn run(args: Args, verbose: u8) -> Result<u8, Failure> {
    Err(Failure::new(70, format!("{args:?} {verbose}")))
}
