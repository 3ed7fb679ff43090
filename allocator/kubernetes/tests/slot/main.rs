//! What holds for the objects of every slot of every profile.
//!
//! And a real API server (`conformance/cluster env` names one) takes them, in a namespace that enforces Pod Security *restricted*.

mod admission;
mod hostile;
mod profiles;
mod server;

use std::collections::BTreeSet;

use casemate_kubernetes::resource::WorkerProfile;
use casemate_kubernetes::resource::profile::{Caller, Content, Destination};
use casemate_kubernetes::slot::{
    Claim, Identity, Installation, Slot, Unbuildable, anchor, claim_pod, claim_volume,
    network_policy, pod, secret, volume_claim,
};
use casemate_protocol::ids::{Generation, Incarnation, SessionId, SlotId};
use casemate_protocol::slot::paths;
use casemate_protocol::tls::Certificate;
use proptest::prelude::*;
use serde_json::{Value, json};

const ANCHOR: &str = "11111111-1111-1111-1111-111111111111";

fn installation(namespace: &str) -> Installation {
    let labels = |name: &str, value: &str| [(name.to_owned(), value.to_owned())].into();
    let dns: Destination = serde_json::from_value(json!({
        "namespaces": {"kubernetes.io/metadata.name": "kube-system"},
        "pods": {"k8s-app": "kube-dns"},
        "ports": [{"port": 53, "protocol": "UDP"}, {"port": 53}],
    }))
    .expect("a destination");
    Installation {
        id: "i-1".to_owned(),
        namespace: namespace.to_owned(),
        own: vec![Caller { namespaces: None, pods: labels("app", "casemate-allocator") }],
        dns: vec![dns],
        cluster: vec!["203.0.113.0/24".parse().expect("a range")],
    }
}

fn claim() -> Claim {
    Claim {
        session: SessionId::random(),
        object: "k-aaaaaaaaaaaaaaaaaaaaaaaaaa".to_owned(),
        key: "0123456789abcdef".repeat(4),
        incarnation: Incarnation(3),
        generation: Generation(7),
    }
}

/// All objects of a slot, as JSON.
struct Objects {
    slot: SlotId,
    anchor: Value,
    secret: Value,
    policy: Value,
    volume: Option<Value>,
    pod: Value,
}

fn objects(
    profile: &WorkerProfile,
    namespace: &str,
    claim: Option<&Claim>,
) -> Result<Objects, Unbuildable> {
    let name = SlotId::random();
    let installation = installation(namespace);
    let slot = Slot { name: &name, profile, installation: &installation };
    let certificate = Certificate { chain: "chain".into(), key: "the-private-key".into() };
    let identity = Identity { certificate, authority: "authority".into(), config: "{}".into() };
    let json = |value: Result<Value, _>| value.expect("objects are JSON");
    Ok(Objects {
        anchor: json(serde_json::to_value(anchor(slot, None)?)),
        secret: json(serde_json::to_value(secret(slot, ANCHOR, &identity))),
        policy: json(serde_json::to_value(network_policy(slot, ANCHOR)?)),
        volume: volume_claim(slot, claim).map(|volume| json(serde_json::to_value(volume))),
        pod: json(serde_json::to_value(pod(slot, ANCHOR, "authority", claim)?)),
        slot: name,
    })
}

fn list<'a>(value: &'a Value, path: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(path).and_then(Value::as_array).into_iter().flatten()
}

/// What Pod Security *restricted* demands (Kubernetes documentation, "Pod Security Standards"), and more.
fn check_pod(pod: &Value, slot: &SlotId) {
    let spec = &pod["spec"];
    assert_eq!(spec["serviceAccountName"], slot.as_str());
    assert_eq!(spec["automountServiceAccountToken"], false);
    assert_eq!(spec["enableServiceLinks"], false);
    assert_eq!(spec["restartPolicy"], "Never");
    assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
    assert_eq!(spec["securityContext"]["seccompProfile"], json!({"type": "RuntimeDefault"}));
    assert_ne!(spec["securityContext"]["runAsUser"], 0);
    for never in [
        "hostNetwork",
        "hostPID",
        "hostIPC",
        "hostname",
        "nodeName",
        "ephemeralContainers",
        "shareProcessNamespace",
        "activeDeadlineSeconds",
        "hostAliases",
        "resourceClaims",
    ] {
        assert!(spec.get(never).is_none(), "{never}");
    }
    let containers: Vec<_> =
        list(spec, "/containers").chain(list(spec, "/initContainers")).collect();
    for container in &containers {
        let security = &container["securityContext"];
        assert_eq!(security["allowPrivilegeEscalation"], false);
        assert_eq!(security["privileged"], false);
        assert_eq!(security["readOnlyRootFilesystem"], true);
        assert_eq!(security["capabilities"], json!({"drop": ["ALL"]}));
        for limit in ["memory", "ephemeral-storage"] {
            assert!(container["resources"]["limits"].get(limit).is_some(), "{limit}");
        }
        assert!(container.get("envFrom").is_none());
        for variable in list(container, "/env") {
            assert!(variable.pointer("/valueFrom/secretKeyRef").is_none(), "{variable}");
        }
        for port in list(container, "/ports") {
            assert!(port.get("hostPort").is_none());
        }
    }
    check_volumes(spec, &containers);
}

