//! What somebody would ask for who has the allocator's token, and what the allocator asks for itself.

use casemate_cluster::{Cluster, pod};
use serde_json::{Value, json};

use crate::Objects;

/// Something to ask for.
pub(crate) struct Attempt {
    /// For people.
    pub(crate) what: &'static str,
    /// kubectl's; nothing is kept.
    pub(crate) arguments: Vec<String>,
    /// On stdin.
    pub(crate) object: Option<Value>,
    /// In the refusal.
    pub(crate) words: &'static str,
}

impl Objects {
    /// Those that are there before the attempts, as one that an allocator made. Nobody's, or they would be collected.
    pub(crate) fn there(&self) -> Vec<Value> {
        let anchor = self.orphan(&self.anchor);
        let volume = self.volume.clone().expect("it has one");
        // A Pod that needs no node: it stays where it is.
        let mut pod = self.orphan(&self.pod);
        pod["spec"]["nodeSelector"] = json!({"nowhere": "nowhere"});
        vec![anchor, volume, self.orphan(&self.policy), pod]
    }

    fn orphan(&self, object: &Value) -> Value {
        let mut object = object.clone();
        object["metadata"].as_object_mut().expect("an object").remove("ownerReferences");
        object
    }
}

/// Objects of somebody else in the namespace.
pub(crate) fn foreign(cluster: &Cluster) -> Vec<Value> {
    let mut pod = pod::restricted(cluster, "theirs", "exec sleep 600");
    pod["spec"]["nodeSelector"] = json!({"nowhere": "nowhere"});
    let object = |kind: &str, more: Value| {
        let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "theirs"}});
        let fields = object.as_object_mut().expect("an object");
        fields.extend(more.as_object().expect("an object").clone());
        object
    };
    vec![
        pod,
        object("ServiceAccount", json!({})),
        object("Secret", json!({"stringData": {"key": "secret"}})),
        object("ConfigMap", json!({})),
        object(
            "PersistentVolumeClaim",
            json!({"spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
            }}),
        ),
    ]
}

const OTHER: &str = "w-aaaaaaaaaaaaaaaaaaaaaaaaaa";

fn words(all: &[&str]) -> Vec<String> {
    all.iter().map(|word| (*word).to_owned()).collect()
}

fn create() -> Vec<String> {
    words(&["create", "--validate=false", "--dry-run=server", "--filename", "-"])
}

fn patch(kind: &str, name: &str, merge: &Value) -> Vec<String> {
    words(&["patch", kind, name, "--dry-run=server", "--type=merge", "--patch", &merge.to_string()])
}

/// A change to an object before it is asked for: where, and what (`null`: it is taken away).
fn set(object: &Value, path: &str, value: Value) -> Value {
    let mut object = object.clone();
    let (parent, name) = path.rsplit_once('/').expect("a path");
    let name = &name.replace("~1", "/");
    let parent = object.pointer_mut(parent).unwrap_or_else(|| panic!("no {parent}"));
    match parent {
        Value::Array(all) if name == "-" => all.push(value),
        parent if value.is_null() => {
            parent.as_object_mut().expect("an object").remove(name);
        }
        parent => parent[name] = value,
    }
    object
}

/// All of it. The first and the last are of different policies.
///
/// `mine`: a slot that is there. `next`: one of which the ServiceAccount is.
pub(crate) fn attempts(mine: &Objects, next: &Objects, namespace: &str) -> Vec<Attempt> {
    let mut all = Vec::new();
    pods(&next.pod, &mut all);
    others(mine, &mut all);
    changes(mine, namespace, &mut all);
    all
}

