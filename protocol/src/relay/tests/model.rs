//! Random worlds. The model is the world's own: a message comes out under its number, with its content, once, in order.

use proptest::prelude::*;

use super::world::{Budget, STEPS, World};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn whatever_happens_everything_arrives_once_in_order(
        order in prop::collection::vec(0..STEPS.len(), 0..400),
        size in 0..40usize,
        window in 1..64u64,
        memory in 0..200usize,
        supersede in prop::bool::weighted(0.1),
    ) {
        let left =
            Budget { up: 20, down: 20, hurried: 8, revoked: 4, cuts: 40, vain: 20, supersede };
        let mut world = World::new(left, size, window, memory);
        for at in order {
            world.step(STEPS[at]);
            world.overlap();
        }
        world.run_out();
        world.check_end();
    }
}
