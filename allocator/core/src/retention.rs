//! What age leads to: of sessions that sleep, and of volumes that are kept for their unpushed work. Age is the allocator's running time;
//! what is held does not age.

use casemate_protocol::api::Phase;

use crate::record::Storage;
use crate::standing::Standing;

/// What a profile promises about age, in seconds; `None`: for ever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ages {
    /// How long a session sleeps until it ends.
    pub asleep: Option<u64>,
    /// How long the volume of an ended session is kept that holds unpushed work, or of which that is not known.
    pub unpushed: Option<u64>,
}

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Close it for [`casemate_protocol::end::EndReason::Retention`]. What its volume holds is judged then, and looked at before where
    /// it is not known.
    Close,
    /// Discard its volume: the profile says that even unpushed work is kept for so long only.
    Discard,
}

/// Judges a session of that age since it fell asleep, or ended. `held`: somebody holds it.
#[must_use]
pub fn due<'a>(session: impl Into<Standing<'a>>, ages: Ages, age: u64, held: bool) -> Option<Due> {
    let session = session.into();
    let over = |limit: Option<u64>| !held && limit.is_some_and(|limit| age >= limit);
    match (session.phase, session.storage) {
        (Phase::Asleep, _) => over(ages.asleep).then_some(Due::Close),
        (Phase::Ended, Storage::Retained { left: None }) => {
            over(ages.unpushed).then_some(Due::Discard)
        }
        _ => None,
    }
}
