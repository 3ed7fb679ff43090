//! What `casemate policy` says is what a worker would do.

mod host;
mod house;

use house::House;
use serde_json::Value;

/// A Pod's wall is built by the rules of tier `domain` (`Tier::wall`), and so it is explained.
#[test]
fn a_pods_wall_is_explained_as_it_is_built() {
    let house = House::new();
    let explained = |question: &str, tier: &str| -> Value {
        house.json(&["policy", "explain", "developer", question, "--tier", tier, "--json"])
    };
    let decision = |question: &str, tier: &str| {
        let mut said = explained(question, tier);
        assert_eq!(said["tier"].take(), tier);
        said
    };
    for question in ["/dev/shm/x", "/usr/bin/env"] {
        assert_eq!(decision(question, "pod"), decision(question, "domain"), "{question}");
    }
    assert_ne!(decision("/dev/shm/x", "namespace"), decision("/dev/shm/x", "domain"));
}
