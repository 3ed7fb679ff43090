//! What each end does, as data. The table of docs/operators.md is this one ([`as_table`]), and what the decisions do is tried against it.

use casemate_protocol::end::EndReason;

/// What becomes of the Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compute {
    /// It stays until it is idle for long enough.
    Stays,
    /// It is quiesced, then deleted. A busy one goes on, unless it is forced.
    StopsIdle,
    /// It is deleted, busy or not.
    Stops,
    /// It is gone already; the next message gets another.
    Gone,
    /// There is none.
    None,
    /// The end is refused: it cannot be carried out yet.
    Refused,
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
    use Compute::{Gone, None, Refused, Stays, Stops, StopsIdle};
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
        row(EndReason::Failed, Gone, Kept, false, "an error that names the cause"),
        row(EndReason::Reset, Refused, Kept, false, "that it is not to be had yet"),
        row(EndReason::Close, StopsIdle, ByProfile, true, "a confirmation, and what was kept"),
        row(EndReason::Retention, None, ByProfile, true, "a notice at the next message"),
        row(EndReason::Unused, StopsIdle, Deleted, true, "nothing"),
    ]
};

/// What a reason does; `None`: a reason that a newer version has.
#[must_use]
pub fn row(reason: EndReason) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.reason == reason)
}

/// The table in Markdown, as the operators' documentation has it.
#[must_use]
pub fn as_table() -> String {
    let mut text = String::from(
        "| reason | Pod | volume | incarnation | the chat sees |\n|---|---|---|---|---|\n",
    );
    for Row { reason, compute, volume, ends_incarnation, chat } in TABLE {
        let compute = match compute {
            Compute::Stays => "stays until it is idle for long enough",
            Compute::StopsIdle => "quiesced, then deleted; a busy one goes on, unless it is forced",
            Compute::Stops => "deleted, busy or not",
            Compute::Gone => "gone; the next message gets another once that is proven",
            Compute::None => "none, or one without clients that looks what the volume holds",
            Compute::Refused => "refused",
        };
        let volume = match volume {
            VolumeEnd::Kept => "kept",
            VolumeEnd::ByProfile => {
                "by profile; kept with unpushed work, or where that is not known, unless discarded"
            }
            VolumeEnd::Deleted => "deleted; with anything unpushed in it the session only sleeps",
        };
        let incarnation = if ends_incarnation { "ends" } else { "goes on" };
        let name = format!("{reason:?}").to_lowercase();
        text += &format!("| `{name}` | {compute} | {volume} | {incarnation} | {chat} |\n");
    }
    text
}