fn pods(base: &Value, all: &mut Vec<Attempt>) {
    let container = |path: &str| format!("/spec/containers/0{path}");
    let volume = |source: Value| {
        let mut volume = source;
        volume["name"] = json!("more");
        volume
    };
    let mut one = |what: &'static str, path: &str, value: Value, words: &'static str| {
        let mut object = set(base, path, value);
        if path.ends_with("/procMount") {
            // Without a namespace of users it is not valid at all.
            object["spec"]["hostUsers"] = json!(false);
        }
        all.push(Attempt { what, arguments: create(), object: Some(object), words });
    };
    let volumes = "are scratch, claims, Secrets, ConfigMaps and images";
    one(
        "the node's file system",
        "/spec/volumes/-",
        volume(json!({"hostPath": {"path": "/"}})),
        volumes,
    );
    one(
        "a projected token",
        "/spec/volumes/-",
        volume(json!({"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}})),
        volumes,
    );
    one(
        "a projected foreign Secret",
        "/spec/volumes/-",
        volume(json!({"projected": {"sources": [{"secret": {"name": "theirs"}}]}})),
        volumes,
    );
    one(
        "the Pod's fields as files",
        "/spec/volumes/-",
        volume(
            json!({"downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.labels"}}]}}),
        ),
        volumes,
    );
    one(
        "a volume by network",
        "/spec/volumes/-",
        volume(json!({"nfs": {"server": "10.0.0.1", "path": "/"}})),
        volumes,
    );
    one(
        "a foreign Secret as a volume",
        "/spec/volumes/-",
        volume(json!({"secret": {"secretName": "theirs"}})),
        "mounts its own Secret",
    );
    one(
        "a signing key as a volume",
        "/spec/volumes/-",
        volume(json!({"secret": {"secretName": "casemate-signing-key-1"}})),
        "mounts its own Secret",
    );
    one(
        "another slot's volume",
        "/spec/volumes/-",
        volume(json!({"persistentVolumeClaim": {"claimName": OTHER}})),
        "mounts its own volume claim",
    );
    one(
        "somebody's volume",
        "/spec/volumes/-",
        volume(json!({"persistentVolumeClaim": {"claimName": "mine"}})),
        "mounts its own volume claim",
    );
    one("the node's network", "/spec/hostNetwork", json!(true), "shares no namespace");
    one("the node's processes", "/spec/hostPID", json!(true), "shares no namespace");
    one("the node's IPC", "/spec/hostIPC", json!(true), "shares no namespace");
    one(
        "one namespace of processes",
        "/spec/shareProcessNamespace",
        json!(true),
        "shares no namespace",
    );
    one(
        "a node of its choice",
        "/spec/nodeName",
        json!("node0"),
        "goes where the scheduler puts it",
    );
    one(
        "names of its own",
        "/spec/hostAliases",
        json!([{"ip": "10.0.0.1", "hostnames": ["kubernetes"]}]),
        "names of its own cluster",
    );
    one(
        "a resolver of its own",
        "/spec/dnsConfig",
        json!({"nameservers": ["10.0.0.1"]}),
        "names of its own cluster",
    );
    one(
        "the system's priority",
        "/spec/priorityClassName",
        json!("system-node-critical"),
        "system's priority",
    );
    one("a Pod that starts again", "/spec/restartPolicy", json!("Always"), "not started again");
    one(
        "a second container",
        "/spec/containers/-",
        set(&base["spec"]["containers"][0], "/name", json!("second")),
        "has one worker",
    );
    one(
        "a foreign ServiceAccount",
        "/spec/serviceAccountName",
        json!("theirs"),
        "runs as the slot's ServiceAccount",
    );
    one(
        "the ServiceAccount's token",
        "/spec/automountServiceAccountToken",
        json!(true),
        "without its token",
    );
    one("root", "/spec/securityContext/runAsUser", json!(0), "is no root");
    one("root's group", "/spec/securityContext/fsGroup", json!(0), "is no root");
    one("more groups", "/spec/securityContext/supplementalGroups", json!([0]), "is no root");
    one(
        "no seccomp",
        "/spec/securityContext/seccompProfile",
        json!({"type": "Unconfined"}),
        "seccomp profile",
    );
    one(
        "none said of seccomp",
        "/spec/securityContext/seccompProfile",
        Value::Null,
        "seccomp profile",
    );
    one(
        "sysctls",
        "/spec/securityContext/sysctls",
        json!([{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}]),
        "no sysctls",
    );
    one(
        "a profile of AppArmor",
        "/spec/securityContext/appArmorProfile",
        json!({"type": "Unconfined"}),
        "AppArmor",
    );
    one("privilege", &container("/securityContext"), json!({"privileged": true}), "no privilege");
    one(
        "a capability",
        &container("/securityContext/capabilities/add"),
        json!(["NET_ADMIN"]),
        "no capability",
    );
    one(
        "capabilities kept",
        &container("/securityContext/capabilities"),
        json!({}),
        "no capability",
    );
    one(
        "set-user-ID programs",
        &container("/securityContext/allowPrivilegeEscalation"),
        json!(true),
        "no privilege",
    );
    one(
        "a root that can be written",
        &container("/securityContext/readOnlyRootFilesystem"),
        json!(false),
        "read-only",
    );
    one(
        "a container's root",
        &container("/securityContext/runAsUser"),
        json!(0),
        "containers are no root",
    );
    one(
        "a container without seccomp",
        &container("/securityContext/seccompProfile"),
        json!({"type": "Unconfined"}),
        "containers are no root",
    );
    one("a bare /proc", &container("/securityContext/procMount"), json!("Unmasked"), "see /proc");
    one("all of the node's memory", &container("/resources"), json!({}), "a limit of memory");
    one(
        "a foreign Secret in a variable",
        &container("/env/-"),
        json!({"name": "A", "valueFrom": {"secretKeyRef": {"name": "theirs", "key": "key"}}}),
        "into their environment",
    );
    one(
        "a foreign Secret as variables",
        &container("/envFrom"),
        json!([{"secretRef": {"name": "theirs"}}]),
        "into their environment",
    );
    one(
        "a port of the node",
        &container("/ports/0/hostPort"),
        json!(8443),
        "no port of their node's",
    );
    one(
        "a command by the kubelet",
        &container("/lifecycle"),
        json!({"postStart": {"exec": {"command": ["true"]}}}),
        "the kubelet runs nothing",
    );
    one(
        "a request by the kubelet",
        &container("/readinessProbe/httpGet/host"),
        json!("169.254.169.254"),
        "asks nobody else",
    );
    one(
        "mounts that spread",
        &container("/volumeMounts/0/mountPropagation"),
        json!("HostToContainer"),
        "reach nothing outside",
    );
    one(
        "a foreign Secret for images",
        "/spec/imagePullSecrets",
        json!([{"name": "theirs"}]),
        "pulled with Secrets",
    );
    one(
        "the allocator's labels",
        "/metadata/labels/app.kubernetes.io~1name",
        Value::Null,
        "a slot's labels",
    );
    one("a label that callers have", "/metadata/labels/caller", json!("true"), "no others");
    one(
        "another slot's label",
        "/metadata/labels/casemate.dev~1slot",
        json!(OTHER),
        "a slot's labels",
    );
    one(
        "an annotation of somebody's",
        "/metadata/annotations/sidecar.istio.io~1inject",
        json!("true"),
        "no annotations but casemate's",
    );
    one("a finalizer", "/metadata/finalizers", json!(["casemate.dev/stays"]), "no finalizers");
    one(
        "somebody's Pod",
        "/metadata/ownerReferences",
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "theirs", "uid": "1"}]),
        "belongs to the slot's ServiceAccount",
    );
    one(
        "a Pod of nobody",
        "/metadata/ownerReferences",
        Value::Null,
        "belongs to the slot's ServiceAccount",
    );
}

