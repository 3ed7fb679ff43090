//! `casemate`: isolated coding-agent sessions, from the command line.
//!
//! Reads the command line, hands over to one module a command, and turns its failure into one line on stderr and an
//! exit code of [`casemate_protocol::codes::exit`]. Owns no state.

mod acp;
mod attach;
mod audit;
mod client;
mod cookies;
mod demo;
mod doctor;
mod exec;
mod failure;
mod heard;
mod intent;
mod keys;
mod measured;
mod notice;
mod output;
mod place;
mod policy;
mod printable;
mod run;
mod runtime;
mod sessions;
mod socket;
mod span;
mod start;
mod stop;
mod supervisor;
mod throw_away;
mod up;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ArgAction, Parser, Subcommand};

use crate::failure::Failure;
use crate::place::Place;

/// Isolated coding-agent sessions: each agent in a private worktree that no other session can reach.
#[derive(Debug, Parser)]
#[command(name = "casemate", version, propagate_version = true)]
struct Cli {
    /// Where casemate keeps its sessions (default: $CASEMATE_HOME, else $XDG_STATE_HOME/casemate, else
    /// ~/.local/state/casemate)
    #[arg(long, global = true, value_name = "DIR")]
    home: Option<PathBuf>,
    /// Say more on stderr; twice: still more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Be an ACP agent on stdio: the agent itself works in an isolated session
    Acp(acp::Args),
    /// Serve the sessions of this machine (the other commands start it by themselves)
    Up(up::Args),
    /// Run one throw-away session and keep nothing but what you ask for
    Run(run::Args),
    /// Run a command in a session, behind its agent's walls
    Exec(exec::Args),
    /// List, show, stop, close and prune sessions
    Sessions(sessions::Args),
    /// Check, explain and compare policies
    Policy(policy::Args),
    /// Check and read the audit logs
    Audit(audit::Args),
    /// Replace the key that workers' tokens are signed with
    Keys(keys::Args),
    /// Two sessions that try to reach each other, and what the kernel answered
    Demo(demo::Args),
    /// What this machine's kernel offers, the tier that results, and how to get a better one
    Doctor(doctor::Args),
    /// The bundled agent that does what its prompt says
    #[command(hide = true)]
    ScriptedAgent(demo::scripted_agent::Args),
    /// What a hostile agent tries, from inside a session
    #[command(hide = true)]
    Inside(demo::inside::Args),
}

fn main() -> ExitCode {
    // clap's own exit code for a wrong command line is 2; ours is EX_USAGE, and 0 for --help and --version.
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { casemate_protocol::codes::exit::USAGE } else { 0 };
            // Nothing is to be done where not even the usage can be printed.
            let _ = error.print();
            if is_agent_without_dashes(error.kind(), std::env::args_os().skip(1)) {
                let hint = "the agent's command goes after `--`, as in `casemate run --prompt TEXT -- AGENT`";
                let _ = writeln!(std::io::stderr(), "casemate: {hint}");
            }
            return ExitCode::from(code);
        }
    };
    match dispatch(cli) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            // Nothing is to be done where not even that can be said.
            let words = printable::text(&failure.to_string());
            let _ = writeln!(std::io::stderr(), "casemate: {words}");
            ExitCode::from(failure.code())
        }
    }
}

/// Whether a wrong command line looks like one whose agent is not set apart.
fn is_agent_without_dashes(kind: ErrorKind, args: impl Iterator<Item = OsString>) -> bool {
    let wrong = matches!(kind, ErrorKind::UnknownArgument | ErrorKind::MissingRequiredArgument);
    let args: Vec<OsString> = args.collect();
    let starts_an_agent = args.iter().any(|arg| arg == "acp" || arg == "run");
    wrong && starts_an_agent && !args.iter().any(|arg| arg == "--")
}

/// Keys, tokens and conversations are in this process: nobody of the same user, a session's agent in tier `domain` least of
/// all, is to look into its memory or at its descriptors (PR_SET_DUMPABLE in prctl(2)). What it starts is not affected.
fn conceal() -> Result<(), Failure> {
    nix::sys::prctl::set_dumpable(false).map_err(|errno| {
        let code = casemate_protocol::codes::exit::SOFTWARE;
        Failure::because(code, "cannot make this process non-dumpable", &errno)
    })
}

fn dispatch(cli: Cli) -> Result<u8, Failure> {
    let place = Place::find(cli.home)?;
    if matches!(cli.command, Command::Acp(_) | Command::Up(_) | Command::Run(_) | Command::Exec(_))
    {
        conceal()?;
    }
    if matches!(
        cli.command,
        Command::Up(_)
            | Command::Sessions(_)
            | Command::Audit(_)
            | Command::Exec(_)
            | Command::Keys(_)
    ) {
        place.check_owner()?;
    }
    match cli.command {
        Command::Acp(args) => acp::run(args, &place, cli.verbose),
        Command::Up(args) => up::run(args, &place, cli.verbose),
        Command::Run(args) => run::run(args, &place, cli.verbose),
        Command::Exec(args) => exec::run(args, &place),
        Command::Sessions(args) => sessions::run(args, &place),
        Command::Policy(args) => policy::run(args, &place),
        Command::Audit(args) => audit::run(args, &place),
        Command::Keys(args) => keys::run(args, &place),
        Command::Demo(args) => demo::run(args),
        Command::Doctor(args) => doctor::run(args, &place),
        Command::ScriptedAgent(args) => demo::scripted_agent::run(args),
        Command::Inside(args) => demo::inside::run(args),
    }
}
