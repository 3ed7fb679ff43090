//! What the chart's admission policies leave an allocator's ServiceAccount, and somebody who took it over: slots as they are
//! built, and nothing hostile, though it is given every right in the namespace and that admits privileged Pods.

use std::time::Duration;

use casemate_cluster::{Cluster, Helm, Namespace, Said, until};
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::hostile::{Attempt, attempts};
use crate::{Objects, objects, profiles};

/// What all of the chart's values for these tests have in common: the words that random profiles use.
const ALLOWED: &str =
    "workers.credentials={s},workers.claims={theirs,shared},workers.pullSecrets={pull}";

/// A namespace with the chart's policies over its allocator, which may do everything else there.
struct Scene<'a> {
    cluster: &'a Cluster,
    namespace: Namespace,
    policies: String,
    rights: Value,
}

impl<'a> Scene<'a> {
    fn new(cluster: &'a Cluster) -> Option<Self> {
        let helm = cluster.helm()?;
        let namespace = Namespace::new(cluster, "policies");
        let name = namespace.name().to_owned();
        // Else Pod Security would refuse most of it, and would be what is tested.
        let open = [
            "label",
            "namespace",
            &name,
            "--overwrite",
            "pod-security.kubernetes.io/enforce=privileged",
        ];
        let _ = cluster.must(&open, "");
        let chart = Helm::chart();
        let mut words = vec!["template", "casemate", chart.to_str()?, "--namespace", &name];
        words.extend(["--set", ALLOWED, "--set", "namespaced.create=false"]);
        let all = helm.must(&words, "");
        let policies = all
            .split("\n---\n")
            .filter(|object| object.contains("kind: ValidatingAdmissionPolicy"));
        let policies = policies.collect::<Vec<_>>().join("\n---\n");
        let rights = json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "casemate-allocator", "namespace": name}},
            {
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"kind": "ServiceAccount", "name": "casemate-allocator", "namespace": name}],
            },
        ]});
        let scene = Self { cluster, namespace, policies, rights };
        let _ = cluster.must(&["create", "--filename", "-"], &scene.rights.to_string());
        let _ = cluster.must(&["create", "--filename", "-"], &scene.policies);
        Some(scene)
    }

    /// kubectl as the allocator. What the network lost on a busy machine is asked again: nothing is kept.
    fn ask(&self, arguments: &[&str], stdin: &str) -> Said {
        let user =
            format!("--as=system:serviceaccount:{}:casemate-allocator", self.namespace.name());
        let arguments = [arguments, &[&user]].concat();
        let lost = |said: &Said| {
            ["http2:", "net/http:", "dial tcp"].iter().any(|part| said.err.contains(part))
        };
        let mut said = self.namespace.kubectl(&arguments, stdin);
        for _ in 0..3 {
            if said.success || !lost(&said) {
                break;
            }
            said = self.namespace.kubectl(&arguments, stdin);
        }
        said
    }

    /// Whether the server would do what an attempt asks for.
    fn tried(&self, attempt: &Attempt) -> Said {
        let arguments: Vec<_> = attempt.arguments.iter().map(String::as_str).collect();
        self.ask(&arguments, &attempt.object.as_ref().map(Value::to_string).unwrap_or_default())
    }

    /// Policies hold, or do not, from when the API server has read them.
    fn wait_until(&self, denied: bool, attempt: &Attempt) {
        let seen = until(Duration::from_secs(60), || {
            (self.tried(attempt).success != denied).then_some(())
        });
        assert!(seen.is_some(), "denied is not {denied}: {:?}", self.tried(attempt));
    }
}

impl Drop for Scene<'_> {
    fn drop(&mut self) {
        let gone = ["delete", "--ignore-not-found", "--filename", "-"];
        for objects in [&self.policies, &self.rights.to_string()] {
            let said = self.cluster.kubectl(&gone, objects);
            if !said.success {
                eprintln!("the policies of {} stay: {}", self.namespace.name(), said.err);
            }
        }
    }
}

