//! `casemate exec`: a command in a session, as if it ran here.
//!
//! The allocator wakes the session and gives out a token for this alone; the rest is between this process and the worker
//! (`casemate_protocol::exec`). What comes back is the command's own: streams unchanged, exit code included.

mod relay;
mod terminal;
mod time;

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::Duration;

use casemate_protocol::codes::exit;
use casemate_protocol::exec::{ExecEnd, ExecRequest};
use casemate_protocol::ids::SessionId;

use crate::client::Client;
use crate::failure::Failure;
use crate::intent::variable;
use crate::place::Place;
use crate::socket::{self, Door, Socket};
use crate::{runtime, start};

/// Options of `casemate exec`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// Run it on a terminal (default: where stdin and stdout are terminals)
    #[arg(short, long, conflicts_with = "no_tty")]
    tty: bool,
    /// Run it on pipes
    #[arg(short = 'T', long)]
    no_tty: bool,
    /// Add a variable to the agent's; NAME alone takes the value from here, so that it is in no command line
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// Run it there, relative to the worktree
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// End it after so long: 30s, 5m, 1h
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    timeout: Option<Duration>,
    /// The session's id (`casemate sessions` shows them)
    #[arg(value_name = "SESSION")]
    session: String,
    /// The command, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

const HELP: &str = "\
A sleeping session is woken. The command runs behind the agent's walls with the agent's variables, beside a running turn.
Exit codes: the command's own, or 128 + its signal; 124 where the time was over; 126 where it cannot be run; 127 where it
is not found; 73 where its output cannot be written here (a full disk, a closed stdout). Signals are passed on; a second one gives up. What still runs when this process is gone is ended.";

/// Runs the command; its exit code.
pub(crate) fn run(args: Args, place: &Place) -> Result<u8, Failure> {
    let tty = args.tty
        || (!args.no_tty && std::io::stdin().is_terminal() && std::io::stdout().is_terminal());
    let session = args.session.parse::<SessionId>().map_err(|error| {
        Failure::because(exit::USAGE, "`casemate sessions` shows the ids", &error)
    })?;
    let request = ExecRequest {
        env: environment(&args.env, tty)?,
        argv: args.command,
        cwd: args.cwd,
        tty: tty.then(terminal::size),
        timeout_ms: args.timeout.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
    };
    runtime::start()?.block_on(async {
        let socket = open(place, &session).await?;
        // Put back when the guard is dropped, a signal has ended the relay, or anything has panicked.
        let raw = if tty { terminal::Raw::enter() } else { None };
        let end = relay::run(socket, &request).await;
        drop(raw);
        said(end?)
    })
}

fn environment(given: &[String], tty: bool) -> Result<BTreeMap<String, String>, Failure> {
    let mut all = BTreeMap::new();
    if tty && let Ok(term) = std::env::var("TERM") {
        all.insert("TERM".to_owned(), term);
    }
    for text in given {
        let (name, value) = variable(text)?;
        all.insert(name, value);
    }
    Ok(all)
}

async fn open(place: &Place, session: &SessionId) -> Result<Socket, Failure> {
    let client = start::ensure(place, &[]).await?;
    let attached = client.exec(session).await.map_err(Failure::from)?;
    match socket::open(&attached, Door::Exec).await {
        Ok(socket) => Ok(socket),
        // The worker may have been stopped between the answer and now: the allocator looks again.
        Err(_) => again(&client, session).await,
    }
}

async fn again(client: &Client, session: &SessionId) -> Result<Socket, Failure> {
    let attached = client.exec(session).await.map_err(Failure::from)?;
    socket::open(&attached, Door::Exec).await
}

fn said(end: ExecEnd) -> Result<u8, Failure> {
    let code = end.exit_code();
    let words = match end {
        ExecEnd::Exited { .. } => return Ok(code),
        ExecEnd::TimedOut => "the command took longer than --timeout and was ended".to_owned(),
        ExecEnd::SessionEnded => "the session was stopped while the command ran".to_owned(),
        ExecEnd::NotFound { message }
        | ExecEnd::NotRunnable { message }
        | ExecEnd::Refused { message } => message,
    };
    Err(Failure::new(code, words))
}
