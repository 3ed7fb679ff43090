//! `casemate sessions`: list, show, patch, stop, close, prune.

mod kept;
mod prune;
mod table;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use casemate_protocol::api::{End, SessionList};
use casemate_protocol::codes::exit;
use casemate_protocol::end::EndReason;
use casemate_protocol::ids::SessionId;
use clap::Subcommand;
use serde::Serialize;

use crate::client::Client;
use crate::failure::Failure;
use crate::place::Place;
use crate::run::patch::{Patch, Target};
use crate::{output, runtime, start};

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
    /// All sessions, newest first (the default); starts nothing
    List,
    /// One session and what is going to happen to it; starts nothing
    Show {
        /// The session's id
        id: String,
    },
    /// Take its work home: a patch made by git inside the session, which is woken for it; of one that was closed, what was kept
    Patch {
        /// The session's id
        id: String,
        /// Write it to this file instead of stdout
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Replace the file where it exists
        #[arg(long, requires = "output")]
        force: bool,
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
    /// End those that were not used for long; unpushed work is kept unless discarded. Says which, and does it with --yes
    Prune(prune::Prune),
}

/// Asks the allocator. Where none serves, what only looks reads what the last one wrote down, and the rest starts one.
pub(crate) fn run(args: Args, place: &Place) -> Result<u8, Failure> {
    runtime::start()?.block_on(ask(args, place))
}

async fn ask(args: Args, place: &Place) -> Result<u8, Failure> {
    match args.command.unwrap_or(Command::List) {
        Command::List => {
            let list = match recorded(place)? {
                Some(list) => list,
                None => start::ensure(place, &[]).await?.list().await.map_err(Failure::from)?,
            };
            print(args.json, &list, |list| table::list(&list.sessions, now()))
        }
        Command::Show { id } => {
            let id = session(&id)?;
            let view = match recorded(place)? {
                Some(list) => list
                    .sessions
                    .into_iter()
                    .find(|view| view.id == id)
                    .ok_or_else(|| Failure::new(exit::NO_INPUT, format!("no session {id}")))?,
                None => start::ensure(place, &[]).await?.show(&id).await.map_err(Failure::from)?,
            };
            print(args.json, &view, |view| table::one(view, now()))
        }
        Command::Patch { id, output, force } => {
            let id = session(&id)?;
            let target = output.map(|file| Target::check("--output", file, force)).transpose()?;
            patch(&start::ensure(place, &[]).await?, place, &id, target.as_ref()).await
        }
        Command::Stop { id, force } => {
            let client = start::ensure(place, &[]).await?;
            let end = End { force, ..End::by(EndReason::Shutdown) };
            let view = client.stop(&session(&id)?, &end).await.map_err(Failure::from)?;
            print(args.json, &view, |view| format!("{}: {}\n", view.id, table::phase(view.phase)))
        }
        Command::Close { id, force, discard } => {
            let client = start::ensure(place, &[]).await?;
            let end = End { discard, force, ..End::by(EndReason::Close) };
            let view = client.close(&session(&id)?, &end).await.map_err(Failure::from)?;
            print(args.json, &view, table::closed)
        }
        Command::Prune(prune) => prune.run(args.json, place).await,
    }
}

/// What is known where no allocator serves; none is started for a look. `None` where one does.
fn recorded(place: &Place) -> Result<Option<SessionList>, Failure> {
    casemate_allocator::recorded(place.home())
        .map_err(|error| Failure::because(error.exit_code(), "cannot look", &error))
}

/// The worktree is never touched from here: whatever git would run for its configuration is the agent's.
async fn patch(
    client: &Client,
    place: &Place,
    session: &SessionId,
    target: Option<&Target>,
) -> Result<u8, Failure> {
    if target.is_none() && std::io::stdout().is_terminal() {
        let text = "a patch may hold what moves a terminal's cursor; name a file with --output, or pipe it";
        return Err(Failure::new(exit::USAGE, text));
    }
    let view = client.show(session).await.map_err(Failure::from)?;
    let made = match &view.kept {
        Some(trees) => kept::patch(&view, trees, place)?,
        None => {
            let attached = client.resume(session).await.map_err(Failure::from)?;
            Patch::of(&Client::of(&attached)?).await?
        }
    };
    let Some(target) = target else { return write(made.bytes()) };
    target.save(&made)?;
    write((made.summary() + "\n").as_bytes())
}

fn session(text: &str) -> Result<SessionId, Failure> {
    text.parse()
        .map_err(|error| Failure::because(exit::USAGE, "`casemate sessions` shows the ids", &error))
}

fn print<T: Serialize>(json: bool, value: &T, text: impl Fn(&T) -> String) -> Result<u8, Failure> {
    let text = if json {
        let json = serde_json::to_string_pretty(value).expect("API types are plain data");
        json + "\n"
    } else {
        text(value)
    };
    write(text.as_bytes())
}

fn write(bytes: &[u8]) -> Result<u8, Failure> {
    output::write(bytes).map(|()| exit::OK)
}

/// Seconds since the Unix epoch.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