/// A slot of a plain profile, and objects in the namespace that are not the allocator's to touch.
fn slot(scene: &Scene<'_>) -> Objects {
    let profile = json!({
        "apiVersion": "casemate.dev/v1alpha1", "kind": "WorkerProfile",
        "metadata": {"name": "p", "namespace": scene.namespace.name(), "uid": "22222222-2222-2222-2222-222222222222", "generation": 1},
        "spec": {
            "image": {"reference": scene.cluster.image()}, "agent": {"name": "agent", "command": ["agent"]},
            "resources": {"limits": {"memory": "64Mi", "ephemeral-storage": "64Mi"}}, "storage": {"new": {"size": "1Gi"}},
        },
    });
    let profile = serde_json::from_value(profile).expect("a profile");
    objects(&profile, scene.namespace.name(), None).expect("it can be built")
}

#[test]
fn the_policies_deny_what_is_hostile_and_admit_slots() {
    let Some(cluster) = Cluster::of_environment() else { return };
    let Some(scene) = Scene::new(&cluster) else { return };
    let (mine, next) = (slot(&scene), slot(&scene));
    // What is there: a slot of the allocator's, somebody else's Pod, claim, ServiceAccount and Secret.
    let next_anchor = next.there().swap_remove(0);
    for object in
        mine.there().iter().chain([&next_anchor]).chain(&crate::hostile::foreign(&cluster))
    {
        let said = scene.namespace.create(object);
        assert!(said.success, "{}\n{object:#}", said.err);
    }
    let all = attempts(&mine, &next, scene.namespace.name());
    assert!(all.len() >= 40, "{}", all.len());
    scene.wait_until(true, &all[0]);
    scene.wait_until(true, all.last().expect("some"));
    let mut wrong = Vec::new();
    for attempt in &all {
        let said = scene.tried(attempt);
        let by_policy =
            said.err.contains(&format!("casemate.{}.casemate-allocator.", scene.namespace.name()));
        if said.success || !by_policy || !said.err.contains(attempt.words) {
            wrong.push(format!("{}: not denied by \"{}\": {said:?}", attempt.what, attempt.words));
        }
    }
    for (what, arguments, object) in crate::hostile::lawful(&mine) {
        let said = scene
            .ask(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), &object.to_string());
        if !said.success {
            wrong.push(format!("{what}: denied: {}", said.err));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    // By its own token, as a taken-over allocator would.
    let token = scene.namespace.must(&["create", "token", "casemate-allocator"], "");
    let create =
        ["--namespace", scene.namespace.name(), "create", "--dry-run=server", "--filename", "-"];
    let hostile = all[0].object.as_ref().expect("a Pod").to_string();
    let said = cluster.with_token(token.trim(), &create, &hostile);
    assert!(!said.success && said.err.contains(all[0].words), "{said:?}");

    // Each of them is only denied by the policies.
    let _ = cluster.must(&["delete", "--filename", "-"], &scene.policies);
    scene.wait_until(false, &all[0]);
    scene.wait_until(false, all.last().expect("some"));
    let denied: Vec<_> = all
        .iter()
        .filter_map(|attempt| {
            let said = scene.tried(attempt);
            (!said.success)
                .then(|| format!("{}: denied without the policies: {}", attempt.what, said.err))
        })
        .collect();
    assert!(denied.is_empty(), "{}", denied.join("\n"));
}

#[test]
fn the_policies_admit_slots_of_every_profile() {
    let Some(cluster) = Cluster::of_environment() else { return };
    let Some(scene) = Scene::new(&cluster) else { return };
    let tried = ["create", "--validate=strict", "--dry-run=server", "--filename", "-"];
    // They hold.
    let one = slot(&scene);
    let hostile = attempts(&one, &one, scene.namespace.name()).swap_remove(0);
    assert!(scene.namespace.create(&one.there().swap_remove(0)).success);
    scene.wait_until(true, &hostile);
    let mut runner = TestRunner::deterministic();
    let mut taken = 0;
    while taken < 15 {
        let profile = profiles::profile().new_tree(&mut runner).unwrap().current();
        let Ok(mut all) = objects(&profile, scene.namespace.name(), None) else { continue };
        let said = scene.ask(&tried, &all.anchor.to_string());
        assert!(said.success, "{}", said.err);
        all.anchor["metadata"].as_object_mut().unwrap().remove("ownerReferences").unwrap();
        assert!(scene.namespace.create(&all.anchor).success);
        let items: Vec<_> =
            [&all.secret, &all.policy, &all.pod].into_iter().chain(&all.volume).collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        let said = scene.ask(&tried, &list.to_string());
        assert!(said.success, "{}\n{list:#}", said.err);
        taken += 1;
    }
}
