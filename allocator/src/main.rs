//! `casemate-allocator`: the command line around the library. Wiring only.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use casemate_allocator::{Config, Shutdown};
use casemate_protocol::codes::exit;
use casemate_protocol::tier::Tier;
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

/// Serves the sessions of this machine. TERM or INT ends it and leaves the workers to the next one.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    /// casemate's home (default: $CASEMATE_HOME, else $XDG_STATE_HOME/casemate, else ~/.local/state/casemate)
    #[arg(long)]
    home: Option<PathBuf>,
    /// Loopback address to serve on; port 0: any
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Tier of new sessions: domain or namespace (default: the best there is)
    #[arg(long, value_parser = parse_tier)]
    tier: Option<Tier>,
    /// The casemate-supervisor program (default: beside this one)
    #[arg(long)]
    supervisor: Option<PathBuf>,
}

fn parse_tier(text: &str) -> Result<Tier, String> {
    match text {
        "domain" => Ok(Tier::Domain),
        "namespace" => Ok(Tier::Namespace),
        _ => Err("one machine has the tiers `domain` and `namespace`".to_owned()),
    }
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { exit::USAGE } else { exit::OK });
        }
    };
    // It holds the signing key: nobody of the same user looks into its memory or at its descriptors.
    if let Err(errno) = nix::sys::prctl::set_dumpable(false) {
        eprintln!(
            "casemate-allocator: cannot make this process non-dumpable ({errno}); see prctl(2)"
        );
        return ExitCode::from(exit::SOFTWARE);
    }
    tracing_subscriber::fmt().json().with_writer(std::io::stderr).init();
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("casemate-allocator: {error:#}");
            let code = error.downcast_ref::<casemate_allocator::StartError>();
            ExitCode::from(code.map_or(exit::SOFTWARE, casemate_allocator::StartError::exit_code))
        }
    }
}

fn default_home() -> Option<PathBuf> {
    casemate_protocol::home::named(&|name| std::env::var_os(name)).next()
}

fn run(cli: Cli) -> anyhow::Result<()> {
    let supervisor = match cli.supervisor {
        Some(path) => path,
        None => {
            let own = std::env::current_exe().context("cannot find this program's own path")?;
            own.with_file_name("casemate-supervisor")
        }
    };
    let home = cli.home.or_else(default_home).context("no home: name one with --home")?;
    let mut config = Config::new(home, supervisor);
    config.listen = cli.listen;
    config.tier = cli.tier;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // Before the start: a signal in the middle of it must not kill between two steps.
        let mut term = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let running = casemate_allocator::start(config).await?;
        tokio::select! {
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
        }
        running.shutdown(Shutdown::LeaveWorkers).await?;
        Ok(())
    })
}