fn check_volumes(spec: &Value, containers: &[&Value]) {
    let mut names = BTreeSet::new();
    for volume in list(spec, "/volumes") {
        let kinds: Vec<_> =
            volume.as_object().expect("an object").keys().filter(|key| *key != "name").collect();
        let kind = kinds[0].as_str();
        assert_eq!(kinds.len(), 1, "{volume}");
        assert!(
            ["emptyDir", "persistentVolumeClaim", "secret", "configMap", "image"].contains(&kind),
            "{volume}"
        );
        if kind == "emptyDir" {
            assert!(volume["emptyDir"].get("sizeLimit").is_some(), "{volume}");
        }
        assert!(names.insert(volume["name"].as_str().expect("text")), "{volume}");
    }
    let worker = containers[0];
    let mut places = BTreeSet::new();
    for mount in list(worker, "/volumeMounts") {
        let name = mount["name"].as_str().expect("text");
        assert!(names.contains(name), "{mount}");
        assert!(places.insert(mount["mountPath"].as_str().expect("text")), "{mount}");
        assert!(mount.get("mountPropagation").is_none() && mount.get("subPathExpr").is_none());
        let written = name == "session" || name.starts_with("shared-");
        assert!(written || mount["readOnly"] == true, "{mount}");
    }
    // Each volume has its place, and each part of the session's.
    for (part, place) in paths::PARTS {
        let is_it = |mount: &&Value| mount["mountPath"] == place;
        let mount = list(worker, "/volumeMounts").find(is_it).expect("each part has its place");
        let sub_path = mount["subPath"].as_str().expect("a part");
        assert!(mount["name"] == "session" && sub_path.ends_with(part), "{mount}");
    }
    assert_eq!(places.len(), names.len() - 1 + paths::PARTS.len());
}

fn check_owners(objects: &Objects) {
    for owned in [&objects.secret, &objects.policy, &objects.pod, &objects.anchor] {
        let owners: Vec<_> = list(owned, "/metadata/ownerReferences").collect();
        assert_eq!(owners.len(), 1, "{owned}");
        assert_eq!(owners[0]["controller"], true, "kubectl drain evicts what has a controller");
        assert!(owners[0].get("blockOwnerDeletion").is_none());
    }
    for owned in [&objects.secret, &objects.policy, &objects.pod] {
        let owner = &owned["metadata"]["ownerReferences"][0];
        assert_eq!((&owner["kind"], &owner["uid"]), (&json!("ServiceAccount"), &json!(ANCHOR)));
        assert_eq!(owner["name"], objects.slot.as_str());
    }
    if let Some(volume) = &objects.volume {
        assert!(
            volume["metadata"].get("ownerReferences").is_none(),
            "a volume outlives all of them"
        );
        assert_eq!(
            volume["metadata"]["annotations"]["casemate.dev/made-by"],
            format!("i-1/{}", objects.slot)
        );
    }
}

