//! Every state that a small world can reach, breadth first: two messages each way, cuts anywhere, half-open sides,
//! acknowledgements lost with their connection, a newer client at any moment. In each of them all that has arrived arrives once
//! more.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::world::{Budget, STEPS, World};

/// Explores; the number of states, of those in which nothing can happen any more, and of frames that arrived again.
fn explore(first: World) -> (usize, usize, usize) {
    let digest = |world: &World| {
        let mut hasher = DefaultHasher::new();
        world.hash(&mut hasher);
        hasher.finish()
    };
    let mut seen = HashSet::from([digest(&first)]);
    let mut open = VecDeque::from([first]);
    let (mut ends, mut again) = (0, 0);
    while let Some(world) = open.pop_front() {
        again += world.overlap();
        let mut stuck = true;
        for step in STEPS {
            let mut next = world.clone();
            if next.step(step) {
                stuck = false;
                if seen.insert(digest(&next)) {
                    open.push_back(next);
                }
            }
        }
        if stuck {
            world.check_end();
            ends += 1;
        }
    }
    (seen.len(), ends, again)
}

fn count(name: &str, left: Budget, window: u64, at_least: usize) {
    // Four bytes of memory: the second message lies in the spool.
    let (states, ends, again) = explore(World::new(left, 2, window, 4));
    println!("{name}: {states} states, {ends} of them an end; {again} frames arrived again");
    assert!(states >= at_least && ends > 0 && again > states / 4, "{states} {ends} {again}");
}

/// So many messages each way, and nothing that disturbs them.
fn talk(up: u64, down: u64) -> Budget {
    Budget { up, down, hurried: 0, revoked: 0, cuts: 0, vain: 0, supersede: false }
}

#[test]
fn a_copy_goes_ahead_once_and_never_past_its_own_message_whatever_is_cut() {
    let left = |up, cuts| Budget { hurried: 1, cuts, ..talk(up, 0) };
    count("a copy past one of two messages, two cuts", left(3, 2), 3, 1_000);
    count("a copy, and a message taken back, a cut", Budget { revoked: 1, ..left(3, 1) }, 3, 1_000);
}

#[test]
fn nothing_is_lost_or_doubled_in_any_state_that_cuts_can_make() {
    let left = |up, down, cuts, vain| Budget { cuts, vain, ..talk(up, down) };
    count("two messages each way, two cuts", left(2, 2, 2, 0), 64, 50_000);
    count("two messages up, two cuts", left(2, 0, 2, 0), 64, 1_000);
    count("two messages down, two cuts", left(0, 2, 2, 0), 64, 1_000);
    count("one message each way, three cuts, a vain attempt", left(1, 1, 3, 1), 64, 10_000);
    count("messages in pieces, one cut", left(1, 1, 1, 0), 2, 1_000);
}

#[test]
fn a_newer_client_ends_the_older_one_from_any_state() {
    let left = Budget { cuts: 1, supersede: true, ..talk(1, 1) };
    count("one message each way, a cut, a newer client", left, 64, 1_000);
}
