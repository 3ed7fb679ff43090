//! `casemate-supervisor exec` in Pods of an image that knows nothing of it: an init container brings the static file, as
//! docs/exec.md shows.

use std::time::{Duration, Instant};

use casemate_cluster::{Cluster, Namespace, pod};
use casemate_suite::processes::until;
use casemate_suite::skip::skip;
use serde_json::{Value, json};

const DEVELOPER: &str = include_str!("../../../../policies/developer.toml");
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// Where the supervisor's image is to be had, and a namespace to use it in.
struct Scene {
    cluster: Cluster,
    namespace: Namespace,
    image: String,
}

impl Scene {
    fn new(purpose: &str) -> Option<Self> {
        let cluster = Cluster::of_environment()?;
        let image = std::env::var("CASEMATE_SUPERVISOR_IMAGE").unwrap_or_default();
        if image.is_empty() {
            skip(
                "the image of the supervisor on the Kubernetes (CASEMATE_SUPERVISOR_IMAGE; conformance/README.md)",
            );
            return None;
        }
        let namespace = Namespace::new(&cluster, purpose);
        Some(Self { cluster, namespace, image })
    }

    /// The script alone.
    fn bare(&self, name: &str, script: &str) -> Value {
        let mut pod = pod::restricted(&self.cluster, name, script);
        pod::mount(&mut pod, "work", &json!({"emptyDir": {}}), "/work");
        pod::mount(&mut pod, "other", &json!({"emptyDir": {}}), "/other");
        let container = &mut pod["spec"]["containers"][0];
        container["env"] = json!([{"name": "SENTINEL", "value": "of-the-pod-alone"}]);
        pod
    }

    /// The script behind the walls of a policy, its supervisor PID 1.
    fn walled(&self, name: &str, options: &[&str], script: &str) -> Value {
        let mut pod = self.bare(name, script);
        pod::mount(&mut pod, "casemate", &json!({"emptyDir": {}}), "/casemate-bin");
        let container = &mut pod["spec"]["containers"][0];
        let init = json!([{
            "name": "casemate",
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["casemate-supervisor", "install", "/casemate-bin"],
            "securityContext": container["securityContext"],
            "volumeMounts": [{"name": "casemate", "mountPath": "/casemate-bin"}],
        }]);
        for mount in container["volumeMounts"].as_array_mut().unwrap() {
            if mount["name"] == "casemate" {
                mount["readOnly"] = true.into();
            }
        }
        let places = ["exec", "--work", "/work", "--home", "/work"];
        let program = ["/casemate-bin/casemate-supervisor"];
        let command = [&program[..], &places, options, &["--", "sh", "-c", script]].concat();
        container["command"] = json!(command);
        pod["spec"]["initContainers"] = init;
        pod
    }

    /// Runs to its end: exit code and what it said.
    fn run(&self, pod: &Value) -> (i32, String) {
        let said = self.namespace.create(pod);
        assert!(said.success, "{}", said.err);
        let name = pod["metadata"]["name"].as_str().unwrap();
        let code = self.namespace.exit_code(name);
        (code, self.namespace.must(&["logs", name], ""))
    }
}

/// Tries what an agent might; a line for each: name, exit code, words.
const ATTACKS: &str = r#"
try() { name=$1; shift; said=$("$@" 2>&1); echo "$name: $? $said"; }
try write sh -c 'echo planted >/other/file && echo done'
try environ sh -c 'tr "\0" "\n" </proc/1/environ | grep SENTINEL'
try variable sh -c 'echo "is ${SENTINEL-unset}"'
try signal sh -c 'kill -9 1 && echo sent'
try connect nc -w 3 127.0.0.1 9
try listen timeout 1 nc -l -p 9000
try work sh -c 'echo mine >/work/file && cat /work/file'
"#;

#[test]
fn attacks_in_a_pod_are_refused_with_their_errno_and_succeed_without_the_wall() {
    let Some(scene) = Scene::new("exec") else { return };
    let (code, open) = scene.run(&scene.bare("open", ATTACKS));
    assert_eq!(code, 0, "{open}");
    let (code, closed) = scene.run(&scene.walled("closed", &[], ATTACKS));
    assert_eq!(code, 0, "{closed}");
    for (name, without, with) in [
        ("write", "done", "Permission denied"),
        ("environ", "SENTINEL=of-the-pod-alone", "Permission denied"),
        ("variable", "is of-the-pod-alone", "is unset"),
        ("signal", "sent", "Operation not permitted"),
        ("connect", "Connection refused", "Permission denied"),
        // 143: it listened until its time was over.
        ("listen", "143", "Permission denied"),
        ("work", "mine", "mine"),
    ] {
        let line = |text: &str| {
            let found = text.lines().find(|line| line.starts_with(&format!("{name}: ")));
            found.unwrap_or_else(|| panic!("{name}: {text}")).to_owned()
        };
        assert!(line(&open).contains(without), "without a wall: {}", line(&open));
        assert!(line(&closed).contains(with), "behind the wall: {}", line(&closed));
    }
}

