//! Pods of two nodes.

use std::time::Duration;

use casemate_cluster::{Cluster, Namespace, pod};
use casemate_suite::processes::until;
use casemate_suite::skip::skip;

use crate::web;

#[test]
fn pods_of_two_nodes_reach_each_other() {
    let Some(cluster) = Cluster::of_environment() else { return };
    let nodes = cluster.ready_nodes();
    let [first, second, ..] = &nodes[..] else {
        skip("a second node of the Kubernetes cluster (conformance/cluster up --nodes 2)");
        return;
    };
    let namespace = Namespace::new(&cluster, "nodes");
    let on = |node: &str, name: &str, script: &str| {
        let mut pod = pod::restricted(&cluster, name, script);
        pod["spec"]["nodeSelector"] = serde_json::json!({"kubernetes.io/hostname": node});
        namespace.run(&pod);
    };
    on(first, "here", "exec sleep 600");
    on(second, "there", web::SERVER);
    let address = namespace.address("there");
    let ask = || web::get(&namespace, "here", &address, 8080);
    let answered = until(Duration::from_secs(30), || web::served(&ask()).then_some(()));
    assert!(answered.is_some(), "{:?}", ask());
}
