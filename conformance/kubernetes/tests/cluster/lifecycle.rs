//! What `conformance/cluster` itself promises: clusters side by side, again and again, and nothing left.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use casemate_suite::skip::skip;

/// A cluster of this test's own, ended with it.
struct Own {
    name: String,
}

impl Own {
    fn new(purpose: &str) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            skip("root, for conformance/cluster");
            return None;
        }
        // Programs are built by hand or by conformance/run, not within a test.
        if std::env::var_os("CASEMATE_CLUSTER_NETWORK").is_none() {
            skip(
                "a Kubernetes that was built (as root: conformance/cluster up, then eval \"$(conformance/cluster env)\")",
            );
            return None;
        }
        Some(Self { name: format!("{purpose}-{}", std::process::id()) })
    }

    fn command(&self, words: &[&str]) -> Command {
        let conformance = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut command = Command::new(conformance.join("cluster"));
        command.args([words[0], "--name", &self.name]).args(&words[1..]).stdin(Stdio::null());
        command
    }

    /// Exit code and what it said.
    fn run(&self, words: &[&str]) -> (i32, String) {
        let output = self.command(words).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8_lossy(&said).into_owned())
    }

    fn must(&self, words: &[&str]) -> String {
        let (code, said) = self.run(words);
        assert_eq!(code, 0, "{words:?}: {said}");
        said
    }

    fn left(&self) -> BTreeSet<String> {
        left(&self.name)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.run(&["down"]);
    }
}

/// What is on this machine of a cluster: processes that name it, or hold a namespace of its own by their root; its
/// cgroups; its files.
fn left(name: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(&format!("/run/{name}")) {
            found.insert(format!("process {}: {line}", entry.file_name().display()));
        }
    }
    for top in mounts("cgroup") {
        for entry in std::fs::read_dir(&top).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&format!("casemate-{name}-")) {
                found.insert(format!("cgroup {}", entry.path().display()));
            }
        }
    }
    let conformance = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let files = conformance.join(".cache/cluster/run").join(name);
    if files.exists() {
        found.insert(files.display().to_string());
    }
    found
}

/// Where file systems of a type (and those whose names begin with it) are mounted.
fn mounts(kind: &str) -> Vec<PathBuf> {
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let fields = table.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    fields.filter(|f| f[2].starts_with(kind)).map(|f| PathBuf::from(f[1])).collect()
}

/// What a cluster may change of the machine's own: nothing.
fn machine() -> Vec<BTreeSet<String>> {
    let names = |folder: &str| -> BTreeSet<String> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| format!("{folder}/{}", entry.file_name().display())).collect()
    };
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let links = std::fs::read_to_string("/proc/self/net/dev").unwrap();
    let links = links
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name.trim().to_owned());
    let mut all = vec![table.lines().map(str::to_owned).collect(), links.collect()];
    for folder in [
        "/run",
        "/run/netns",
        "/var/lib",
        "/var/lib/cni",
        "/var/log",
        "/etc",
        "/usr/libexec",
        "/opt",
    ] {
        all.push(names(folder));
    }
    all.push(BTreeSet::from([std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap()]));
    all
}

#[test]
fn a_second_cluster_runs_beside_the_first_and_down_leaves_nothing() {
    let Some(own) = Own::new("beside") else { return };
    let before = machine();
    assert_eq!(own.run(&["status"]).0, 3);
    own.must(&["up", "--nodes", "2"]);
    assert!(own.must(&["up"]).contains("runs already"));
    // A container runs, with a volume mounted and a network of its own, when everything is taken away.
    let script = "kubectl create deployment busy --image localhost/busybox:1 --replicas 2 -- sleep 600 && \
                  kubectl rollout status deployment/busy --timeout 60s && kubectl get nodes --output name";
    let seen = own.must(&["exec", "sh", "-c", script]);
    assert!(seen.contains("node/node0") && seen.contains("node/node1"), "{seen}");
    assert!(!own.left().is_empty(), "the look at the machine sees nothing of a running cluster");
    own.must(&["down"]);
    assert_eq!(own.left(), BTreeSet::new());
    assert_eq!(machine(), before);
    assert!(own.must(&["down"]).contains("does not run"));
}

#[test]
fn one_that_was_stopped_half_way_is_found_and_started_anew() {
    let Some(own) = Own::new("half") else { return };
    let mut up = own.command(&["up"]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(up.stdout.take().unwrap()).lines();
    let reached = lines.map_while(Result::ok).any(|line| line.contains("containerd"));
    up.kill().unwrap();
    up.wait().unwrap();
    assert!(reached, "up never came to its node");
    let (code, said) = own.run(&["status"]);
    assert!(code == 3 && said.contains("not ready"), "{code} {said}");
    assert_eq!(own.run(&["kubectl", "get", "nodes"]).0, 3);
    own.must(&["up"]);
    assert!(own.must(&["status"]).contains("Ready"));
    // Of one whose machine went down its file is all that is left, and its pid may be somebody else's.
    let state = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let state = state.join(".cache/cluster/run").join(&own.name).join("init");
    let real = std::fs::read_to_string(&state).unwrap();
    let ours = format!("{} 1\n", std::process::id());
    std::fs::write(&state, &ours).unwrap();
    assert_eq!(
        own.run(&["status"]).0,
        3,
        "a process of another start time was taken for the cluster"
    );
    std::fs::write(&state, real).unwrap();
    own.must(&["down"]);
    assert_eq!(own.left(), BTreeSet::new());
}
