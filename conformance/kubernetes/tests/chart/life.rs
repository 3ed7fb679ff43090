//! Install, upgrade, rotate, roll back, uninstall, install again. What is the users' stays through all of it.

use std::path::Path;
use std::time::Duration;

use casemate_cluster::{Cluster, Helm, Namespace, until};
use serde_json::json;

use crate::DIGEST;

fn copied(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copied(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The sample profile's.
fn spec() -> String {
    let digest = "0".repeat(64);
    json!({
        "image": {"reference": format!("registry.example/worker@sha256:{digest}")},
        "agent": {"name": "opencode", "command": ["opencode", "acp"]},
        "resources": {"limits": {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "4Gi"}},
        "storage": {"new": {"size": "10Gi"}},
    })
    .to_string()
}

/// A session and its volume, as the allocator leaves them.
fn of_users() -> String {
    let slot = "w-aaaaaaaaaaaaaaaaaaaaaaaaaa";
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": slot, "labels": {"app.kubernetes.io/managed-by": "casemate", "casemate.dev/slot": slot}},
            "spec": {"accessModes": ["ReadWriteOncePod"], "resources": {"requests": {"storage": "1Mi"}}},
        },
        {
            "apiVersion": "casemate.dev/v1alpha1", "kind": "WorkerSession",
            "metadata": {"name": "k-aaaaaaaaaaaaaaaaaaaaaaaaaa"},
            "spec": {
                "key": {"tenant": "t", "agent": "opencode", "platform": "slack", "thread": "1"},
                "incarnation": 1, "session": "s-aaaaaaaaaaaaaaaaaaaaaaaaaa", "generation": 1, "phase": "Asleep",
                "profile": {"name": "default", "uid": "u1", "generation": 1},
                "terms": {"tier": "pod", "sharing": "session", "idle": "30m", "attempts": 3, "reset": {}},
                "volume": {"mode": "New", "claim": slot, "uid": "v1"},
                "served": true,
            },
        },
    ]})
    .to_string()
}

#[test]
fn keys_are_made_once_and_definitions_follow_the_chart() {
    let Some(cluster) = Cluster::of_environment() else { return };
    let Some(helm) = cluster.helm() else { return };
    let namespace = Namespace::new(&cluster, "life");
    let name = namespace.name();
    let chart = Helm::chart();
    let older = tempfile::tempdir().unwrap();
    copied(&chart, older.path());
    let path = older.path().join("files/crds/workersessions.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("    - ws\n"), "another short name is expected");
    std::fs::write(&path, text.replace("    - ws\n", "    - olderws\n")).unwrap();

    let profile = format!("sampleProfile.spec={}", spec());
    let run = |verb: &str, chart: &Path, values: &[&str]| {
        let mut words =
            vec![verb, "casemate", chart.to_str().unwrap(), "--namespace", name, "--set", DIGEST];
        words.extend(["--set-json", &profile]);
        words.extend(values.iter().flat_map(|value| ["--set", value]));
        // Other tests' definitions may be there.
        helm.must(&[&words[..], &["--take-ownership", "--force-conflicts"]].concat(), "")
    };
    let key = |number: u32| {
        let secret = format!("casemate-signing-key-{number}");
        namespace.kubectl(&["get", "secret", &secret, "--output", "jsonpath={.data.seed}"], "")
    };
    let short = || {
        let names = [
            "get",
            "crd",
            "workersessions.casemate.dev",
            "--output",
            "jsonpath={.spec.names.shortNames}",
        ];
        cluster.must(&names, "")
    };

    run("install", older.path(), &[]);
    // Only now are there definitions for a profile of the chart's.
    run("upgrade", older.path(), &["sampleProfile.create=true"]);
    let first = key(1).out;
    assert_eq!(first.len(), 44, "32 bytes in base64: {first}");
    assert!(short().contains("olderws"), "{}", short());
    let _ = namespace.must(&["create", "--filename", "-"], &of_users());
    // Names and UIDs: what was made again would be another. What is going away counts as gone.
    let kept = || {
        let template = "jsonpath={range .items[*]}{.kind} {.metadata.uid} {.metadata.deletionTimestamp}{'\\n'}{end}";
        let kinds = "persistentvolumeclaims,workersessions,workerprofiles";
        namespace.must(&["get", kinds, "--output", template], "")
    };
    let before = kept();
    assert_eq!(before.lines().count(), 3, "{before}");

    run("upgrade", &chart, &["sampleProfile.create=true"]);
    assert_eq!(key(1).out, first, "an upgrade made the key again");
    assert!(!short().contains("olderws"), "{}", short());

    let both = ["signingKeys.known={1,2}", "signingKeys.sign=1"];
    run("upgrade", &chart, &both);
    let second = key(2).out;
    assert!(second.len() == 44 && second != first);
    run("upgrade", &chart, &["signingKeys.known={1,2}", "signingKeys.sign=2"]);
    assert_eq!((key(1).out, key(2).out), (first.clone(), second.clone()));

    let _ = helm.must(&["rollback", "casemate", "1", "--namespace", name, "--force-conflicts"], "");
    assert_eq!((key(1).out, key(2).out), (first.clone(), second.clone()), "a way back lost a key");
    assert!(short().contains("olderws"), "{}", short());

    closed_from_the_first_moment(&cluster, &namespace);

    let _ = helm.must(&["uninstall", "casemate", "--namespace", name], "");
    assert_eq!((key(1).out, key(2).out), (first.clone(), second), "the keys went with the release");
    assert!(!short().is_empty(), "the definitions went with the release");
    assert_eq!(kept(), before, "something of the users' went with the release");
    let left =
        cluster.must(&["get", "validatingadmissionpolicies,clusterroles", "--output", "name"], "");
    assert!(!left.contains(&format!("casemate.{name}.")), "{left}");

    run("install", &chart, &[]);
    assert_eq!(key(1).out, first, "a second installation made the key again");
    let _ = helm.must(&["uninstall", "casemate", "--namespace", name], "");
    assert_eq!(kept(), before);
}

/// A Pod that is labelled as a worker reaches nobody, though no slot's NetworkPolicy is there yet.
fn closed_from_the_first_moment(cluster: &Cluster, namespace: &Namespace) {
    let mut worker = casemate_cluster::pod::restricted(cluster, "worker", "exec sleep 600");
    worker["metadata"]["labels"]["app.kubernetes.io/name"] = "casemate-worker".into();
    let serve =
        "mkdir /tmp/www && echo served >/tmp/www/index.html && exec httpd -f -p 8080 -h /tmp/www";
    namespace.run(&casemate_cluster::pod::restricted(cluster, "server", serve));
    namespace.run(&casemate_cluster::pod::restricted(cluster, "client", "exec sleep 600"));
    namespace.run(&worker);
    let address = namespace.address("server");
    let get = format!("printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 3 {address} 8080");
    let ask = |from: &str| namespace.exec(from, &["sh", "-c", &get]);
    let served =
        until(Duration::from_secs(30), || ask("client").out.contains("served").then_some(()));
    assert!(served.is_some(), "{:?}", ask("client"));
    let refused = until(Duration::from_secs(30), || (!ask("worker").success).then_some(()));
    assert!(refused.is_some(), "a worker without a NetworkPolicy of its own reaches others");
}