fn others(mine: &Objects, all: &mut Vec<Attempt>) {
    let mut one = |what: &'static str, object: Value, words: &'static str| {
        all.push(Attempt { what, arguments: create(), object: Some(object), words });
    };
    let renamed = |object: &Value| {
        let text = object.to_string().replace(mine.slot.as_str(), OTHER);
        serde_json::from_str::<Value>(&text).expect("still JSON")
    };
    let anchor = renamed(&mine.anchor);
    one(
        "a ServiceAccount with a cloud's identity",
        set(&anchor, "/metadata/annotations", json!({"eks.amazonaws.com/role-arn": "admin"})),
        "no annotations but casemate's",
    );
    one(
        "a ServiceAccount with a token",
        set(&anchor, "/automountServiceAccountToken", json!(true)),
        "has no token",
    );
    one(
        "a ServiceAccount of nobody",
        set(&anchor, "/metadata/ownerReferences", Value::Null),
        "one profile or one session",
    );
    let secret = renamed(&mine.secret);
    let token = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "token", "annotations": {"kubernetes.io/service-account.name": "theirs"}},
    });
    one("a token as a Secret", token, "a slot's name");
    one(
        "a Secret of another kind",
        set(&secret, "/type", json!("Opaque")),
        "makes certificates of slots",
    );
    one(
        "a Secret that changes",
        set(&secret, "/immutable", json!(false)),
        "makes certificates of slots",
    );
    let volume = renamed(mine.volume.as_ref().expect("it has one"));
    let copy = json!({"kind": "PersistentVolumeClaim", "name": "theirs"});
    one("a copy of a volume", set(&volume, "/spec/dataSource", copy), "begins empty");
    one("a volume of the node", set(&volume, "/spec/volumeName", json!("pv")), "begins empty");
    one(
        "a volume that nobody made",
        set(&volume, "/metadata/annotations", Value::Null),
        "says who made it",
    );
    let policy = renamed(&mine.policy);
    one(
        "a NetworkPolicy that opens every worker",
        set(&policy, "/spec/podSelector", json!({})),
        "about its own Pod",
    );
    one(
        "a NetworkPolicy that opens the worker to all",
        set(&policy, "/spec/ingress", json!([{}])),
        "names whom it lets through",
    );
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "other"}, "spec": {}});
    one("another lease", lease, "one lease");
    one(
        "a ConfigMap",
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "more"}}),
        "and nothing else",
    );
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "more"}, "rules": []});
    one("a right", role, "and nothing else");
    let elsewhere = set(&renamed(&mine.anchor), "/metadata/namespace", json!("default"));
    all.push(Attempt {
        what: "a ServiceAccount in another namespace",
        arguments: words(&["create", "--dry-run=server", "--filename", "-", "--namespace=default"]),
        object: Some(elsewhere),
        words: "in its own namespace",
    });
}

