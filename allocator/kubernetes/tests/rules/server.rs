//! The same on a real API server.

use casemate_cluster::{Cluster, Namespace};
use casemate_kubernetes::resource::definitions;
use serde_json::json;

use crate::cases::{Expected, all};

#[test]
fn a_real_server_refuses_and_admits_the_same() {
    let Some(cluster) = Cluster::of_environment() else { return };
    for definition in definitions() {
        let text = serde_json::to_string(&definition).unwrap();
        let _ = cluster.must(&["apply", "--server-side", "--filename", "-"], &text);
        let name = format!("crd/{}", definition.metadata.name.unwrap());
        let established = ["wait", "--for=condition=Established", "--timeout=30s", &name];
        let _ = cluster.must(&established, "");
    }
    let namespace = Namespace::new(&cluster, "rules");
    for mut case in all() {
        case.new["metadata"]["namespace"] = json!(namespace.name());
        if let Some(old) = &mut case.old {
            old["metadata"]["namespace"] = json!(namespace.name());
            let said = namespace.create(old);
            assert!(said.success, "{}: the old: {}", case.what, said.err);
        }
        let verb = if case.old.is_some() { "replace" } else { "create" };
        let asked = [verb, "--validate=strict", "--dry-run=server", "--filename", "-"];
        let answer = namespace.kubectl(&asked, &case.new.to_string());
        if let Some(old) = &case.old {
            let _ = namespace.must(&["delete", "--wait", "--filename", "-"], &old.to_string());
        }
        match (case.expected, answer.success) {
            (Expected::Admitted, true) => {}
            (Expected::Rule(message), false) => {
                assert!(answer.err.contains(message), "{}: {}", case.what, answer.err)
            }
            (Expected::Form(_), false) => {
                assert!(answer.err.contains("is invalid"), "{}: {}", case.what, answer.err)
            }
            (expected, _) => panic!("{}: {expected:?}, and the server: {answer:?}", case.what),
        }
    }
}
