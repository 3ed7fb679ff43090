//! `casemate sessions`: list, show, stop, close.

use clap::Subcommand;

use crate::failure::Failure;
use crate::place::Place;

/// Options of `casemate sessions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the allocator's own JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// All sessions, newest first (the default)
    List,
    /// One session and what is going to happen to it
    Show {
        /// The session's id
        id: String,
    },
    /// Stop its worker; its files stay and the next message wakes it
    Stop {
        /// The session's id
        id: String,
        /// End a running turn too
        #[arg(long)]
        force: bool,
    },
    /// End it; unpushed work is kept unless discarded
    Close {
        /// The session's id
        id: String,
        /// End a running turn too
        #[arg(long)]
        force: bool,
        /// Delete its files even where work is unpushed
        #[arg(long)]
        discard: bool,
    },
}

/// Asks the allocator.
pub(crate) fn run(args: Args, place: &Place) -> Result<u8, Failure> {
    Err(Failure::new(70, format!("{args:?} {place:?}")))
}