fn changes(mine: &Objects, namespace: &str, all: &mut Vec<Attempt>) {
    let name = mine.slot.as_str();
    let mut one = |what: &'static str, arguments: Vec<String>, words: &'static str| {
        all.push(Attempt { what, arguments, object: None, words });
    };
    let claim = json!({"metadata": {"annotations": {"casemate.dev/session": "s-1"}}});
    one(
        "another image",
        words(&["set", "image", "--dry-run=server", &format!("pod/{name}"), "worker=evil"]),
        "nothing in a Pod is changed",
    );
    one(
        "a shorter life",
        patch("pod", name, &json!({"spec": {"activeDeadlineSeconds": 1}})),
        "nothing in a Pod is changed",
    );
    one(
        "another label",
        patch("pod", name, &json!({"metadata": {"labels": {"casemate.dev/slot": OTHER}}})),
        "labels are not changed",
    );
    one(
        "another owner",
        patch(
            "pod",
            name,
            &json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "theirs", "uid": "1"}]}}),
        ),
        "owner is not changed",
    );
    one(
        "another authority",
        patch(
            "pod",
            name,
            &json!({"metadata": {"annotations": {"casemate.dev/authority": "mine"}}}),
        ),
        "the claim alone",
    );
    one("a claim of a foreign Pod", patch("pod", "theirs", &claim), "slot's Pods alone");
    one(
        "the image of a foreign Pod",
        words(&["set", "image", "--dry-run=server", "pod/theirs", "main=evil"]),
        "slot's Pods alone",
    );
    one(
        "a foreign Pod's end",
        words(&["delete", "--dry-run=server", "pod", "theirs"]),
        "objects of slots alone",
    );
    one(
        "a foreign volume's end",
        words(&["delete", "--dry-run=server", "pvc", "theirs"]),
        "objects of slots alone",
    );
    one(
        "a foreign ServiceAccount's end",
        words(&["delete", "--dry-run=server", "serviceaccount", "theirs"]),
        "objects of slots alone",
    );
    one(
        "a foreign Secret's end",
        words(&["delete", "--dry-run=server", "secret", "theirs"]),
        "objects of slots alone",
    );
    one(
        "a foreign volume's marks",
        patch(
            "pvc",
            "theirs",
            &json!({"metadata": {"annotations": {"casemate.dev/made-by": "i/theirs"}}}),
        ),
        "volumes that it made alone",
    );
    one(
        "a volume's maker",
        patch("pvc", name, &json!({"metadata": {"annotations": {"casemate.dev/made-by": null}}})),
        "one maker",
    );
    one(
        "a volume's guard",
        patch("pvc", name, &json!({"metadata": {"finalizers": null}})),
        "changed but its marks",
    );
    one(
        "a volume's owner",
        patch(
            "pvc",
            name,
            &json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "theirs", "uid": "1"}]}}),
        ),
        "changed but its marks",
    );
    one(
        "a foreign ServiceAccount",
        patch("serviceaccount", "theirs", &json!({"metadata": {"labels": {"a": "b"}}})),
        "a slot's name",
    );
    let mut debugged = mine.pod.clone();
    debugged["spec"]["ephemeralContainers"] = json!([{"name": "debug", "image": "evil"}]);
    all.push(Attempt {
        what: "a debug container",
        arguments: words(&[
            "replace",
            "--raw",
            &format!("/api/v1/namespaces/{namespace}/pods/{name}/ephemeralcontainers?dryRun=All"),
            "--filename",
            "-",
        ]),
        object: Some(debugged),
        words: "and nothing else",
    });
    let token =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    all.push(Attempt {
        what: "a token of a ServiceAccount",
        arguments: words(&[
            "create",
            "--raw",
            &format!("/api/v1/namespaces/{namespace}/serviceaccounts/theirs/token?dryRun=All"),
            "--filename",
            "-",
        ]),
        object: Some(token),
        words: "and nothing else",
    });
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"apiVersion": "v1", "kind": "Node", "name": "node0"}});
    all.push(Attempt {
        what: "a Pod's way past the scheduler",
        arguments: words(&[
            "create",
            "--raw",
            &format!("/api/v1/namespaces/{namespace}/pods/{name}/binding?dryRun=All"),
            "--filename",
            "-",
        ]),
        object: Some(binding),
        words: "and nothing else",
    });
}

