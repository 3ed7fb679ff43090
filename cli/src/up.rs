//! `casemate up`: the allocator of this machine, in this process.
//!
//! Ctrl-C stops the workers and ends; SIGTERM (an upgrade, a service manager) ends the allocator alone and leaves the
//! workers to the next one.

use std::net::SocketAddr;

use casemate_allocator::{Config, Shutdown};
use casemate_protocol::api::Endpoint;
use casemate_protocol::codes::exit;
use casemate_protocol::tier::Tier;
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::Failure;
use crate::place::Place;
use crate::{runtime, start, supervisor};

/// Options of `casemate up`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to listen; loopback only; port 0: a free one of 20000-20999
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The tier that new sessions get: namespace or domain (default: the best that this machine has)
    #[arg(long, value_name = "TIER", value_parser = tier)]
    tier: Option<Tier>,
    /// Go on in the background and return once it serves
    #[arg(long)]
    detach: bool,
    /// End the allocator that serves, and its workers with it; sessions keep their files
    #[arg(long, conflicts_with = "detach")]
    stop: bool,
    /// Leave the caller's session first (what --detach starts)
    #[arg(long, hide = true, conflicts_with_all = ["detach", "stop"])]
    background: bool,
}

/// A tier of one machine, from the command line.
pub(crate) fn tier(text: &str) -> Result<Tier, String> {
    match text {
        "namespace" => Ok(Tier::Namespace),
        "domain" => Ok(Tier::Domain),
        _ => Err("one machine has the tiers `namespace` and `domain`".into()),
    }
}

/// Serves until told to stop.
pub(crate) fn run(args: Args, place: &Place, verbose: u8) -> Result<u8, Failure> {
    if args.background {
        nix::unistd::setsid().map_err(|error| {
            Failure::because(exit::SOFTWARE, "cannot leave the session", &error)
        })?;
    }
    let runtime = runtime::start()?;
    if args.stop {
        return runtime.block_on(stop(place));
    }
    if args.detach {
        return runtime.block_on(detach(&args, place));
    }
    runtime::log_to_stderr(verbose + 1);
    runtime.block_on(serve(&args, place))
}

async fn serve(args: &Args, place: &Place) -> Result<u8, Failure> {
    let unheard =
        |error: std::io::Error| Failure::because(exit::SOFTWARE, "cannot wait for signals", &error);
    let mut interrupt = signal(SignalKind::interrupt()).map_err(unheard)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(unheard)?;
    // A terminal's signal reaches our helpers as well: it is looked for before their end is.
    let config = Config {
        listen: args.listen,
        tier: args.tier,
        ..Config::new(place.home().to_owned(), supervisor::program()?)
    };
    let running = tokio::select! {
        biased;
        _ = interrupt.recv() => return Ok(128 + 2),
        _ = terminate.recv() => return Ok(128 + 15),
        started = casemate_allocator::start(config) => started
            .map_err(|error| Failure::because(error.exit_code(), "cannot serve", &error))?,
    };
    let address = running.endpoint().address;
    eprintln!("casemate: serving on {address}, {}", tier_words(running.tier()));
    if let Some(exposed) = casemate_allocator::exposed_ports() {
        eprintln!("casemate: warning: {exposed}; run `{}`", exposed.fix());
    }
    let mode = tokio::select! {
        _ = interrupt.recv() => Shutdown::StopAll,
        _ = terminate.recv() => Shutdown::LeaveWorkers,
    };
    running.shutdown(mode).await?;
    Ok(exit::OK)
}

/// A tier for people, and what the weaker one does not do.
pub(crate) fn tier_words(tier: Tier) -> String {
    match tier {
        Tier::Domain => "tier domain. Agents can see and chmod paths of yours that they know, see command lines, and make \
                         no unix sockets before Linux 7.1: SECURITY.md, \"What tier domain leaks\"; `casemate doctor` says \
                         what a better tier needs"
            .to_owned(),
        tier => format!("tier {tier}"),
    }
}

async fn detach(args: &Args, place: &Place) -> Result<u8, Failure> {
    if let Some(running) = start::endpoint(place).await? {
        return already(args, &running);
    }
    let mut options = vec!["--listen".to_owned(), args.listen.to_string()];
    if let Some(tier) = args.tier {
        options.extend(["--tier".to_owned(), tier.to_string()]);
    }
    start::ensure(place, &options).await?;
    let tier = start::tier(place).await?.map_or_else(String::new, tier_words);
    eprintln!("casemate: serving in the background, {tier}; log: {}", place.log().display());
    Ok(exit::OK)
}

/// One serves: what was asked for is there already, or cannot be had without stopping it.
fn already(args: &Args, running: &Endpoint) -> Result<u8, Failure> {
    let tier = running.tier.map_or_else(|| "unknown".to_owned(), |tier| tier.to_string());
    let words = format!("already running (pid {}, tier {tier}, {})", running.pid, running.address);
    if differs(args, running) {
        let text =
            format!("{words} with other options; `casemate up --stop` ends it and its workers");
        return Err(Failure::new(exit::BUSY, text));
    }
    eprintln!("casemate: {words}");
    Ok(exit::OK)
}

/// True where the running one is not what the options ask for. No tier and port 0 ask for nothing.
fn differs(args: &Args, running: &Endpoint) -> bool {
    let tier = args.tier.is_some() && args.tier != running.tier;
    let port = args.listen.port() != 0 && args.listen != running.address;
    tier || port || args.listen.ip() != running.address.ip()
}

async fn stop(place: &Place) -> Result<u8, Failure> {
    let Some(pid) = start::pid(place).await? else {
        eprintln!("casemate: no allocator serves here");
        return Ok(exit::OK);
    };
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT)
        .map_err(|error| Failure::because(exit::DENIED, "cannot stop `casemate up`", &error))?;
    start::wait_for_end(place, pid).await?;
    eprintln!("casemate: stopped");
    Ok(exit::OK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_ask_for_another_allocator_are_told_from_those_that_do_not() {
        let running = Endpoint {
            address: "127.0.0.1:4000".parse().unwrap(),
            token: "t".into(),
            pid: 1,
            tier: Some(Tier::Namespace),
        };
        let asks = |listen: &str, tier| {
            let listen = listen.parse().unwrap();
            let args = Args { listen, tier, detach: true, stop: false, background: false };
            differs(&args, &running)
        };
        assert!(!asks("127.0.0.1:0", None));
        assert!(!asks("127.0.0.1:4000", Some(Tier::Namespace)));
        assert!(asks("127.0.0.1:4001", None));
        assert!(asks("127.0.0.1:0", Some(Tier::Domain)));
    }
}
