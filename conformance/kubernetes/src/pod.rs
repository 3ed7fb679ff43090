//! Shapes of Pods.

use serde_json::{Value, json};

use crate::Cluster;

/// A Pod that Pod Security *restricted* admits: user 1000, no capabilities, no token, one container running a script.
/// It ends at once when it is told to.
#[must_use]
pub fn restricted(cluster: &Cluster, name: &str, script: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "automountServiceAccountToken": false,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "securityContext": {
                "runAsNonRoot": true,
                "runAsUser": 1000,
                "runAsGroup": 1000,
                "fsGroup": 1000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "volumes": [],
            "containers": [{
                "name": "main",
                "image": cluster.image(),
                "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", script],
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
                "volumeMounts": [],
            }],
        },
    })
}

/// Adds a volume and where the container sees it.
///
/// # Panics
/// Where this is no Pod of [`restricted`].
pub fn mount(pod: &mut Value, name: &str, source: &Value, path: &str) {
    let mut volume = source.clone();
    volume["name"] = name.into();
    let list = |value: &mut Value, entry: Value| {
        value.as_array_mut().expect("the shape above has lists").push(entry);
    };
    list(&mut pod["spec"]["volumes"], volume);
    list(
        &mut pod["spec"]["containers"][0]["volumeMounts"],
        json!({"name": name, "mountPath": path}),
    );
}
