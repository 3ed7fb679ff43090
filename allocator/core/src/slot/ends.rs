//! What each end does, as data. The table in the operators' documentation is this one.

use casemate_protocol::end::EndReason;

/// What becomes of the Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compute {
    /// It stays until it is idle for long enough.
    Stays,
    /// It is quiesced, and deleted once it is idle. A busy one goes on.
    StopsIdle,
    /// It is deleted, busy or not.
    Stops,
    /// There is none.
    None,
}

/// What becomes of the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeEnd {
    /// It stays.
    Kept,
    /// As the profile says; always kept with unpushed work, or where that is not known, unless somebody said `discard`.
    ByProfile,
    /// It is deleted, unless something unpushed is found in it.
    Deleted,
}

/// A row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Why.
    pub reason: EndReason,
    /// The Pod.
    pub compute: Compute,
    /// The volume.
    pub volume: VolumeEnd,
    /// The incarnation ends.
    pub ends_incarnation: bool,
    /// What the chat sees.
    pub chat: &'static str,
}

/// The table.
pub const TABLE: [Row; 10] = {
    use Compute::{None, Stays, Stops, StopsIdle};
    use VolumeEnd::{ByProfile, Deleted, Kept};
    const fn row(
        reason: EndReason,
        compute: Compute,
        volume: VolumeEnd,
        ends: bool,
        chat: &'static str,
    ) -> Row {
        Row { reason, compute, volume, ends_incarnation: ends, chat }
    }
    [
        row(EndReason::Detach, Stays, Kept, false, "nothing"),
        row(EndReason::Idle, StopsIdle, Kept, false, "nothing; the next message resumes"),
        row(
            EndReason::Capacity,
            StopsIdle,
            Kept,
            false,
            "nothing; where nobody is idle: busy, try again in n s",
        ),
        row(EndReason::Shutdown, StopsIdle, Kept, false, "nothing"),
        row(
            EndReason::Hung,
            Stops,
            Kept,
            false,
            "an error that names the cut turn; the next message resumes",
        ),
        row(EndReason::Failed, Stops, Kept, false, "an error that names the cause"),
        row(EndReason::Reset, Stops, Kept, false, "context reset"),
        row(EndReason::Close, Stops, ByProfile, true, "a confirmation, and what was kept"),
        row(EndReason::Retention, None, ByProfile, true, "a notice at the next message"),
        row(EndReason::Unused, StopsIdle, Deleted, true, "nothing"),
    ]
};

/// What a reason does; `None`: a reason that a newer version has.
#[must_use]
pub fn row(reason: EndReason) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.reason == reason)
}