#[test]
fn exit_codes_and_signals_arrive() {
    let Some(scene) = Scene::new("ends") else { return };
    assert_eq!(scene.run(&scene.walled("seven", &[], "exit 7")).0, 7);

    let script = "trap 'echo told; exit 42' TERM; echo ready; while :; do sleep 0.1; done";
    let ready = |name: &str| {
        let said = until(Duration::from_secs(60), || {
            let logs = scene.namespace.kubectl(&["logs", name], "").out;
            logs.contains("ready").then_some(())
        });
        assert!(said.is_some(), "{}", scene.namespace.must(&["describe", "pod", name], ""));
    };
    assert!(scene.namespace.create(&scene.walled("signalled", &[], script)).success);
    ready("signalled");
    // Who sends it may be ended with the container before it is done.
    let sent = scene.namespace.exec("signalled", &["kill", "-TERM", "1"]);
    assert_eq!(scene.namespace.exit_code("signalled"), 42, "{sent:?}");
    assert!(scene.namespace.must(&["logs", "signalled"], "").contains("told"));

    // The kubelet's own TERM: long before it would kill.
    let mut deleted = scene.walled("deleted", &[], script);
    deleted["spec"]["terminationGracePeriodSeconds"] = 120.into();
    assert!(scene.namespace.create(&deleted).success);
    ready("deleted");
    let begun = Instant::now();
    let _ = scene.namespace.must(&["delete", "pod", "deleted", "--timeout=60s"], "");
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_mounted_token_is_closed_and_no_policy_opens_it_or_a_secret() {
    let Some(scene) = Scene::new("token") else { return };
    let with = |path: &str| {
        let rule = format!("\n[[path]]\npath = \"{path}\"\naccess = [\"read\"]\nreason = \"r\"\n");
        format!("{DEVELOPER}{rule}")
    };
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "stringData": {"key": "sentinel"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "policies"}, "data": {
            "token.toml": with("/var/run/secrets/kubernetes.io"),
            "above-token.toml": with("/var"),
            "secret.toml": with("/srv/key"),
            "above.toml": with("/srv"),
            "file.toml": with("/single"),
        }},
    ]});
    assert!(scene.namespace.create(&objects).success);
    let script = format!(
        "for f in {TOKEN} /srv/key/key /single; do cat $f >/dev/null && echo read $f; done; exit 0"
    );
    let in_pod = |mut pod: Value| {
        pod["spec"]["automountServiceAccountToken"] = true.into();
        pod::mount(&mut pod, "policies", &json!({"configMap": {"name": "policies"}}), "/policies");
        pod::mount(&mut pod, "key", &json!({"secret": {"secretName": "key"}}), "/srv/key");
        let mounts = pod["spec"]["containers"][0]["volumeMounts"].as_array_mut().unwrap();
        mounts.push(json!({"name": "key", "mountPath": "/single", "subPath": "key"}));
        scene.run(&pod)
    };
    let read = |said: &str| said.matches("read /").count();
    let denied = |said: &str| said.matches("Permission denied").count();

    let (code, said) = in_pod(scene.bare("bare", &script));
    assert_eq!((code, read(&said)), (0, 3), "they are there to be read: {said}");
    let (code, said) = in_pod(scene.walled("default", &[], &script));
    assert_eq!((code, read(&said), denied(&said)), (0, 0, 3), "{said}");
    for (name, words) in [
        ("token", "/var/run/secrets"),
        ("above-token", "/var/run/secrets"),
        ("secret", "where secrets are mounted"),
        ("above", "where secrets are mounted"),
        ("file", "where secrets are mounted"),
    ] {
        let policy = format!("/policies/{name}.toml");
        let (code, said) = in_pod(scene.walled(name, &["--policy", &policy], &script));
        assert_eq!((code, read(&said)), (65, 0), "{name}: {said}");
        assert!(said.contains(words), "{name}: {said}");
    }
}
