//! Everything that is done before any namespace: it needs the machine's own view of paths and names.

use std::path::Path;

use casemate_protocol::ids::SlotId;
use casemate_protocol::tier::Tier;
use casemate_protocol::worker::{StartError, WorkerConfig};
use casemate_sandbox::lock::{self, HeldLock, LockError};
use casemate_sandbox::namespaces::Withdrawal;

use super::identity;
use crate::config::{self, Wanted};
use crate::directories;
use crate::layout::Layout;
use crate::probe::range::{Ground, Range};
use crate::provision::{self, Resolved};
use crate::report::{Report as _, Stdout};
use crate::shared::floor;
use crate::words::chain;

/// What was found and made.
#[derive(Debug)]
pub(super) struct Prepared {
    /// Configuration and policy.
    pub wanted: Wanted,
    /// Where everything is.
    pub layout: Layout,
    /// The remote, if one is to be cloned.
    pub resolved: Option<Resolved>,
    /// Held for life.
    pub lock: HeldLock,
    /// What the walls are tried on.
    pub range: Box<Range>,
    /// The means to hide what the agent has no business with, once inside; `None` in tier `domain`.
    pub withdrawal: Option<Withdrawal>,
}

/// Checks, makes, locks, finds.
///
/// # Errors
/// [`StartError`].
pub(super) fn prepare(wanted: Wanted) -> Result<Prepared, StartError> {
    let config = &wanted.config;
    if config.tier == Tier::Domain {
        identity::check(config.host_uid)?;
    }
    config::check_presence(config)?;
    Stdout.progress(format!("starting session {} in slot {}", config.session, config.slot));
    let layout = Layout::of(config);
    directories::make(config, &layout)?;
    let lock = hold(&config.volume, &config.slot)?;
    newer(config)?;
    let ground = Ground::make(&config.volume.join("run"), config.host_uid)?;
    let range = Box::new(Range::make(ground)?);
    // A provisioned session never needs its remote to start again.
    let provisioned = provision::is_done(&layout.outside.state, config)?;
    let remote = if provisioned { None } else { provision::remote(config)? };
    let resolved = remote.map(|remote| {
        Stdout.progress(format!("looking for {}", remote.url));
        provision::resolve(remote)
    });
    let resolved = resolved.transpose()?;
    Ok(Prepared { wanted, layout, resolved, lock, range, withdrawal: None })
}

/// A generation is served once, and none after a later one: no worker that is started again lets in whoever an earlier one let in.
fn newer(config: &WorkerConfig) -> Result<(), StartError> {
    let floors = floor::read(&config.volume.join("state")).map_err(|error| StartError::Volume {
        message: format!("state/floors: {error}: check the volume, and remove a damaged file when every token of its session has expired"),
    })?;
    let newest = floors.get(&config.session).copied();
    match floor::above(newest, (config.incarnation, config.generation)) {
        None => Ok(()),
        Some((incarnation, generation)) => Err(StartError::Stale { incarnation, generation }),
    }
}

/// The slot, for life.
///
/// # Errors
/// [`StartError::SlotBusy`] where another worker has it, [`StartError::Volume`].
pub(super) fn hold(volume: &Path, slot: &SlotId) -> Result<HeldLock, StartError> {
    lock::hold(&volume.join("run").join("lock")).map_err(|error| match error {
        LockError::Busy { .. } => StartError::SlotBusy { slot: slot.clone() },
        LockError::File { .. } => StartError::Volume { message: chain(&error) },
    })
}
