//! Single decisions.

use casemate_protocol::api::{Intent, LastEnd, Phase};
use casemate_protocol::end::EndReason;
use casemate_protocol::ids::{Incarnation, SessionId, SlotId};
use casemate_protocol::key::Key;
use casemate_protocol::worker::{Activity, AgentState, Evidence};

use crate::end::{Ending, storage_after};
use crate::record::{CloseRule, Record, Storage, Terms};
use crate::seat::{SEATS, Seat};
use crate::tick::{Observation, Tick, tick};

fn ending(reason: EndReason, discard: bool, evidence: Option<Evidence>) -> Ending {
    Ending { reason, close: true, discard, force: false, evidence }
}

#[test]
fn what_a_close_does_to_storage() {
    let clean = || Some(Evidence::default());
    let dirty = || Some(Evidence { dirty: 1, ..Evidence::default() });
    let stash = || Some(Evidence { stashes: 1, ..Evidence::default() });
    let week = CloseRule::Retain(604_800);
    let kept = Storage::Retained { left: None };
    for (reason, discard, evidence, rule, expected) in [
        (EndReason::Close, false, clean(), CloseRule::Delete, Storage::Deleting),
        (EndReason::Close, false, clean(), week, Storage::Retained { left: Some(604_800) }),
        (EndReason::Close, false, dirty(), CloseRule::Delete, kept),
        (EndReason::Close, false, stash(), week, kept),
        (EndReason::Close, false, None, CloseRule::Delete, kept),
        (EndReason::Close, true, dirty(), week, Storage::Deleting),
        (EndReason::Close, true, None, week, Storage::Deleting),
        (EndReason::Unused, false, clean(), week, Storage::Deleting),
        (EndReason::Unused, false, None, CloseRule::Delete, kept),
    ] {
        let ending = ending(reason, discard, evidence);
        assert_eq!(storage_after(&ending, Storage::Live, rule), expected, "{ending:?} {rule:?}");
    }
}

#[test]
fn seats_prefer_different_ranges_of_one_pool_below_the_ephemeral_ports() {
    let mut preferred = std::collections::BTreeSet::new();
    for seat in (0..SEATS).map(Seat) {
        let pool = seat.ports();
        assert!(pool.is_sound());
        assert_eq!((pool.first, pool.ranges), (21_008, 687));
        assert!(preferred.insert(pool.claims().next()));
    }
    assert_eq!(preferred.last(), Some(&Some(32_000 - 16)));
    let taken = (0..SEATS).filter(|&seat| seat != 5).map(Seat).collect();
    assert_eq!(Seat::lowest_free(&taken), Some(Seat(5)));
    assert_eq!(Seat::lowest_free(&(0..SEATS).map(Seat).collect()), None);
}

/// A session that served and now sleeps after an end that left `evidence`.
fn asleep(evidence: Option<Evidence>) -> Record {
    let key =
        Key { tenant: "t".into(), agent: "a".into(), platform: "p".into(), thread: "1".into() };
    let record = Record::new(
        SessionId::random(),
        (key, Incarnation(1)),
        Intent::default(),
        (SlotId::random(), Seat(0)),
        Terms { idle_ttl_ms: 1000, close: CloseRule::Delete },
        0,
    );
    Record {
        phase: Phase::Asleep,
        served: true,
        used: true,
        last_end: Some(LastEnd { reason: EndReason::Idle, detail: String::new(), evidence, at: 0 }),
        ..record
    }
}

#[test]
fn a_failed_resume_neither_loses_nor_invents_evidence() {
    let dirty = Some(Evidence { dirty: 1, ..Evidence::default() });
    for (evidence, expected) in [
        (None, Storage::Retained { left: None }),
        (dirty, Storage::Retained { left: None }),
        (Some(Evidence::default()), Storage::Deleting),
    ] {
        let mut record = asleep(evidence.clone());
        record.wake().unwrap();
        record.start_failed("full disk".into(), 1).unwrap();
        assert_eq!(record.last_end.as_ref().unwrap().evidence, evidence);
        record.end_without_worker(ending(EndReason::Close, false, None), String::new(), 2).unwrap();
        assert_eq!(record.storage, expected);
    }
}

#[test]
fn only_observed_idleness_ends_a_worker() {
    let mut record = asleep(None);
    record.phase = Phase::Active;
    let seen = |activity, attachments, used| Observation {
        activity,
        agent: AgentState::Running { pid: 2 },
        attachments,
        used,
    };
    let busy = seen(Activity::Busy { for_ms: u64::MAX }, 0, true);
    assert_eq!(tick(&record, &busy), Tick::Nothing);
    let short = seen(Activity::Idle { for_ms: 999 }, 0, true);
    assert_eq!(tick(&record, &short), Tick::Nothing);
    let long = seen(Activity::Idle { for_ms: 1000 }, 1, true);
    assert!(matches!(tick(&record, &long), Tick::Stop(EndReason::Idle, _)));
    // Never used: closed, but not while somebody is connected.
    record.used = false;
    let unused = seen(Activity::Idle { for_ms: 1000 }, 0, false);
    assert!(matches!(tick(&record, &unused), Tick::Close(EndReason::Unused, _)));
    let open = seen(Activity::Idle { for_ms: 1000 }, 1, false);
    assert!(matches!(tick(&record, &open), Tick::Stop(EndReason::Idle, _)));
    let ended = Observation { agent: AgentState::Exited { cause: "signal 9".into() }, ..busy };
    assert!(matches!(tick(&record, &ended), Tick::Stop(EndReason::Failed, _)));
}

#[test]
fn an_unused_session_with_something_in_it_only_sleeps() {
    let mut record = asleep(None);
    record.phase = Phase::Active;
    record.begin_end(ending(EndReason::Unused, false, None)).unwrap();
    record.quiesced(Some(Evidence { dirty: 2, ..Evidence::default() })).unwrap();
    record.stopped(String::new(), 1).unwrap();
    assert_eq!((record.phase, record.storage), (Phase::Asleep, Storage::Live));
    assert_eq!(record.last_end.unwrap().reason, EndReason::Idle);
}
