//! Capacity, holds and age.

use casemate_protocol::api::Phase;
use casemate_protocol::ids::SessionId;
use proptest::prelude::*;

use crate::capacity::{Limits, Occupant, Room, room};
use crate::hold::{Hold, MOST, keeps, place, release, spend};
use crate::record::{CloseRule, Storage, Terms};
use crate::retention::{Ages, Due, due};
use crate::standing::Standing;

fn id(number: usize) -> SessionId {
    let letter = |number: usize| char::from(b'a' + u8::try_from(number % 26).expect("a letter"));
    format!("s-{}{}{}", "a".repeat(24), letter(number / 26), letter(number)).parse().expect("an id")
}

fn occupants() -> impl Strategy<Value = Vec<Occupant>> {
    let one = (0..3_u8, prop::option::weighted(0.6, 0..5_u64));
    prop::collection::vec(one, 0..12).prop_map(|all| {
        let occupant = |(number, (tenant, idle_ms)): (usize, (u8, Option<u64>))| Occupant {
            session: id(number),
            tenant: tenant.to_string(),
            idle_ms,
        };
        all.into_iter().enumerate().map(occupant).collect()
    })
}

#[derive(Debug, Clone)]
enum Event {
    Place { reason: u8, holder: u8, left: u64 },
    Release { reason: u8, holder: u8 },
    Spend(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        (0..6_u8, 0..6_u8, 0..200_u64).prop_map(|(reason, holder, left)| Event::Place {
            reason,
            holder,
            left
        }),
        (0..6_u8, 0..6_u8).prop_map(|(reason, holder)| Event::Release { reason, holder }),
        (1..50_u64).prop_map(Event::Spend),
    ];
    prop::collection::vec(event, 0..120)
}

proptest! {
    #[test]
    fn room_is_made_of_the_longest_idle_and_of_nobody_busy(
        there in occupants(), all in 1..10_usize, of_tenant in 1..6_usize,
    ) {
        let own = there.iter().filter(|one| one.tenant == "0").count();
        let answer = room(Limits { all, of_tenant }, "0", &there);
        prop_assert_eq!(answer == Room::Free, own < of_tenant && there.len() < all);
        let may_go = |one: &&Occupant| own < of_tenant || one.tenant == "0";
        let longest = there.iter().filter(may_go).filter_map(|one| one.idle_ms).max();
        match answer {
            Room::Free => {}
            Room::After(victim) => {
                let victim = there.iter().find(|one| one.session == victim).expect("one of them");
                prop_assert!(may_go(&victim), "another tenant pays for this one's limit");
                prop_assert!(victim.idle_ms.is_some() && victim.idle_ms == longest);
            }
            Room::Busy(wait) => {
                prop_assert_eq!(longest, None);
                prop_assert!((5..=30).contains(&wait.as_secs()));
            }
        }
        // The order in which they were listed decides nothing.
        let mut turned = there.clone();
        turned.reverse();
        let limits = Limits { all, of_tenant };
        prop_assert_eq!(room(limits, "0", &turned), room(limits, "0", &there));
    }

    #[test]
    fn a_hold_is_released_by_its_holder_or_by_its_time(history in events()) {
        let mut holds = Vec::new();
        for event in history {
            let before: Vec<Hold> = holds.clone();
            match event {
                Event::Place { reason, holder, left } => {
                    let hold = Hold { reason: reason.to_string(), holder: holder.to_string(), left };
                    let placed = place(&mut holds, hold, 100);
                    prop_assert!(placed.is_ok() || before.len() == MOST);
                    for old in &before {
                        let same = |new: &&Hold| new.reason == old.reason && new.holder == old.holder;
                        prop_assert!(holds.iter().find(same).is_some_and(|new| new.left >= old.left));
                    }
                }
                Event::Release { reason, holder } => {
                    release(&mut holds, &reason.to_string(), &holder.to_string());
                    let others = before.iter().filter(|old| {
                        old.reason != reason.to_string() || old.holder != holder.to_string()
                    });
                    prop_assert!(holds.iter().eq(others));
                }
                Event::Spend(seconds) => {
                    spend(&mut holds, seconds);
                    let left = before.iter().filter(|old| old.left > seconds).count();
                    prop_assert_eq!(holds.len(), left);
                }
            }
            prop_assert!(holds.len() <= MOST && holds.iter().all(|hold| (1..=100).contains(&hold.left)));
            prop_assert_eq!(keeps(&holds).is_some(), !holds.is_empty());
        }
    }

    #[test]
    fn nothing_is_due_that_is_held_or_in_use(
        phase in prop::sample::select(vec![
            Phase::Starting, Phase::Active, Phase::Stopping, Phase::Asleep, Phase::Ended,
        ]),
        storage in prop::sample::select(vec![
            Storage::Live,
            Storage::Retained { left: None },
            Storage::Retained { left: Some(1) },
            Storage::Deleting,
            Storage::Deleted,
        ]),
        asleep in prop::option::of(0..10_u64),
        unpushed in prop::option::of(0..10_u64),
        age in 0..20_u64,
        held: bool,
    ) {
        let terms = Terms { idle_ttl_ms: 1, close: CloseRule::Delete };
        let id = id(0);
        let session = Standing { id: &id, phase, storage, served: true, used: true, terms };
        let found = due(session, Ages { asleep, unpushed }, age, held);
        let old = |limit: Option<u64>| limit.is_some_and(|limit| age >= limit);
        let kept = phase == Phase::Ended && storage == Storage::Retained { left: None };
        prop_assert_eq!(found == Some(Due::Close), !held && phase == Phase::Asleep && old(asleep));
        prop_assert_eq!(found == Some(Due::Discard), !held && kept && old(unpushed));
    }
}
