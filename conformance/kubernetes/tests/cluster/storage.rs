//! Volumes as a real class of storage gives them.

use std::time::Duration;

use casemate_cluster::{Cluster, Namespace, pod};
use casemate_suite::processes::until;
use serde_json::{Value, json};

fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOncePod"], "resources": {"requests": {"storage": "1Gi"}}},
    })
}

fn with_claim(cluster: &Cluster, name: &str, script: &str) -> Value {
    let mut pod = pod::restricted(cluster, name, script);
    pod::mount(&mut pod, "work", &json!({"persistentVolumeClaim": {"claimName": "work"}}), "/work");
    pod
}

#[test]
fn a_claim_is_writable_by_the_pods_group_and_outlives_the_pod() {
    let Some(cluster) = Cluster::of_environment() else { return };
    let namespace = Namespace::new(&cluster, "claim");
    assert!(namespace.create(&claim("work")).success);
    let write = "stat -c '%g %a' /work && echo kept >/work/file && exec sleep 600";
    namespace.run(&with_claim(&cluster, "writer", write));
    let seen = until(Duration::from_secs(20), || {
        Some(namespace.must(&["logs", "writer"], "")).filter(|text| !text.is_empty())
    });
    let seen = seen.unwrap();
    let (group, mode) = seen.trim().split_once(' ').unwrap();
    assert_eq!(group, "1000", "fsGroup was not applied: {seen}");
    let mode = u32::from_str_radix(mode, 8).unwrap();
    assert_eq!(mode & 0o020, 0o020, "the group may not write: {seen}");
    let _ = namespace.must(&["delete", "pod", "writer"], "");
    namespace.run(&with_claim(&cluster, "reader", "cat /work/file && exec sleep 600"));
    let kept = until(Duration::from_secs(20), || {
        namespace.must(&["logs", "reader"], "").contains("kept").then_some(())
    });
    assert!(kept.is_some());
}

#[test]
fn a_second_pod_of_a_claim_waits_until_the_first_is_gone() {
    let Some(cluster) = Cluster::of_environment() else { return };
    let namespace = Namespace::new(&cluster, "once");
    assert!(namespace.create(&claim("work")).success);
    namespace.run(&with_claim(&cluster, "first", "exec sleep 600"));
    assert!(namespace.create(&with_claim(&cluster, "second", "exec sleep 600")).success);
    let template = "jsonpath={.status.conditions[?(@.type=='PodScheduled')].message}";
    let why = until(Duration::from_secs(30), || {
        let words = namespace.must(&["get", "pod", "second", "--output", template], "");
        words.contains("ReadWriteOncePod").then_some(words)
    });
    assert!(why.is_some(), "{}", namespace.must(&["describe", "pod", "second"], ""));
    let _ = namespace.must(&["delete", "pod", "first"], "");
    let _ = namespace.must(&["wait", "--for=condition=Ready", "--timeout=60s", "pod/second"], "");
}

/// A node says how much disk Pods may fill, and holds them to it.
#[test]
fn a_pod_gets_the_disk_that_it_asked_for_and_is_evicted_where_it_takes_more() {
    let Some(cluster) = Cluster::of_environment() else { return };
    let namespace = Namespace::new(&cluster, "disk");
    let mut modest = pod::restricted(&cluster, "modest", "exec sleep 600");
    let disk = json!({"ephemeral-storage": "16Mi"});
    modest["spec"]["containers"][0]["resources"] = json!({"requests": disk, "limits": disk});
    let mut greedy = modest.clone();
    greedy["metadata"]["name"] = "greedy".into();
    let fill = "dd if=/dev/zero of=/tmp/file bs=1M count=64 && exec sleep 600";
    greedy["spec"]["containers"][0]["command"] = json!(["sh", "-c", fill]);
    namespace.run(&modest);
    assert!(namespace.create(&greedy).success);
    let reason =
        || namespace.must(&["get", "pod", "greedy", "--output", "jsonpath={.status.reason}"], "");
    let evicted = until(Duration::from_secs(90), || (reason() == "Evicted").then_some(()));
    assert!(evicted.is_some(), "{}", namespace.must(&["describe", "pod", "greedy"], ""));
    let _ = namespace.must(&["wait", "--for=condition=Ready", "--timeout=5s", "pod/modest"], "");
}
