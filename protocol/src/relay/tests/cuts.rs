//! A longer conversation, cut at every step, and at every pair of steps.

use super::world::{Budget, STEPS, Step, World};

/// Cuts before each of these steps.
fn run(cuts: &[usize]) -> usize {
    let count = u32::try_from(cuts.len()).unwrap();
    let left =
        Budget { up: 6, down: 7, hurried: 2, revoked: 1, cuts: count, vain: 0, supersede: false };
    let mut world = World::new(left, 3, 8, 12);
    let mut cuts = cuts.iter().copied().peekable();
    let mut done = 0;
    let mut turn = 0;
    loop {
        if cuts.next_if(|at| *at <= done).is_some() {
            world.step(Step::Cut);
        }
        // Round robin, so that both directions are busy at once.
        let stepped = (0..STEPS.len()).any(|ahead| {
            let at = (turn + ahead) % STEPS.len();
            let step = STEPS[at];
            let stepped = step != Step::Cut && world.step(step);
            if stepped {
                turn = at + 1;
            }
            stepped
        });
        if !stepped && cuts.peek().is_none() {
            world.check_end();
            return done;
        }
        done += 1;
    }
}

#[test]
fn nothing_is_lost_wherever_it_is_cut_once_or_twice() {
    let steps = run(&[]);
    let mut runs = 0;
    for first in 0..steps {
        run(&[first]);
        for second in (first + 1)..(steps + 10) {
            run(&[first, second]);
            runs += 1;
        }
    }
    println!("{steps} steps, {runs} pairs of cuts");
    assert!(runs > 1_000, "{runs}");
}
