//! Pod Security, the node's authority, and policies over what is written.

use casemate_cluster::{Cluster, Namespace, pod};
use serde_json::json;

#[test]
fn a_restricted_pod_is_admitted_and_has_no_privilege() {
    let Some(cluster) = Cluster::of_environment() else { return };
    let namespace = Namespace::new(&cluster, "restricted");
    namespace.run(&pod::restricted(&cluster, "plain", "exec sleep 600"));
    let status = namespace.exec("plain", &["cat", "/proc/self/status"]);
    let field = |name: &str| {
        let line = status.out.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name} in {status:?}")).trim().to_owned()
    };
    assert_eq!(field("Uid:"), "1000\t1000\t1000\t1000");
    assert_eq!(field("CapEff:"), "0000000000000000");
    assert_eq!(field("CapBnd:"), "0000000000000000");
    assert_eq!(field("NoNewPrivs:"), "1");
    assert_eq!(field("Seccomp:"), "2");
    let token = namespace.exec("plain", &["ls", "/var/run/secrets/kubernetes.io"]);
    assert!(!token.success && token.err.contains("No such file or directory"), "{token:?}");
}

#[test]
fn what_restricted_forbids_is_refused_by_its_name() {
    let Some(cluster) = Cluster::of_environment() else { return };
    let namespace = Namespace::new(&cluster, "refused");
    let mut host_path = pod::restricted(&cluster, "host-path", "exec sleep 600");
    pod::mount(&mut host_path, "host", &json!({"hostPath": {"path": "/etc"}}), "/host");
    let mut root = pod::restricted(&cluster, "root", "exec sleep 600");
    root["spec"]["securityContext"]["runAsUser"] = 0.into();
    root["spec"]["securityContext"]["runAsNonRoot"] = false.into();
    let mut network = pod::restricted(&cluster, "host-network", "exec sleep 600");
    network["spec"]["hostNetwork"] = true.into();
    let mut privileged = pod::restricted(&cluster, "privileged", "exec sleep 600");
    privileged["spec"]["containers"][0]["securityContext"] = json!({"privileged": true});
    for (pod, words) in [
        (host_path, "restricted volume types"),
        (root, "runAsUser=0"),
        (network, "host namespaces"),
        (privileged, "privileged"),
    ] {
        let said = namespace.create(&pod);
        assert!(!said.success && said.err.contains(words), "{words}: {said:?}");
        assert!(said.err.contains("violates PodSecurity"), "{said:?}");
    }
    assert_eq!(namespace.must(&["get", "pods", "--output", "name"], ""), "");
}

/// ValidatingAdmissionPolicy is what keeps an allocator's own token from more than it needs.
#[test]
fn an_admission_policy_denies_what_its_expression_denies() {
    let Some(cluster) = Cluster::of_environment() else { return };
    let namespace = Namespace::new(&cluster, "policy");
    let name = namespace.name();
    let policy = json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]},
                ]},
                "validations": [{"expression": "object.metadata.name != 'forbidden'", "message": "not by that name"}],
            },
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {
                "policyName": name,
                "validationActions": ["Deny"],
                "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}},
            },
        },
    ]});
    let _ = cluster.must(&["create", "--filename", "-"], &policy.to_string());
    // A policy holds from the moment that the API server has compiled it.
    let map =
        |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let denied = casemate_suite::processes::until(std::time::Duration::from_secs(30), || {
        let said = namespace.create(&map("forbidden"));
        let _ = namespace.kubectl(&["delete", "configmap", "forbidden", "--ignore-not-found"], "");
        (!said.success).then_some(said.err)
    });
    let other = namespace.create(&map("allowed"));
    let kinds = "validatingadmissionpolicies,validatingadmissionpolicybindings";
    let _ = cluster.must(&["delete", kinds, name], "");
    assert!(denied.as_ref().is_some_and(|words| words.contains("not by that name")), "{denied:?}");
    assert!(other.success, "{other:?}");
}
