//! Holds keep a worker from being stopped for idleness, or a volume from being deleted, while somebody needs it.
//!
//! Each has a reason and a holder, and is independent of the others: one that is released frees nobody else's. It is bounded, and its
//! time is the allocator's running time, so that a downtime releases nothing early.

/// The most that a session has.
pub const MOST: usize = 16;

/// A hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Hold {
    /// What for.
    pub reason: String,
    /// Whose.
    pub holder: String,
    /// Seconds of the allocator's running time that it still holds.
    pub left: u64,
}

/// Why a hold is not placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{MOST} holds are in force already: release one of them, or wait")]
pub struct TooMany;

/// Places a hold, or prolongs the same holder's for the same reason; for `longest` seconds at most.
///
/// # Errors
/// [`TooMany`].
pub fn place(holds: &mut Vec<Hold>, hold: Hold, longest: u64) -> Result<(), TooMany> {
    let left = hold.left.min(longest);
    if let Some(same) = find(holds, &hold.reason, &hold.holder) {
        same.left = same.left.max(left);
        return Ok(());
    }
    if holds.len() >= MOST {
        return Err(TooMany);
    }
    if left > 0 {
        holds.push(Hold { left, ..hold });
    }
    Ok(())
}

/// Releases one holder's hold for one reason; true where there was one.
pub fn release(holds: &mut Vec<Hold>, reason: &str, holder: &str) -> bool {
    let before = holds.len();
    holds.retain(|hold| hold.reason != reason || hold.holder != holder);
    holds.len() < before
}

/// So many seconds of the allocator's running time have passed.
pub fn spend(holds: &mut Vec<Hold>, seconds: u64) {
    for hold in holds.iter_mut() {
        hold.left = hold.left.saturating_sub(seconds);
    }
    holds.retain(|hold| hold.left > 0);
}

/// Why nothing that idleness or age leads to happens now, in words; `None`: nothing is held.
#[must_use]
pub fn keeps(holds: &[Hold]) -> Option<String> {
    let all: Vec<_> = holds
        .iter()
        .map(|hold| format!("{} ({}, {} s)", hold.reason, hold.holder, hold.left))
        .collect();
    (!all.is_empty()).then(|| format!("held for {}", all.join(", ")))
}

fn find<'a>(holds: &'a mut [Hold], reason: &str, holder: &str) -> Option<&'a mut Hold> {
    holds.iter_mut().find(|hold| hold.reason == reason && hold.holder == holder)
}
