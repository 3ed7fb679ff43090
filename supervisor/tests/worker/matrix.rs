//! What a worker says of its walls before its agent starts, and that it does not start where they do not hold.

use std::collections::BTreeSet;

use casemate_inside::catalogue::{Defence, Expected, attacks};
use casemate_protocol::matrix::Verdict;
use casemate_protocol::policy::DEVELOPER;
use casemate_protocol::tier::Tier;
use casemate_protocol::worker::StartError;
use casemate_supervisor::probe::range::PREFIX;

use crate::harness::{ALL, Slot, Who};

/// What is left of grounds in the slot.
fn decoys(slot: &Slot) -> Vec<String> {
    let run = std::fs::read_dir(slot.config.volume.join("run")).unwrap();
    let names = run.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(PREFIX)).collect()
}

#[test]
fn a_worker_tells_what_its_walls_stop_and_exactly_the_named_leaks() {
    for (tier, who) in ALL {
        let slot = Slot::new(tier, who);
        let (worker, address) = slot.serve();
        let status = slot.status(address);
        let matrix = status.matrix.unwrap();
        assert_eq!(matrix.tier, tier);
        assert_eq!(matrix.total() as usize, attacks().count(), "{}", matrix.table());
        for verdict in [Verdict::Broken, Verdict::Unproven, Verdict::Open] {
            assert_eq!(matrix.count(verdict), 0, "{tier} {who:?}\n{}", matrix.table());
        }
        let leaks: BTreeSet<&str> = matrix.named(Verdict::Leaks).collect();
        let promised: BTreeSet<&str> = attacks()
            .filter(|attack| {
                let expected = if tier > Tier::Domain { attack.namespace } else { attack.domain };
                expected == Expected::Leaks && !attack.defences.contains(&Defence::Kernel)
            })
            .map(|attack| attack.id)
            .collect();
        // What the kernel refuses without us it may let through on another machine.
        let unnamed: Vec<_> = leaks
            .difference(&promised)
            .filter(|id| {
                let attack = attacks().find(|attack| attack.id == **id);
                !attack.is_some_and(|attack| attack.defences.contains(&Defence::Kernel))
            })
            .collect();
        assert!(unnamed.is_empty(), "{tier} {who:?}: {unnamed:?}");
        let untried: Vec<_> = matrix.named(Verdict::Untried).collect();
        assert!(untried.len() < 8, "{tier} {who:?}: {untried:?}");
        assert!(
            status.enforcement.iter().any(|line| line.contains("attacks in tier")),
            "{:?}",
            status.enforcement
        );
        worker.stop();
        // The decoys are gone with the probe, whatever became of the worker.
        assert_eq!(decoys(&slot), Vec::<String>::new(), "{tier} {who:?}");
    }
}

/// Without the rule for prlimit64(2) an agent ends its supervisor.
#[test]
fn a_worker_whose_wall_does_not_keep_the_tiers_promise_does_not_start() {
    let rule = DEVELOPER.find("names = [\"prlimit64\"]").unwrap();
    let (before, after) = DEVELOPER.split_at(rule);
    let start = before.rfind("[[syscall]]").unwrap();
    let end = after.find("[[syscall]]").unwrap();
    for tier in [Tier::Domain, Tier::Namespace] {
        let mut slot = Slot::new(tier, Who::Own);
        slot.config.policy = format!("{}{}", &before[..start], &after[end..]);
        let (error, status) = slot.fails();
        let StartError::Shield { message } = error else { panic!("{error:?}") };
        assert!(message.contains("supervisor-limit-cpu"), "{message}");
        assert!(!message.contains("supervisor-kill"), "{message}");
        assert_eq!(status.code(), Some(70));
        assert_eq!(decoys(&slot), Vec::<String>::new());
    }
}

/// A memory segment is found by whoever is the same user, so no session's policy is to let it make one in tier `domain`. In a
/// namespace it is the session's own, and the policy's to open.
#[test]
fn a_policy_does_not_open_what_is_another_sessions() {
    let calls = "\"shmget\", \"shmat\", \"shmctl\", ";
    let opened = DEVELOPER.replace(calls, "");
    assert_ne!(opened, DEVELOPER);
    let mut slot = Slot::new(Tier::Domain, Who::Own);
    slot.config.policy.clone_from(&opened);
    let (error, status) = slot.fails();
    let StartError::Shield { message } = error else { panic!("{error:?}") };
    assert!(message.contains("shm-attach"), "{message}");
    assert!(!message.contains("shm-make"), "{message}");
    assert_eq!(status.code(), Some(70));

    let mut slot = Slot::new(Tier::Namespace, Who::Own);
    slot.config.policy = opened;
    let (worker, address) = slot.serve();
    let matrix = slot.status(address).matrix.unwrap();
    let open: BTreeSet<&str> = matrix.named(Verdict::Open).collect();
    assert_eq!(open, BTreeSet::from(["shm-make", "shm-attach"]), "{}", matrix.table());
    worker.stop();
}
