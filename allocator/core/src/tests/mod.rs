//! Random histories against the invariants of the crate's documentation, and the single decisions by example.

mod examples;
mod room;
mod world;

use proptest::prelude::*;

use world::World;

/// One thing that happens. Numbers choose among what exists, modulo how many there are.
#[derive(Debug, Clone)]
pub(super) enum Event {
    Allocate {
        key: u8,
        request: u8,
        body: u8,
    },
    Resume(usize),
    End {
        session: usize,
        close: bool,
        discard: bool,
        force: bool,
    },
    /// A look finds the worker idle for longer than its TTL.
    Idle(usize),
    /// A task of the driver goes one step on.
    Step(usize),
    /// A start fails at the step where it is.
    Fail(usize),
    WorkerDies(usize),
    Prompt(usize),
    TurnEnds(usize),
    Push(usize),
    Age(u64),
    /// The allocator is killed and started again.
    Crash,
}

fn event() -> impl Strategy<Value = Event> {
    let n = 0..8usize;
    prop_oneof![
        4 => (0..3u8, 0..12u8, 0..2u8)
            .prop_map(|(key, request, body)| Event::Allocate { key, request, body }),
        2 => n.clone().prop_map(Event::Resume),
        3 => (n.clone(), any::<bool>(), prop::bool::weighted(0.2), any::<bool>()).prop_map(
            |(session, close, discard, force)| Event::End { session, close, discard, force }
        ),
        2 => n.clone().prop_map(Event::Idle),
        20 => n.clone().prop_map(Event::Step),
        2 => n.clone().prop_map(Event::Fail),
        2 => n.clone().prop_map(Event::WorkerDies),
        4 => n.clone().prop_map(Event::Prompt),
        3 => n.clone().prop_map(Event::TurnEnds),
        1 => n.prop_map(Event::Push),
        1 => (0..2000u64).prop_map(Event::Age),
        2 => Just(Event::Crash),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn invariants_hold_in_every_history(events in prop::collection::vec(event(), 1..150)) {
        let mut world = World::default();
        for event in events {
            world.happen(&event);
            world.check();
        }
        world.happen(&Event::Crash);
        world.check();
        world.check_settled();
    }
}
