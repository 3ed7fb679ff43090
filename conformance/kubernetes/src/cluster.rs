//! Which cluster, and how it is asked.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use casemate_suite::skip::skip;

use crate::Helm;

/// How long kubectl may take: longer than any `--timeout` that a test gives it.
const LIMIT: Duration = Duration::from_secs(180);

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
    helm: Option<OsString>,
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
    /// | `CASEMATE_HELM` | Helm, for the tests of the chart |
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
            helm: std::env::var_os("CASEMATE_HELM"),
            image: image.unwrap_or_else(|_| "localhost/busybox:1".to_owned()),
        })
    }

    /// The image that tests run.
    #[must_use]
    pub fn image(&self) -> &str {
        &self.image
    }

    /// Helm, where the environment names one and it may be asked; none, after the line that says so.
    #[must_use]
    pub fn helm(&self) -> Option<Helm<'_>> {
        let Some(program) = &self.helm else {
            skip("Helm for the Kubernetes (CASEMATE_HELM; conformance/cluster env names one)");
            return None;
        };
        Some(Helm::new(self, program))
    }

    /// How the cluster is asked by programs that read `KUBECONFIG`.
    pub(crate) fn kubeconfig(&self) -> Option<&OsString> {
        self.kubeconfig.as_ref()
    }

    /// Starts something where the cluster's Pods find it, in a network that the API server has an address in; that address,
    /// and what was started. None where the cluster is elsewhere.
    ///
    /// # Panics
    /// Where the network cannot be entered, which takes root, and where starting panics.
    #[must_use]
    pub fn beside<T: Send>(&self, start: impl FnOnce(IpAddr) -> T + Send) -> Option<(IpAddr, T)> {
        let network = File::open(self.network()?).expect("the cluster's network");
        let template =
            ["config", "view", "--minify", "--output", "jsonpath={.clusters[0].cluster.server}"];
        let server = self.must(&template, "");
        let server: SocketAddr = server.strip_prefix("https://")?.parse().ok()?;
        let address = server.ip();
        // A thread is in one network; the sockets that it makes stay there.
        let started = thread::scope(|scope| {
            let enter = || {
                nix::sched::setns(network, nix::sched::CloneFlags::CLONE_NEWNET)
                    .expect("its network");
                start(address)
            };
            scope.spawn(enter).join()
        });
        Some((address, started.unwrap_or_else(|panic| std::panic::resume_unwind(panic))))
    }

    /// The network namespace in which the API server is reached, by its path.
    pub(crate) fn network(&self) -> Option<&OsStr> {
        self.network.as_deref()
    }

    /// A program where the API server can be reached, not started.
    pub(crate) fn within(&self, program: &OsStr) -> Command {
        let Some(network) = &self.network else { return Command::new(program) };
        let mut option = OsString::from("--net=");
        option.push(network);
        let mut enter = Command::new("nsenter");
        enter.arg(option).arg("--").arg(program);
        enter
    }

    /// kubectl with these arguments, not started.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.within(&self.kubectl);
        if let Some(kubeconfig) = &self.kubeconfig {
            command.arg("--kubeconfig").arg(kubeconfig);
        }
        command.args(arguments);
        command
    }

    /// Runs kubectl to its end, with this on stdin.
    ///
    /// # Panics
    /// Where it does not start, and where it has not ended after three minutes.
    #[must_use]
    pub fn kubectl(&self, arguments: &[&str], stdin: &str) -> Said {
        let ask = || {
            said(self.command(arguments), stdin)
                .unwrap_or_else(|| panic!("kubectl {arguments:?} has not ended within {LIMIT:?}"))
        };
        let mut answer = ask();
        // On a machine that is very busy: nothing was asked yet, so it may be asked again.
        for _ in 0..3 {
            if answer.success || !answer.err.contains("TLS handshake timeout") {
                break;
            }
            answer = ask();
        }
        answer
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

    /// Runs kubectl as whom a token names, and nobody else.
    ///
    /// # Panics
    /// Where kubectl does not start, or this cluster's kubeconfig cannot be read.
    #[must_use]
    pub fn with_token(&self, token: &str, arguments: &[&str], stdin: &str) -> Said {
        let text = self.must(&["config", "view", "--raw", "--minify", "--output", "json"], "");
        let mut config: serde_json::Value = serde_json::from_str(&text).expect("it was asked for");
        // A certificate beside it would be believed first.
        config["users"][0]["user"] = serde_json::json!({"token": token});
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(&file, config.to_string()).expect("a file can be written");
        let other = Self { kubeconfig: Some(file.path().into()), ..self.clone() };
        other.kubectl(arguments, stdin)
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

/// Runs a program to its end, with this on stdin; `None`: it took too long and was ended.
pub(crate) fn said(mut command: Command, stdin: &str) -> Option<Said> {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let asked = "it was asked for";
    let mut input = child.stdin.take().expect(asked);
    let (out, err) = (child.stdout.take().expect(asked), child.stderr.take().expect(asked));
    thread::scope(|scope| {
        // One that refuses its arguments never reads.
        scope.spawn(move || input.write_all(stdin.as_bytes()).ok());
        let out = scope.spawn(move || text(out));
        let err = scope.spawn(move || text(err));
        let status = ended(&mut child);
        let text = |reader: thread::ScopedJoinHandle<'_, String>| reader.join().unwrap_or_default();
        let (out, err) = (text(out), text(err));
        Some(Said { success: status?.success(), out, err })
    })
}

fn text(mut from: impl Read) -> String {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).ok();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn ended(child: &mut Child) -> Option<ExitStatus> {
    let begun = Instant::now();
    while begun.elapsed() < LIMIT {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return Some(status);
        }
        thread::sleep(Duration::from_millis(5));
    }
    child.kill().expect("it has not been waited for");
    child.wait().expect("a child can be waited for");
    None
}