fn check_network(policy: &Value, slot: &SlotId) {
    let spec = &policy["spec"];
    assert_eq!(spec["podSelector"], json!({"matchLabels": {"casemate.dev/slot": slot.as_str()}}));
    assert_eq!(spec["policyTypes"], json!(["Ingress", "Egress"]));
    for rule in list(spec, "/ingress") {
        assert_eq!(rule["ports"], json!([{"port": 8443, "protocol": "TCP"}]));
        assert!(list(rule, "/from").count() > 0, "a rule without a peer is open to all");
        for peer in list(rule, "/from") {
            let labels = peer.pointer("/podSelector/matchLabels").and_then(Value::as_object);
            assert!(labels.is_some_and(|labels| !labels.is_empty()), "{peer}");
        }
    }
    for rule in list(spec, "/egress") {
        assert!(list(rule, "/to").count() > 0, "a rule without a peer reaches all");
        for peer in list(rule, "/to") {
            assert!(peer.as_object().is_some_and(|peer| !peer.is_empty()));
            // Whatever is reached as "public" leaves out the metadata service and the cluster's own.
            if peer.pointer("/ipBlock/cidr") == Some(&json!("0.0.0.0/0"))
                && peer["ipBlock"].get("except").is_some()
            {
                let except: Vec<_> = list(peer, "/ipBlock/except").collect();
                for range in ["169.254.0.0/16", "10.0.0.0/8", "203.0.113.0/24"] {
                    assert!(except.contains(&&json!(range)), "{range}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_slot_of_every_profile(profile in profiles::profile()) {
        let objects = match objects(&profile, "agents", None) {
            Ok(objects) => objects,
            Err(error) => {
                let copied = |content: Option<&Content>| matches!(content, Some(Content::CopiedImage { .. }));
                let spec = &profile.spec;
                let copied_image = matches!(error, Unbuildable::CopiedImage { .. });
                prop_assert!(copied_image);
                prop_assert!(copied(spec.home.template.as_ref()) || copied(spec.home.baseline.as_ref()) || copied(spec.skills.as_ref().map(|skills| &skills.content)));
                return Ok(());
            }
        };
        check_pod(&objects.pod, &objects.slot);
        check_owners(&objects);
        check_network(&objects.policy, &objects.slot);
        for object in [&objects.anchor, &objects.secret, &objects.policy, &objects.pod].into_iter().chain(&objects.volume) {
            prop_assert_eq!(&object["metadata"]["name"], objects.slot.as_str());
            prop_assert_eq!(&object["metadata"]["labels"]["casemate.dev/slot"], objects.slot.as_str());
        }
        prop_assert!(!objects.pod.to_string().contains("the-private-key"));
    }

    #[test]
    fn nothing_of_a_session_is_in_a_pods_spec(profile in profiles::profile()) {
        let claim = claim();
        let (Ok(warm), Ok(cold)) = (objects(&profile, "agents", None), objects(&profile, "agents", Some(&claim))) else {
            return Ok(());
        };
        let plain = |objects: &Objects| objects.pod["spec"].to_string().replace(objects.slot.as_str(), "SLOT");
        prop_assert_eq!(plain(&warm), plain(&cold));
        prop_assert_eq!(&cold.pod["metadata"]["annotations"]["casemate.dev/session"], claim.session.as_str());
        prop_assert!(warm.pod["metadata"]["annotations"].get("casemate.dev/session").is_none());
        if let Some(volume) = &cold.volume {
            prop_assert_eq!(&volume["metadata"]["annotations"]["casemate.dev/key"], claim.key.as_str());
            prop_assert_eq!(&volume["metadata"]["labels"]["casemate.dev/session"], claim.object.as_str());
        }
    }
}

#[test]
fn a_claim_names_the_object_that_was_looked_at() {
    let claim = claim();
    for patch in [claim_pod("u", "5", &claim), claim_volume("u", "5", &claim)] {
        assert_eq!(
            (&patch["metadata"]["uid"], &patch["metadata"]["resourceVersion"]),
            (&json!("u"), &json!("5"))
        );
        assert_eq!(patch["metadata"]["annotations"]["casemate.dev/incarnation"], "3");
        assert_eq!(
            patch.as_object().expect("an object").len(),
            1,
            "a claim changes nothing but metadata"
        );
    }
}

#[test]
fn whoever_has_no_labels_is_no_caller() {
    let profile = profiles::profile();
    let profile = proptest::strategy::Strategy::new_tree(
        &profile,
        &mut proptest::test_runner::TestRunner::deterministic(),
    );
    let profile = proptest::strategy::ValueTree::current(&profile.expect("a profile"));
    let name = SlotId::random();
    let mut installation = installation("agents");
    installation.own.push(Caller { namespaces: None, pods: [].into() });
    let slot = Slot { name: &name, profile: &profile, installation: &installation };
    assert_eq!(network_policy(slot, ANCHOR).unwrap_err(), Unbuildable::OpenCaller);
}