/// What the allocator itself does with a slot.
pub(crate) fn lawful(mine: &Objects) -> Vec<(&'static str, Vec<String>, Value)> {
    let name = mine.slot.as_str();
    let claim = json!({"metadata": {"annotations": {
        "casemate.dev/session": "s-1", "casemate.dev/incarnation": "1", "casemate.dev/generation": "2",
    }}});
    let of_volume = json!({"metadata": {"labels": {"casemate.dev/session": "k-1"}, "annotations": {
        "casemate.dev/key": "k", "casemate.dev/incarnation": "1", "casemate.dev/generation": "2",
    }}});
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "casemate-allocator"}, "spec": {}});
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "a"}});
    vec![
        ("a claim of a Pod", patch("pod", name, &claim), Value::Null),
        ("a claim of a volume", patch("pvc", name, &of_volume), Value::Null),
        ("a Pod's end", words(&["delete", "--dry-run=server", "pod", name]), Value::Null),
        ("a volume's end", words(&["delete", "--dry-run=server", "pvc", name]), Value::Null),
        (
            "a slot's end",
            words(&["delete", "--dry-run=server", "serviceaccount", name]),
            Value::Null,
        ),
        ("its lease", create(), lease),
        ("whose a token is", words(&["create", "--output", "name", "--filename", "-"]), review),
    ]
}
