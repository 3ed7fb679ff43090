//! Single decisions, and the table of ends.

use casemate_protocol::end::EndReason;

use super::explore::session;
use super::server::slot;
use crate::ends::{TABLE, row};
use crate::slot::{Action, Cause, Obstacle, VolumeNeed, World, decide};

#[test]
fn every_reason_has_one_row() {
    for reason in EndReason::ALL {
        assert_eq!(TABLE.iter().filter(|row| row.reason == reason).count(), 1, "{reason:?}");
        // What a caller may close with is what ends an incarnation (`crate::end::end`).
        let closes = [EndReason::Close, EndReason::Retention, EndReason::Unused].contains(&reason);
        assert_eq!(row(reason).unwrap().ends_incarnation, closes, "{reason:?}");
    }
}

#[test]
fn a_session_whose_volume_is_gone_gets_no_other() {
    let mut session = session(0);
    session.served = true;
    session.volume = VolumeNeed::Have("v".into());
    let mut world = World::default();
    let mut server = super::server::Server::default();
    let object = server.object(None);
    world.secret =
        Some(crate::slot::Object { owner: Some(object.uid.clone()), ..server.object(None) });
    world.policy.clone_from(&world.secret);
    world.anchor = Some(crate::slot::Anchor { object, claim: Some(session.claim()) });
    let action = decide(&session, &world, &slot(1), 0).unwrap();
    assert!(matches!(action, Action::Blocked(Obstacle::VolumeLost, _)), "{action:?}");
}

#[test]
fn what_the_cluster_does_is_no_attempt_of_the_worker() {
    let (evicted, crashed) = (Cause::Evicted("memory".into()), Cause::OutOfMemory);
    let mut session = session(0);
    for _ in 0..9 {
        session = session.start_failed(&evicted, 0);
    }
    assert_eq!((session.failed, session.generation.0), (0, 10));
    session = session.start_failed(&crashed, 0).start_failed(&crashed, 0);
    assert_eq!(session.phase, casemate_protocol::api::Phase::Ended);
}
