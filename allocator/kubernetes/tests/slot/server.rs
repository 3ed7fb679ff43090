//! A real API server takes every object, in a namespace that enforces *restricted*.

use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::kubectl::kubectl;
use crate::{objects, profiles};

const NAMESPACE: &str = "casemate-slots";

#[test]
#[ignore = "needs a cluster: CASEMATE_KUBECTL"]
fn a_real_server_takes_every_object_under_restricted() {
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    });
    kubectl(&["apply", "-f", "-"], &namespace).unwrap();
    // The namespace does enforce it.
    let hostile = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hostile", "namespace": NAMESPACE},
        "spec": {"containers": [{"name": "a", "image": "a"}]},
    });
    let said = kubectl(&["create", "--dry-run=server", "-f", "-"], &hostile).unwrap_err();
    assert!(said.contains("violates PodSecurity"), "{said}");
    let mut runner = TestRunner::deterministic();
    let mut taken = 0;
    while taken < 25 {
        let profile = profiles::profile().new_tree(&mut runner).unwrap().current();
        let Ok(all) = objects(&profile, NAMESPACE, None) else { continue };
        // A Pod is refused whose ServiceAccount is not there.
        kubectl(&["create", "-f", "-"], &all.anchor).unwrap();
        for object in [&all.secret, &all.policy, &all.pod].into_iter().chain(&all.volume) {
            kubectl(&["create", "--validate=strict", "--dry-run=server", "-f", "-"], object)
                .unwrap_or_else(|said| panic!("{said}\n{object:#}"));
        }
        kubectl(&["delete", "-f", "-"], &all.anchor).unwrap();
        taken += 1;
    }
    kubectl(&["delete", "namespace", NAMESPACE, "--wait=false"], &Value::Null).unwrap();
}
