//! That a NetworkPolicy is more than an object.

use std::time::Duration;

use casemate_cluster::{Cluster, Namespace, pod};
use casemate_suite::processes::until;
use serde_json::json;

use crate::web;

/// A server and a client that may wait.
fn pair(cluster: &Cluster, purpose: &str) -> Namespace {
    let namespace = Namespace::new(cluster, purpose);
    namespace.run(&pod::restricted(cluster, "server", web::SERVER));
    namespace.run(&pod::restricted(cluster, "client", "exec sleep 600"));
    namespace
}

fn assert_served(namespace: &Namespace, address: &str, port: u16) {
    let ask = || web::get(namespace, "client", address, port);
    let answered = until(Duration::from_secs(30), || web::served(&ask()).then_some(()));
    assert!(answered.is_some(), "{:?}", ask());
}

#[test]
fn deny_all_refuses_a_connection_between_pods_and_its_deletion_lets_it_through() {
    let Some(cluster) = Cluster::of_environment() else { return };
    let namespace = pair(&cluster, "network");
    let address = namespace.address("server");
    assert_served(&namespace, &address, 8080);

    let policy = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "deny-all"},
        "spec": {"podSelector": {"matchLabels": {"app": "server"}}, "policyTypes": ["Ingress"]},
    });
    assert!(namespace.create(&policy).success);
    let refused = until(Duration::from_secs(30), || {
        let said = web::get(&namespace, "client", &address, 8080);
        (!said.success).then_some(said)
    });
    let refused = refused.expect("the policy is enforced within 30 s");
    // ECONNREFUSED where what enforces it answers, ETIMEDOUT where it drops.
    let words = ["Connection refused", "timed out"];
    assert!(words.iter().any(|words| refused.err.contains(words)), "{refused:?}");

    let _ = namespace.must(&["delete", "networkpolicy", "deny-all"], "");
    assert_served(&namespace, &address, 8080);
}

#[test]
fn a_service_leads_to_its_pod() {
    let Some(cluster) = Cluster::of_environment() else { return };
    let namespace = pair(&cluster, "service");
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "server"},
        "spec": {"selector": {"app": "server"}, "ports": [{"port": 80, "targetPort": 8080}]},
    });
    assert!(namespace.create(&service).success);
    let template = "jsonpath={.spec.clusterIP}";
    let address = namespace.must(&["get", "service", "server", "--output", template], "");
    assert_served(&namespace, &address, 80);
}

/// As a chat's side finds an allocator: by the name of its Service.
#[test]
fn a_service_is_found_by_its_name() {
    let Some(cluster) = Cluster::of_environment() else { return };
    let namespace = pair(&cluster, "names");
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "server"},
        "spec": {"selector": {"app": "server"}, "ports": [{"port": 80, "targetPort": 8080}]},
    });
    assert!(namespace.create(&service).success);
    let address =
        namespace.must(&["get", "service", "server", "--output", "jsonpath={.spec.clusterIP}"], "");
    let name = format!("server.{}.svc.cluster.local", namespace.name());
    let found = until(Duration::from_secs(60), || {
        let said = namespace.exec("client", &["nslookup", "-type=a", &name]);
        said.out.contains(&format!("Address: {address}\n")).then_some(())
    });
    assert!(found.is_some(), "{:?}", namespace.exec("client", &["nslookup", "-type=a", &name]));
    let unknown = namespace.exec("client", &["nslookup", "-type=a", &format!("no-{name}")]);
    assert!(unknown.out.contains("NXDOMAIN"), "{unknown:?}");
}
