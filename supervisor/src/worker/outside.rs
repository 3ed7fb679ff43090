//! Everything that is done before any namespace: it needs the machine's own view of paths and names.

use std::path::Path;

use casemate_protocol::tier::Tier;
use casemate_protocol::worker::StartError;
use casemate_sandbox::lock::{self, HeldLock, LockError};
use casemate_sandbox::namespaces::Withdrawal;

use super::identity;
use crate::config::{self, Wanted};
use crate::directories;
use crate::layout::Layout;
use crate::provision::{self, Resolved};
use crate::report::{Report as _, Stdout};
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
    /// The means to hide what the agent has no business with, once inside; `None` in tier `domain`.
    pub withdrawal: Option<Withdrawal>,
}

/// Reads, checks, makes, locks, finds.
///
/// # Errors
/// [`StartError`].
pub(super) fn prepare(file: Option<&Path>) -> Result<Prepared, StartError> {
    let wanted = config::read(file)?;
    let config = &wanted.config;
    if config.tier == Tier::Domain {
        identity::check(config.host_uid)?;
    }
    config::check_presence(config)?;
    Stdout.progress(format!("starting session {} in slot {}", config.session, config.slot));
    let layout = Layout::of(config);
    directories::make(config, &layout)?;
    let lock =
        lock::hold(&config.volume.join("run").join("lock")).map_err(|error| match error {
            LockError::Busy { .. } => StartError::SlotBusy { slot: config.slot.clone() },
            LockError::File { .. } => StartError::Volume { message: chain(&error) },
        })?;
    // A provisioned session never needs its remote to start again.
    let provisioned = provision::is_done(&layout.outside.state, config)?;
    let resolved = if provisioned { None } else { provision::resolve(config, &Stdout)? };
    Ok(Prepared { wanted, layout, resolved, lock, withdrawal: None })
}
