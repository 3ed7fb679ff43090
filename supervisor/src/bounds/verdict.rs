//! What follows from what a session takes. Pure.
//!
//! Above its bound a session is told, in its next turn, and can clean up. An eighth above that it is ended: a loop that
//! writes does not read notices. What it had when the worker started is not held against it, or it could never clean up.

use casemate_protocol::policy::{Bounds, Size};
use casemate_sandbox::beneath::Measured;

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing.
    Fine,
    /// Tell whoever prompts.
    Tell(String),
    /// End the session's processes, for this reason.
    End(String),
}

/// Judges what was measured now, against what was measured first.
pub(super) fn of_disk(bounds: &Bounds, first: Measured, now: Measured) -> Verdict {
    let size = |bytes: u64| Size(bytes.next_multiple_of(1 << 20)).to_string();
    let count = |files: u64| files.to_string();
    let mut verdict = Verdict::Fine;
    for (limit, first, now, what, words) in [
        (bounds.disk, first.bytes, now.bytes, "on disk", &size as &dyn Fn(u64) -> String),
        (bounds.files, first.files, now.files, "files", &count),
    ] {
        let Some(limit) = limit.filter(|limit| now > *limit) else { continue };
        let (taken, allowed) = (words(now), words(limit));
        if now > limit.max(first).saturating_add(limit / 8) {
            return Verdict::End(format!(
                "the session took {taken} {what} of the {allowed} that its policy's [bounds] allow, and was ended"
            ));
        }
        verdict = Verdict::Tell(format!(
            "the session takes {taken} {what} of the {allowed} that its policy's [bounds] allow: remove what is not needed, or it is ended an eighth above that"
        ));
    }
    verdict
}

/// Judges what is left on a volume of `size` bytes for everybody, bytes and files.
pub(super) fn of_volume(size: u64, free: u64, free_files: Option<u64>) -> Option<String> {
    const LEAST: u64 = 32 << 20;
    const LEAST_FILES: u64 = 1000;
    if free < LEAST.min(size / 16) {
        return Some(format!(
            "the disk is full ({} KiB left): the agent cannot write, and what it says may be missing from a later replay: make room",
            free >> 10
        ));
    }
    let free_files = free_files.filter(|files| *files < LEAST_FILES)?;
    Some(format!("the disk has room for {free_files} more files only: remove some"))
}

/// Judges the number of tasks where the kernel, at the bound, refuses to start more.
pub(super) fn of_tasks(limit: Option<u32>, tasks: u32) -> Option<String> {
    // The worker's own count as well: the supervisor and the spawner's threads, about ten.
    let limit = limit.filter(|limit| tasks.saturating_add(16) >= *limit)?;
    Some(format!(
        "the session runs {tasks} of at most {limit} processes and threads: starting more fails"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn bounds() -> Bounds {
        Bounds { disk: Some(80 * MIB), files: Some(800), ..Bounds::default() }
    }

    fn taken(bytes: u64, files: u64) -> Measured {
        Measured { bytes, files, unread: 0 }
    }

    #[test]
    fn a_session_is_told_above_its_bound_and_ended_an_eighth_above() {
        let judge = |bytes, files| of_disk(&bounds(), taken(0, 0), taken(bytes, files));
        assert_eq!(judge(80 * MIB, 800), Verdict::Fine);
        let Verdict::Tell(text) = judge(80 * MIB + 1, 0) else { panic!() };
        assert!(text.contains("81MiB on disk of the 80MiB"), "{text}");
        assert!(matches!(judge(90 * MIB, 0), Verdict::Tell(_)));
        assert!(matches!(judge(90 * MIB + 1, 0), Verdict::End(_)));
        assert!(matches!(judge(0, 801), Verdict::Tell(_)));
        let Verdict::End(text) = judge(81 * MIB, 901) else { panic!() };
        assert!(text.contains("901 files of the 800"), "{text}");
    }

    #[test]
    fn what_was_there_when_the_worker_started_may_be_cleaned_up() {
        let first = taken(200 * MIB, 0);
        assert!(matches!(of_disk(&bounds(), first, taken(209 * MIB, 0)), Verdict::Tell(_)));
        assert!(matches!(of_disk(&bounds(), first, taken(211 * MIB, 0)), Verdict::End(_)));
        let none = Bounds { disk: None, files: None, ..Bounds::default() };
        assert_eq!(of_disk(&none, taken(0, 0), taken(u64::MAX, u64::MAX)), Verdict::Fine);
    }

    #[test]
    fn a_full_volume_and_a_full_table_are_said() {
        assert_eq!(of_volume(1 << 40, 32 * MIB, Some(1000)), None);
        assert_eq!(of_volume(32 * MIB, 2 * MIB, None), None, "a small volume is not always full");
        assert!(of_volume(1 << 40, MIB, None).unwrap().contains("1024 KiB left"));
        assert!(of_volume(1 << 40, 1 << 39, Some(5)).unwrap().contains("5 more files"));
        assert_eq!(of_tasks(Some(100), 83), None);
        assert!(of_tasks(Some(100), 84).is_some());
        assert_eq!(of_tasks(None, u32::MAX), None);
    }
}
