//! Profiles of all kinds.

use casemate_kubernetes::resource::WorkerProfile;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn content() -> impl Strategy<Value = Value> {
    select(vec![
        json!({"configMap": {"name": "content"}}),
        json!({"configMap": {"name": "content"}}),
        json!({"imageVolume": {"reference": format!("content@{DIGEST}")}}),
        json!({"imageVolume": {"reference": format!("content@{DIGEST}")}}),
        json!({"copiedImage": {"reference": format!("content@{DIGEST}"), "path": "/skills"}}),
    ])
}

fn storage() -> impl Strategy<Value = Value> {
    select(vec![
        json!({"ephemeral": {"size": "1Gi"}}),
        json!({"new": {"size": "10Gi"}}),
        json!({"new": {"size": "10Gi", "class": "fast", "accessMode": "ReadWriteOnce"}}),
        json!({"borrowed": {"claimName": "theirs"}}),
        json!({"borrowed": {"claimName": "theirs", "subPath": "a/b"}}),
    ])
}

fn shared() -> impl Strategy<Value = Value> {
    let one = select(vec![
        json!({"use": "Exclusive"}),
        json!({"use": "ReadOnly"}),
        json!({"use": "Shared", "paths": [{"path": "/", "access": "ReadWrite"}]}),
    ]);
    prop::collection::vec(one, 0..4).prop_map(|all| {
        let all = all.into_iter().enumerate().map(|(number, mut one)| {
            one["name"] = json!(format!("s{number}"));
            one["claimName"] = json!("shared");
            one["mountPath"] = json!(format!("/data/{number}"));
            one["reason"] = json!("test");
            one
        });
        Value::Array(all.collect())
    })
}

fn network() -> impl Strategy<Value = Value> {
    let to = select(vec![
        json!([]),
        json!([{"cidr": "10.1.0.0/16", "ports": [{"port": 443}]}]),
        json!([{"namespaces": {}, "pods": {"app": "mirror"}}, {"cidr": "fd00::/8"}]),
    ]);
    let callers =
        select(vec![json!([]), json!([{"namespaces": {"a": "b"}, "pods": {"app": "openab"}}])]);
    (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), to, callers).prop_map(
        |(dns, open, proxy, authority, to, callers)| {
            let to = if open { json!([]) } else { to };
            let mut network =
                json!({"egress": {"dns": dns, "open": open, "to": to}, "callers": callers});
            if proxy {
                network["proxy"] =
                    json!({"url": "http://proxy:3128", "except": ["a", "10.0.0.0/8"]});
            }
            if authority {
                network["privateCa"] = json!({"name": "ca", "key": "ca.crt"});
            }
            network
        },
    )
}

fn pod() -> impl Strategy<Value = Value> {
    select(vec![
        json!({}),
        json!({"userIds": {"assigned": {}}, "hostUsers": false}),
        json!({"userIds": {"fixed": {"uid": 2000, "gid": 2001}}, "terminationGrace": "2m"}),
    ])
}

fn credentials() -> impl Strategy<Value = Value> {
    let one = select(vec![
        json!({"secret": {"name": "s", "key": "k"}, "for": {"route": {"host": "api.example", "header": "Authorization"}}}),
        json!({"secret": {"name": "s", "key": "k"}, "for": {"git": {"host": "git.example"}}}),
        json!({"secret": {"name": "s", "key": "k"}, "for": {"agentVariable": {"name": "KEY"}}}),
    ]);
    prop::collection::vec(one, 0..3).prop_map(Value::Array)
}

/// Any profile, as read from a cluster.
pub(crate) fn profile() -> impl Strategy<Value = WorkerProfile> {
    let optional = || prop::option::weighted(0.4, content());
    let files = (optional(), optional(), optional(), any::<bool>());
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), "[a-z]{1,6}");
    (storage(), shared(), network(), pod(), credentials(), files, flags).prop_map(
        |(storage, shared, network, pod, credentials, files, flags)| {
            let (skills, template, baseline, policy) = files;
            let (supervisor, placed, requests, word) = flags;
            let mut spec = json!({
                "image": {"reference": format!("worker@{DIGEST}"), "pullSecrets": ["pull"]},
                "agent": {"name": "agent", "command": [word, "$(A) `b`"], "env": {"A": "b"}},
                "resources": {"limits": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "2Gi"}},
                "storage": storage, "shared": shared, "network": network, "pod": pod, "credentials": credentials,
            });
            if let Some(content) = skills {
                spec["skills"] = json!({"content": content});
            }
            for (name, content) in [("template", template), ("baseline", baseline)] {
                if let Some(content) = content {
                    spec["home"][name] = content;
                }
            }
            if policy {
                spec["policy"] = json!({"configMap": {"name": "policy", "revision": DIGEST}});
            }
            if supervisor {
                spec["image"]["supervisor"] = json!(format!("supervisor@{DIGEST}"));
            }
            if placed {
                spec["placement"] = json!({
                    "nodeSelector": {"a": "b"}, "tolerations": [{"key": "gpu", "operator": "Exists"}],
                    "topologySpread": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
                });
            }
            if requests {
                spec["resources"]["requests"] = json!({"cpu": "100m"});
            }
            let profile = json!({
                "apiVersion": "casemate.dev/v1alpha1", "kind": "WorkerProfile", "spec": spec,
                "metadata": {"name": "p", "namespace": "agents", "uid": "22222222-2222-2222-2222-222222222222", "generation": 4},
            });
            serde_json::from_value(profile).expect("a profile")
        },
    )
}
