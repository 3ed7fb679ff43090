//! One test's room in the cluster.

use std::process::Command;
use std::time::Duration;

use casemate_suite::processes;
use serde_json::Value;

use crate::{Cluster, Said};

/// A namespace of a random name under Pod Security *restricted*, gone with all in it when the test ends.
#[derive(Debug)]
pub struct Namespace {
    cluster: Cluster,
    name: String,
}

impl Namespace {
    /// Makes one.
    ///
    /// # Panics
    /// Where the cluster refuses.
    #[must_use]
    pub fn new(cluster: &Cluster, purpose: &str) -> Self {
        let mut random = [0; 4];
        getrandom::fill(&mut random).expect("the kernel has randomness");
        let name = format!("casemate-{purpose}-{:08x}", u32::from_ne_bytes(random));
        let object = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": {
                "pod-security.kubernetes.io/enforce": "restricted",
                "pod-security.kubernetes.io/enforce-version": "latest",
            }},
        });
        let _ = cluster.must(&["create", "--filename", "-"], &object.to_string());
        Self { cluster: cluster.clone(), name }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// kubectl in this namespace, not started.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        self.cluster.command(&[&["--namespace", self.name()], arguments].concat())
    }

    /// kubectl in this namespace.
    ///
    /// # Panics
    /// Where kubectl does not start.
    #[must_use]
    pub fn kubectl(&self, arguments: &[&str], stdin: &str) -> Said {
        self.cluster.kubectl(&[&["--namespace", self.name()], arguments].concat(), stdin)
    }

    /// The same where anything but success is a failed test.
    ///
    /// # Panics
    /// Where kubectl fails.
    #[must_use]
    pub fn must(&self, arguments: &[&str], stdin: &str) -> String {
        self.cluster.must(&[&["--namespace", self.name()], arguments].concat(), stdin)
    }

    /// Creates an object here.
    #[must_use]
    pub fn create(&self, object: &Value) -> Said {
        self.kubectl(&["create", "--filename", "-"], &object.to_string())
    }

    /// Creates a Pod and waits for its readiness.
    ///
    /// # Panics
    /// Where it is refused or not Ready in a minute; the message has what the cluster says about it.
    pub fn run(&self, pod: &Value) {
        let name = pod["metadata"]["name"].as_str().expect("a Pod has a name");
        let said = self.create(pod);
        assert!(said.success, "{}", said.err);
        let wait = ["wait", "--for=condition=Ready", "--timeout=60s", &format!("pod/{name}")];
        let ready = self.kubectl(&wait, "");
        assert!(ready.success, "{}\n{}", ready.err, self.describe(name));
    }

    /// Waits until a Pod has run to its end and gives its exit code.
    ///
    /// # Panics
    /// Where it has not ended in a minute.
    #[must_use]
    pub fn exit_code(&self, pod: &str) -> i32 {
        let template = "jsonpath={.status.containerStatuses[0].state.terminated.exitCode}";
        let ended = processes::until(Duration::from_secs(60), || {
            self.must(&["get", "pod", pod, "--output", template], "").parse().ok()
        });
        ended.unwrap_or_else(|| panic!("{pod} has not ended\n{}", self.describe(pod)))
    }

    /// What a program in a Pod says.
    #[must_use]
    pub fn exec(&self, pod: &str, command: &[&str]) -> Said {
        self.kubectl(&[&["exec", pod, "--"], command].concat(), "")
    }

    /// A Pod's address.
    #[must_use]
    pub fn address(&self, pod: &str) -> String {
        self.must(&["get", "pod", pod, "--output", "jsonpath={.status.podIP}"], "")
    }

    fn describe(&self, pod: &str) -> String {
        let about = self.kubectl(&["describe", "pod", pod], "").out;
        let logs = self.kubectl(&["logs", pod, "--all-containers", "--tail=20"], "").out;
        format!("{about}\n{logs}")
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let arguments = ["delete", "namespace", self.name(), "--wait=false"];
        let said = self.cluster.kubectl(&arguments, "");
        if !said.success {
            eprintln!("namespace {} stays: {}", self.name, said.err);
        }
    }
}
