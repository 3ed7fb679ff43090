//! `casemate up`: the allocator of this machine.

use std::net::SocketAddr;

use casemate_protocol::tier::Tier;

use crate::failure::Failure;
use crate::place::Place;

/// Options of `casemate up`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to listen; loopback only
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The tier that new sessions get (default: the best that this machine has)
    #[arg(long, value_name = "TIER", value_parser = tier)]
    tier: Option<Tier>,
    /// Go on in the background and return once it serves
    #[arg(long)]
    detach: bool,
}

fn tier(text: &str) -> Result<Tier, String> {
    match text {
        "namespace" => Ok(Tier::Namespace),
        "domain" => Ok(Tier::Domain),
        _ => Err("one machine has the tiers `namespace` and `domain`".into()),
    }
}

/// Serves until told to stop.
pub(crate) fn run(args: Args, place: &Place, verbose: u8) -> Result<u8, Failure> {
    Err(Failure::new(70, format!("{args:?} {place:?} {verbose}")))
}
