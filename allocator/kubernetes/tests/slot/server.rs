//! A real API server takes every object, in a namespace that enforces *restricted*.

use casemate_cluster::{Cluster, Namespace};
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;
use serde_json::json;

use crate::{objects, profiles};

#[test]
fn a_real_server_takes_every_object_under_restricted() {
    let Some(cluster) = Cluster::of_environment() else { return };
    let namespace = Namespace::new(&cluster, "slots");
    let tried = ["create", "--validate=strict", "--dry-run=server", "--filename", "-"];
    // The namespace does enforce it.
    let hostile = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hostile"},
        "spec": {"containers": [{"name": "a", "image": "a"}]},
    });
    let said = namespace.kubectl(&tried, &hostile.to_string());
    assert!(!said.success && said.err.contains("violates PodSecurity"), "{said:?}");
    let mut runner = TestRunner::deterministic();
    let mut taken = 0;
    while taken < 25 {
        let profile = profiles::profile().new_tree(&mut runner).unwrap().current();
        let Ok(mut all) = objects(&profile, namespace.name(), None) else { continue };
        let said = namespace.kubectl(&tried, &all.anchor.to_string());
        assert!(said.success, "{}", said.err);
        // A Pod is refused whose ServiceAccount is not there; and one whose owner is not there is collected at once.
        all.anchor["metadata"].as_object_mut().unwrap().remove("ownerReferences").unwrap();
        let anchor = namespace.create(&all.anchor);
        assert!(anchor.success, "{}", anchor.err);
        for object in [&all.secret, &all.policy, &all.pod].into_iter().chain(&all.volume) {
            let said = namespace.kubectl(&tried, &object.to_string());
            assert!(said.success, "{}\n{object:#}", said.err);
        }
        let _ = namespace.must(&["delete", "--filename", "-"], &all.anchor.to_string());
        taken += 1;
    }
}
