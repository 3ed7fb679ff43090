//! Room for one more worker: there is some, somebody who is idle makes some, or the caller tries again later.

use std::time::Duration;

use casemate_protocol::ids::SessionId;

/// How long a caller is told to wait, at least, where nobody is idle.
const SHORTEST: Duration = Duration::from_secs(5);
/// And at most: turns take minutes.
const LONGEST: Duration = Duration::from_secs(30);

/// How many workers there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Of the profile.
    pub all: usize,
    /// Of these, of one tenant.
    pub of_tenant: usize,
}

/// A worker that is there, or is being started or stopped. What is not proven gone counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupant {
    /// Whose it is.
    pub session: SessionId,
    /// The tenant.
    pub tenant: String,
    /// For how long it was idle at the last look, in milliseconds of its own monotonic clock; `None`: it is busy, held, starting,
    /// stopping, or was not looked at.
    pub idle_ms: Option<u64>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Room {
    /// Start it.
    Free,
    /// Stop this one for [`casemate_protocol::end::EndReason::Capacity`], then ask again: it was idle for longest, and it counts until
    /// it is gone. Whether it is idle its own worker decides.
    After(SessionId),
    /// Busy: to be tried again in so long, and a random part of that more, or all come back at once.
    Busy(Duration),
}

/// Whether `tenant` may have one more. A tenant at its own limit makes room of its own; one below it makes room of anybody's.
#[must_use]
pub fn room(limits: Limits, tenant: &str, there: &[Occupant]) -> Room {
    let own = there.iter().filter(|one| one.tenant == tenant).count();
    let own_only = own >= limits.of_tenant;
    if !own_only && there.len() < limits.all {
        return Room::Free;
    }
    let may_go = there.iter().filter(|one| !own_only || one.tenant == tenant);
    let idle = may_go.filter_map(|one| Some((one.idle_ms?, one)));
    // The id settles a draw, so that two allocators choose the same one.
    match idle.max_by(|(a, one), (b, other)| (a, &other.session).cmp(&(b, &one.session))) {
        Some((_, one)) => Room::After(one.session.clone()),
        None => Room::Busy(patience(there.len())),
    }
}

fn patience(there: usize) -> Duration {
    // With many workers one of them is done sooner.
    let seconds = LONGEST.as_secs() / u64::try_from(there.max(1)).unwrap_or(u64::MAX);
    Duration::from_secs(seconds.max(SHORTEST.as_secs()))
}
