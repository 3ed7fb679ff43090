//! Which cluster, and how it is asked.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::{Command, Stdio};

use casemate_suite::skip::skip;

/// What kubectl said.
#[derive(Debug, Clone)]
pub struct Said {
    /// Whether it left with 0.
    pub success: bool,
    /// Its stdout.
    pub out: String,
    /// Its stderr.
    pub err: String,
}

/// A cluster that this process may administer.
#[derive(Debug, Clone)]
pub struct Cluster {
    kubectl: OsString,
    kubeconfig: Option<OsString>,
    network: Option<OsString>,
    image: String,
}

impl Cluster {
    /// The cluster that the environment names; none, after the line that says so, where it names none.
    ///
    /// | variable | what |
    /// |---|---|
    /// | `CASEMATE_KUBECONFIG` | path of the kubeconfig; inside a Pod its ServiceAccount does without |
    /// | `CASEMATE_KUBECTL` | the program, default `kubectl` |
    /// | `CASEMATE_CLUSTER_NETWORK` | path of the network namespace from which the API server is reached; default this process's |
    /// | `CASEMATE_CLUSTER_IMAGE` | image with a busybox whose shell is `sh`; default the one that `conformance/cluster` brings |
    #[must_use]
    pub fn of_environment() -> Option<Self> {
        let kubeconfig = std::env::var_os("CASEMATE_KUBECONFIG");
        if kubeconfig.is_none() && std::env::var_os("KUBERNETES_SERVICE_HOST").is_none() {
            skip(
                "a Kubernetes cluster (as root: conformance/cluster up, then eval \"$(conformance/cluster env)\")",
            );
            return None;
        }
        let image = std::env::var("CASEMATE_CLUSTER_IMAGE");
        Some(Self {
            kubectl: std::env::var_os("CASEMATE_KUBECTL").unwrap_or_else(|| "kubectl".into()),
            kubeconfig,
            network: std::env::var_os("CASEMATE_CLUSTER_NETWORK"),
            image: image.unwrap_or_else(|_| "localhost/busybox:1".to_owned()),
        })
    }

    /// The image that tests run.
    #[must_use]
    pub fn image(&self) -> &str {
        &self.image
    }

    /// kubectl with these arguments, not started.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = match &self.network {
            Some(network) => {
                let mut option = OsString::from("--net=");
                option.push(network);
                let mut enter = Command::new("nsenter");
                enter.arg(option).arg("--").arg(&self.kubectl);
                enter
            }
            None => Command::new(&self.kubectl),
        };
        if let Some(kubeconfig) = &self.kubeconfig {
            command.arg("--kubeconfig").arg(kubeconfig);
        }
        command.args(arguments);
        command
    }

    /// Runs kubectl to its end, with this on stdin.
    ///
    /// # Panics
    /// Where it does not start.
    #[must_use]
    pub fn kubectl(&self, arguments: &[&str], stdin: &str) -> Said {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl starts");
        // One that refuses its arguments never reads.
        child.stdin.take().expect("it was asked for").write_all(stdin.as_bytes()).ok();
        let output = child.wait_with_output().expect("a child can be waited for");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Said {
            success: output.status.success(),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }

    /// The same where anything but success is a failed test.
    ///
    /// # Panics
    /// Where kubectl fails.
    #[must_use]
    pub fn must(&self, arguments: &[&str], stdin: &str) -> String {
        let said = self.kubectl(arguments, stdin);
        assert!(said.success, "kubectl {arguments:?}: {}{}", said.out, said.err);
        said.out
    }

    /// Names of nodes that are Ready.
    ///
    /// # Panics
    /// Where kubectl fails.
    #[must_use]
    pub fn ready_nodes(&self) -> Vec<String> {
        let template = "jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.type=='Ready')].status}{'\\n'}{end}";
        self.must(&["get", "nodes", "--output", template], "")
            .lines()
            .filter_map(|line| line.strip_suffix(" True").map(str::to_owned))
            .collect()
    }
}
