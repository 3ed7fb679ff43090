//! `casemate keys`: the key that the workers' tokens are signed with.

use casemate_protocol::api::Rotated;
use casemate_protocol::codes::exit;
use clap::Subcommand;

use crate::failure::Failure;
use crate::place::Place;
use crate::{output, runtime, start};

/// Options of `casemate keys`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Sign with a new key from now on: whoever holds a token that was given out before can open nothing more with it
    ///
    /// Clients that are attached stay attached, also over a network that breaks. Exit code 0 where every worker knows the new key
    /// alone, 75 where one goes on taking the former as well. One that cannot be told at all is an error, and nothing has changed.
    Rotate {
        /// Say it as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Does what is asked.
pub(crate) fn run(args: Args, place: &Place) -> Result<u8, Failure> {
    let Command::Rotate { json } = args.command;
    runtime::start()?.block_on(async {
        let rotated = start::ensure(place, &[]).await?.rotate_key().await.map_err(Failure::from)?;
        let code = if rotated.behind.is_empty() { exit::OK } else { exit::BUSY };
        let text = if json {
            serde_json::to_string_pretty(&rotated).expect("API types are plain data") + "\n"
        } else {
            words(&rotated)
        };
        output::write(&text).map(|()| code)
    })
}

fn words(rotated: &Rotated) -> String {
    let mut text = format!("signing with key {} from now on", rotated.key);
    match rotated.workers {
        0 => text.push_str("; no worker runs\n"),
        1 => text.push_str("; 1 worker takes no other\n"),
        workers => text.push_str(&format!("; {workers} workers take no other\n")),
    }
    for name in &rotated.behind {
        text.push_str(&format!("{name} goes on taking the former key as well: stop it\n"));
    }
    text
}
