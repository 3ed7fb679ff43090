//! `casemate demo`: two sessions that try to reach each other, and what the kernel answered.
//!
//! Builds a throw-away house ([`setup`]), runs the allocator in this process, opens sessions A and B through the real
//! bridge ([`host`]), has them attack ([`steps`]), judges ([`judge`]), prints ([`table`]), and takes everything down
//! again, also after Ctrl-C and after a failure. Exit code 0 only where every line is as the tier promises.

mod facts;
mod host;
pub(crate) mod inside;
mod judge;
mod leftovers;
mod line;
pub(crate) mod scripted_agent;
mod setup;
mod steps;
mod table;

use std::collections::HashSet;
use std::io::{IsTerminal as _, Write as _};

use casemate_allocator::{Config, Running, Shutdown};
use casemate_protocol::codes::exit;
use casemate_protocol::tier::Tier;
use serde_json::json;

use self::facts::Facts;
use self::host::Host;
use self::line::Lines;
use self::setup::House;
use self::steps::{Side, World};
use crate::client::Client;
use crate::failure::Failure;
use crate::stop::Stop;
use crate::{output, runtime, supervisor, up};

/// Options of `casemate demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The tier to demonstrate: namespace or domain (default: the best that this machine has)
    #[arg(long, value_name = "TIER", value_parser = up::tier)]
    tier: Option<Tier>,
    /// Print the lines as JSON
    #[arg(long)]
    json: bool,
    /// Leave the directory with everything in it, and say where it is
    #[arg(long)]
    keep: bool,
}

/// Runs it.
pub(crate) fn run(args: Args) -> Result<u8, Failure> {
    runtime::start()?.block_on(demo(args))
}

async fn demo(args: Args) -> Result<u8, Failure> {
    // Before anything exists that would have to be taken down.
    let mut stop = Stop::listen()?;
    let house = House::build().map_err(|error| {
        Failure::because(exit::CANNOT_CREATE, "cannot prepare the demo", &error)
    })?;
    say(&format!("working below {}", house.base().display()));
    let mut config = Config::new(house.home(), supervisor::program()?);
    config.tier = args.tier;
    config.owned = !args.keep;
    let running = match stop.or(casemate_allocator::start(config)).await {
        Ok(started) => started.map_err(|error| {
            Failure::because(error.exit_code(), "cannot start the allocator", &error)
        })?,
        Err(signal) => return Ok(128 + signal),
    };
    let tier = running.tier();
    say(&up::tier_words(tier));

    let mut lines = Lines::new(tier);
    let mut family = HashSet::new();
    let outcome = tokio::select! {
        outcome = attack(&house, &running, &mut lines, &mut family) => outcome,
        signal = stop.asked() => {
            Err(Failure::new(128 + signal, "interrupted; taking everything down"))
        }
    };
    let base = house.base().to_owned();
    let removed = take_down(house, running, args.keep).await;
    let left = if args.keep { String::new() } else { leftovers::look(&family, &base) };
    if outcome.is_err() && left != "nothing" {
        say(&format!("left behind: {left}"));
    }
    outcome?;
    removed?;
    if !args.keep {
        lines.step("afterwards");
        lines.same("", "look for processes, mounts, files", "this machine", "nothing", &left);
    }
    if args.json {
        let report = json!({"tier": tier, "wrong": lines.wrong(), "lines": lines.all()});
        output::write(format!("{report}\n"))?;
    } else {
        output::write(table::render(&lines, tier, std::io::stdout().is_terminal()))?;
    }
    Ok(if lines.wrong() == 0 { exit::OK } else { exit::FAILED })
}

/// Everything between set-up and the table.
async fn attack(
    house: &House,
    running: &Running,
    lines: &mut Lines,
    family: &mut HashSet<(i32, u64)>,
) -> Result<(), Failure> {
    let failed = |error: host::HostError| {
        Failure::because(exit::FAILED, "the demo could not be carried out", &error)
    };
    let client = Client::new(running.endpoint())?;
    let mut sides = Vec::new();
    for name in ["A", "B"] {
        say(&format!("opening session {name}"));
        let mut host = Host::start(name, house).await.map_err(failed)?;
        let facts = Facts::learn(&mut host, &client).await.map_err(failed)?;
        family.extend(leftovers::family(&[facts.worker.0]));
        sides.push(Side { host, facts });
    }
    let (Some(b), Some(a)) = (sides.pop(), sides.pop()) else {
        return Err(Failure::new(exit::SOFTWARE, "two sessions were opened and are not there"));
    };
    let workers = [a.facts.worker.0, b.facts.worker.0];
    let world = World { house, lines, a, b };
    steps::all(world, &client, |what| {
        // What has been started meanwhile must be gone in the end, too.
        family.extend(leftovers::family(&workers));
        say(what);
    })
    .await
    .map_err(failed)
}

async fn take_down(house: House, running: Running, keep: bool) -> Result<(), Failure> {
    let mode = if keep { Shutdown::StopAll } else { Shutdown::StopAllAndDelete };
    let stopped = running.shutdown(mode).await.map_err(Failure::from);
    if keep {
        say(&format!("kept: {}", house.keep().display()));
    }
    stopped
}

/// Progress: on stderr, so that stdout is the result and nothing else.
fn say(what: &str) {
    // A terminal that is gone must not keep the house from being taken down.
    let _ = writeln!(std::io::stderr(), "demo: {what}");
}
