//! The same on a real API server.

use casemate_kubernetes::resource::definitions;
use serde_json::{Value, json};

use crate::cases::{Expected, all};
use crate::kubectl::kubectl;

const NAMESPACE: &str = "casemate-rules";

#[test]
#[ignore = "needs a cluster: CASEMATE_KUBECTL"]
fn a_real_server_refuses_and_admits_the_same() {
    for definition in definitions() {
        let value = serde_json::to_value(&definition).unwrap();
        kubectl(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &value).unwrap();
        let name = format!("crd/{}", definition.metadata.name.unwrap());
        kubectl(&["wait", "--for=condition=Established", "--timeout=30s", &name], &Value::Null)
            .unwrap();
    }
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    kubectl(&["apply", "-f", "-"], &namespace).unwrap();
    for mut case in all() {
        case.new["metadata"]["namespace"] = json!(NAMESPACE);
        if let Some(old) = &mut case.old {
            old["metadata"]["namespace"] = json!(NAMESPACE);
            kubectl(&["create", "-f", "-"], old)
                .unwrap_or_else(|said| panic!("{}: the old: {said}", case.what));
        }
        let verb = if case.old.is_some() { "replace" } else { "create" };
        let answer =
            kubectl(&[verb, "--validate=strict", "--dry-run=server", "-f", "-"], &case.new);
        if let Some(old) = &case.old {
            kubectl(&["delete", "--wait", "-f", "-"], old).unwrap();
        }
        match (case.expected, answer) {
            (Expected::Admitted, Ok(_)) => {}
            (Expected::Rule(message), Err(said)) => {
                assert!(said.contains(message), "{}: {said}", case.what)
            }
            (Expected::Form(_), Err(said)) => {
                assert!(said.contains("is invalid"), "{}: {said}", case.what)
            }
            (expected, answer) => panic!("{}: {expected:?}, and the server: {answer:?}", case.what),
        }
    }
    kubectl(&["delete", "namespace", NAMESPACE, "--wait=false"], &Value::Null).unwrap();
}
