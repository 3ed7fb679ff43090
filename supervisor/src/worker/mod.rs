//! A worker's life, in order.
//!
//! Outside: read and check the configuration, make the directories, hold the lock, find the remote ([`outside`]).
//! Then namespaces, the shield, the claim of ports, the spawner: all with one thread. Then, on one thread for good: clone, try the
//! shield from inside, take away what the agent has no business with ([`crate::hosted`]), serve ([`inside`]). Whatever fails is one
//! [`StartError`] on stdout and its exit code.

mod identity;
mod inside;
mod namespaces;
mod outside;
mod owner;
mod signals;

use std::os::fd::AsFd as _;
use std::path::Path;

use casemate_protocol::codes::exit;
use casemate_protocol::tier::Tier;
use casemate_protocol::worker::StartError;
use casemate_sandbox::Spawner;
use casemate_sandbox::namespaces::Entered;
use casemate_sandbox::shield::ShieldReport;

use crate::ports::{self, Claim};
use crate::report::{Report as _, Stdout};
use crate::words::chain;

use outside::Prepared;

/// Runs a worker to its end; the process's exit code.
#[must_use]
pub fn run(file: Option<&Path>) -> u8 {
    let prepared = match outside::prepare(file) {
        Ok(prepared) => prepared,
        Err(error) => return failed(&error),
    };
    enter(prepared).unwrap_or_else(|error| failed(&error))
}

/// Goes into the namespaces that the tier asks for. The process that stays outside is the launcher: it holds the lock
/// as well, passes signals on and leaves with PID 1's code.
fn enter(mut prepared: Prepared) -> Result<u8, StartError> {
    let config = &prepared.wanted.config;
    owner::follow(config.owner)?;
    if config.tier == Tier::Domain {
        return live(prepared);
    }
    let plan = namespaces::plan(config, &prepared.layout);
    match casemate_sandbox::namespaces::enter(&plan) {
        Ok(Entered::Inside(withdrawal)) => {
            prepared.withdrawal = withdrawal;
            live(prepared)
        }
        Ok(Entered::Launcher(launcher)) => Ok(launcher.wait_forwarding_signals().code()),
        Err(error) => Err(StartError::Tier { wanted: config.tier, message: chain(&error) }),
    }
}

fn failed(error: &StartError) -> u8 {
    Stdout.failed(error);
    error.exit_code()
}

/// PID 1 of the namespaces, or the plain process.
fn live(prepared: Prepared) -> Result<u8, StartError> {
    if prepared.wanted.config.tier == Tier::Domain {
        identity::assume(prepared.wanted.config.host_uid)?;
        owner::follow(prepared.wanted.config.owner)?;
    }
    let shield = casemate_sandbox::shield::harden()
        .map_err(|error| StartError::Shield { message: chain(&error) })?;
    let orphans = casemate_sandbox::reap::adopt_orphans();
    orphans.map_err(|error| other("orphans cannot be adopted", &error))?;
    let claim = ports::claim(prepared.wanted.config.ports)?;
    let kept = [prepared.lock.as_fd(), claim.as_fd()];
    let spawner =
        Spawner::start(&kept).map_err(|error| other("the spawner did not start", &error))?;
    let code = run_on_one_thread(prepared, claim, &spawner, &shield);
    // Whoever waits for this process may rely on the slot and the ports being free then.
    spawner.end();
    code
}

fn run_on_one_thread(
    prepared: Prepared,
    claim: Claim,
    spawner: &Spawner,
    shield: &ShieldReport,
) -> Result<u8, StartError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| other("no event loop", &error))?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, inside::run(prepared, claim, spawner, shield))
}

fn other(what: &str, error: &dyn std::error::Error) -> StartError {
    StartError::Other { message: format!("{what}: {}", chain(error)) }
}

/// The exit code of a worker that was told to end before it served.
const STOPPED: u8 = exit::OK;
