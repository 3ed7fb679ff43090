//! `casemate policy`: looks at policy files.

use std::fs;
use std::path::PathBuf;

use casemate_protocol::codes::exit;
use casemate_protocol::policy::Policy;
use clap::Subcommand;

use crate::failure::Failure;

/// Options of `casemate policy`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Read a policy file and say whether it holds
    Check {
        /// The file
        file: PathBuf,
    },
}

/// Reads the file, prints its revision.
pub(crate) fn run(args: Args) -> Result<u8, Failure> {
    let Command::Check { file } = args.command;
    let text = fs::read_to_string(&file)
        .map_err(|error| Failure::because(exit::NO_INPUT, file.display(), &error))?;
    let policy = Policy::parse(&text)
        .map_err(|error| Failure::because(exit::DATA, file.display(), &error))?;
    println!("{}: ok, revision {}", file.display(), policy.revision);
    Ok(exit::OK)
}
