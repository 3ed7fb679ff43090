//! `casemate-supervisor`: the program in each worker.

use std::path::PathBuf;
use std::process::ExitCode;

use casemate_protocol::codes::exit;
use casemate_supervisor::{check, init, logging, probe, worker};
use clap::{Parser, Subcommand};

/// Provisions one session, confines its agent, runs it and relays ACP for it.
///
/// Started by the allocator (`casemate up`), not by people; `check` is of use to everybody.
#[derive(Debug, Parser)]
#[command(name = "casemate-supervisor", version, after_help = EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run one worker until its agent ends or it is told to stop.
    ///
    /// Reads its configuration as JSON from stdin, or from a file in a Pod; never from arguments or environment, which
    /// other processes can read. Says what it does in JSON lines on stdout until it serves; logs JSON lines to stderr
    /// (CASEMATE_LOG=debug for more).
    Worker {
        /// Read the configuration from this file instead of stdin.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Be the worker of the slot that this file describes, in a Pod of its own: wait for the session that it is bound to.
        #[arg(long, value_name = "FILE", conflicts_with = "config")]
        slot: Option<PathBuf>,
    },
    /// The two programs that a worker runs behind its own wall to try it.
    #[command(hide = true, subcommand)]
    Probe(Probe),
    /// Run any command behind a policy's walls, with this process as its init.
    Exec(Box<init::options::Options>),
    /// Copy this program into a directory that containers of other images share.
    Install {
        /// Where to: the file is called casemate-supervisor.
        directory: PathBuf,
    },
    /// Print what this machine's kernel offers, as JSON: each mechanism tried, and the tier that results.
    Check,
}

#[derive(Debug, Subcommand)]
enum Probe {
    /// Try a part of the attacks on the decoys that stdin describes.
    Attack {
        /// Which.
        part: probe::child::Part,
    },
    /// Be there until killed.
    Decoy,
    /// Measure a wall of this tier in this empty directory, and print the matrix.
    Machine {
        /// The tier.
        tier: String,
        /// The directory.
        directory: PathBuf,
        /// Print every attack's answer instead.
        #[arg(long)]
        answers: bool,
    },
}

const EXIT_CODES: &str = "\
Exit codes of `worker`: 0 stopped in order; the agent's own code, or 128 + its signal, where the agent ended; where it
did not start: 64 configuration, 65 policy, 66 repository, 70 internal or shield, 71 kernel, 73 volume, 75 address, ports or
slot taken, 78 tier, 127 agent not found. See docs/worker.md.";

fn main() -> ExitCode {
    // clap's own exit code for a wrong command line is 2; ours is EX_USAGE, and 0 for --help and --version.
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let code = if error.use_stderr() { exit::USAGE } else { exit::OK };
            // Nothing is to be done where not even the usage can be printed.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    logging::start();
    match arguments.command {
        Command::Check => ExitCode::from(check::run()),
        Command::Probe(Probe::Attack { part }) => ExitCode::from(probe::child::attack(part)),
        Command::Probe(Probe::Decoy) => ExitCode::from(probe::child::decoy()),
        Command::Probe(Probe::Machine { tier, directory, answers }) => {
            ExitCode::from(worker::measure(&tier, &directory, answers))
        }
        Command::Exec(options) => ExitCode::from(init::run(*options)),
        Command::Install { directory } => ExitCode::from(init::install::run(&directory)),
        Command::Worker { slot: Some(file), .. } => ExitCode::from(worker::wait(&file)),
        Command::Worker { config, slot: None } => ExitCode::from(worker::run(config.as_deref())),
    }
}
