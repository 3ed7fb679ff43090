//! A worker's life, in order.
//!
//! Outside: read and check the configuration, make the directories, hold the lock, find the remote ([`outside`]).
//! Then namespaces, the shield, the claim of ports, the spawner, the supervisor's own filter: all with one thread. Then, on one
//! thread for good: clone, try the shield from inside, take away what the agent has no business with ([`crate::hosted`]), serve ([`inside`]). A worker of many sessions ([`many`]) begins with none, one in a Pod waits for its one ([`waiting`]). Whatever fails is one
//! [`StartError`] on stdout and its exit code.

mod door;
pub(crate) mod identity;
mod inside;
mod machine;
mod many;
mod namespaces;
mod outside;
mod owner;
mod signals;
mod waiting;

use std::os::fd::AsFd as _;
use std::path::Path;

use casemate_protocol::codes::exit;
use casemate_protocol::ports::PortPool;
use casemate_protocol::tier::Tier;
use casemate_protocol::worker::StartError;
use casemate_sandbox::lock::HeldLock;
use casemate_sandbox::memory;
use casemate_sandbox::namespaces::Entered;
use casemate_sandbox::shield::calls::Role;
use casemate_sandbox::shield::{Confined, ShieldReport, confine};
use casemate_sandbox::{Exit, Spawner};

use crate::audit::Audit;
use crate::config::{self, Kind};
use crate::ports::{self, Claim};
use crate::report::{Report as _, Stdout};
use crate::words::chain;

use door::Door;
use outside::Prepared;

pub use machine::measure;
pub use waiting::wait;

/// What stands before the supervisor is confined: it could not make any of it later.
#[derive(Debug)]
struct Footing {
    claim: Claim,
    /// Where clients come in.
    door: Door,
    shield: ShieldReport,
    filter: Confined,
}

/// Runs a worker to its end; the process's exit code.
#[must_use]
pub fn run(file: Option<&Path>) -> u8 {
    memory::keep_a_little();
    let done = config::read(file).and_then(|kind| match kind {
        Kind::One(wanted) => enter(outside::prepare(*wanted)?),
        Kind::Many(config, file) => many::run(*config, file),
    });
    done.unwrap_or_else(|error| failed(&error))
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
        Ok(Entered::Launcher(launcher)) => {
            // The worker's to take away.
            std::mem::forget(prepared.range);
            launcher
                .wait_forwarding_signals()
                .map(Exit::code)
                .map_err(|error| StartError::Shield { message: chain(&error) })
        }
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
    let config = &prepared.wanted.config;
    let audit = Audit::open(&prepared.layout.inside.state, &config.slot)?;
    let audit = audit.of(&config.session, config.generation);
    audit.keep(live_on_record(prepared, &audit))
}

fn live_on_record(mut prepared: Prepared, audit: &Audit) -> Result<u8, StartError> {
    let supervisor = Supervisor::start(prepared.wanted.config.ports, &prepared.lock)?;
    let Supervisor { shield, claim, spawner } = supervisor;
    let config = &mut prepared.wanted.config;
    let door = Door::open(config.listen, config.tls.take(), &claim)?;
    // After the spawner, whose agents would inherit it; before anything that somebody else wrote is read.
    let filter =
        confine(Role::Supervisor).map_err(|error| StartError::Shield { message: chain(&error) })?;
    let footing = Footing { claim, door, shield, filter };
    let code = on_one_thread(inside::run(prepared, footing, &spawner, audit));
    // Whoever waits for this process may rely on the slot and the ports being free then.
    spawner.end();
    code
}

/// What every worker has before it has an event loop.
struct Supervisor {
    shield: ShieldReport,
    claim: Claim,
    spawner: Spawner,
}

// === impl Supervisor ===

impl Supervisor {
    /// Raises the shield, claims a range, forks the spawner, which holds the claim and the slot's lock as well.
    fn start(ports: PortPool, lock: &HeldLock) -> Result<Self, StartError> {
        let shield = casemate_sandbox::shield::harden()
            .map_err(|error| StartError::Shield { message: chain(&error) })?;
        let orphans = casemate_sandbox::reap::adopt_orphans();
        orphans.map_err(|error| other("orphans cannot be adopted", &error))?;
        let claim = ports::claim(ports)?;
        let spawner = Spawner::start(&[lock.as_fd(), claim.as_fd()])
            .map_err(|error| other("the spawner did not start", &error))?;
        Ok(Self { shield, claim, spawner })
    }
}

fn on_one_thread(run: impl Future<Output = Result<u8, StartError>>) -> Result<u8, StartError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| other("no event loop", &error))?;
    tokio::task::LocalSet::new().block_on(&runtime, run)
}

fn other(what: &str, error: &dyn std::error::Error) -> StartError {
    StartError::Other { message: format!("{what}: {}", chain(error)) }
}

/// The exit code of a worker that was told to end before it served.
const STOPPED: u8 = exit::OK;
