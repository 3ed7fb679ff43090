//! What a new session in a warm worker costs, held against its agent's own start, in the same run.
//!
//! Each round starts the scripted agent bare (pipes, `initialize`, its answer), then asks a running worker for a session with an
//! empty repository, then for one that clones a small repository of this machine; each of these ends with the answer to the
//! first `initialize` of a client that attached. The figure is the median over the rounds of the difference to the bare start of
//! the same round. Sessions are ended outside of the measured time. Their storage stays to the end: ext4 looks long for an
//! inode where many were just deleted. A bare `git clone` of the same repository, with the same options, tells what of a clone is
//! git's own.
//!
//! Beside the time there is the processors' time: of the worker, its spawner and all that they started, up to the answer. On a
//! machine that has something else to do the first tells little and the second still something. The kernel counts the latter
//! in hundredths of a second, so only its mean over many rounds is worth a look.
//!
//! Under `chrt -r 1` (as root, where nobody else suffers) a loaded machine is nearly as good as an idle one: `nice` is not, since
//! each session of processes has a weight of its own there (sched(7), autogroup).
//!
//! `ROUNDS=40 cargo bench -p casemate-supervisor --bench warm`, after `cargo build --release -p casemate-supervisor --examples`.
// A benchmark panics where it cannot go on.
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on ends there")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use casemate_protocol::ids::{Generation, Incarnation, SessionId, SlotId};
use casemate_protocol::policy::DEVELOPER;
use casemate_protocol::ports::PortPool;
use casemate_protocol::sharing::{SessionConfig, SharedWorkerConfig, Sharing, WorkerClaims};
use casemate_protocol::tier::Tier;
use casemate_protocol::token::{Audience, Claims, SigningSecret};
use casemate_protocol::worker::{AgentCommand, Repository, StartEvent};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Message, client};

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{}}}"#;

fn main() {
    // Cargo's tests run benchmarks once to see that they work.
    let rounds = match std::env::args().any(|word| word == "--bench") {
        true => std::env::var("ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(40),
        false => 1,
    };
    let supervisor = PathBuf::from(env!("CARGO_BIN_EXE_casemate-supervisor"));
    let agent = supervisor.with_file_name("examples").join("scripted-agent");
    if !agent.exists() {
        println!("skipped: {} is not built", agent.display());
        return;
    }
    let warm = Warm::start(&supervisor, agent);
    let source = warm.source();
    let (mut bare, mut git, mut empty, mut clone) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    // The first of each kind pays for what the worker keeps.
    for _ in 0..=rounds {
        bare.push(own(|| warm.bare()));
        git.push(own(|| warm.bare_clone(&source)));
        empty.push(warm.session(None));
        clone.push(warm.session(Some(Repository::Local(source.clone()))));
    }
    let mean = |cpu: Duration| cpu / u32::try_from(rounds.max(1)).unwrap();
    let own_cpu =
        |times: &[(Duration, Duration)]| mean(times[1..].iter().map(|times| times.1).sum());
    for (name, times) in [
        ("agent's own start to `initialize` answered", &bare),
        ("git's own clone of the small repository", &git),
    ] {
        let mut elapsed: Vec<Duration> = times[1..].iter().map(|times| times.0).collect();
        println!("{name} | {}, CPU {:.1?} |", milliseconds(&mut elapsed), own_cpu(times));
    }
    for (name, times) in [("empty repository", &empty), ("clone of a small repository", &clone)] {
        let first = times[0].total().saturating_sub(bare[0].0);
        println!("first session of its kind in a worker, {name}, above that | {first:.1?} |");
        let above = times[1..].iter().zip(&bare[1..]);
        let mut above: Vec<Duration> =
            above.map(|(times, bare)| times.total().saturating_sub(bare.0)).collect();
        let cpu = mean(times[1..].iter().map(|times| times.cpu).sum());
        println!(
            "new session in a warm worker, {name}, above the agent's own start | {}, CPU {:.1?} | 10 ms",
            milliseconds(&mut above),
            cpu.saturating_sub(own_cpu(&bare))
        );
        let part = |of: fn(&Times) -> Duration| {
            milliseconds(&mut times[1..].iter().map(of).collect::<Vec<_>>())
        };
        println!("  asked for to ready | {} |", part(|times| times.ready));
        println!(
            "  attached to answered, the agent's start included | {} |",
            part(|times| times.answered)
        );
    }
}

/// Median, the range of the middle half, and the least.
fn milliseconds(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let at = |part: usize| times[(times.len() * part / 4).min(times.len() - 1)].as_secs_f64() * 1e3;
    format!("{:.1} ms ({:.1} to {:.1}, least {:.1})", at(2), at(1), at(3), at(0))
}

/// What it takes, and the processors' time of the children that it waits for.
fn own(start: impl FnOnce() -> Duration) -> (Duration, Duration) {
    let children = || {
        let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
        let [user, system] = [usage.user_time(), usage.system_time()];
        Duration::from_micros(u64::try_from((user + system).num_microseconds()).unwrap())
    };
    let before = children();
    let taken = start();
    (taken, children() - before)
}

/// The processors' time of a process and its children, those that it has waited for and those that run: proc_pid_stat(5), fields
/// 14 to 17.
fn cpu(pid: u32) -> Duration {
    let stat = |pid: u32| {
        let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields = line.rsplit_once(')')?.1.split_whitespace();
        fields.map(|field| field.parse().ok().or(Some(0_u64))).collect::<Option<Vec<u64>>>()
    };
    let processes = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let ticks: u64 = processes
        .filter_map(|other| Some((other, stat(other)?)))
        .filter(|(other, fields)| *other == pid || fields[1] == u64::from(pid))
        .map(|(_, fields)| fields[11..15].iter().sum::<u64>())
        .sum();
    // A hundredth of a second on every Linux (proc_pid_stat(5), sysconf(_SC_CLK_TCK)).
    Duration::from_millis(ticks * 10)
}

/// A start, in its parts.
struct Times {
    ready: Duration,
    answered: Duration,
    cpu: Duration,
}

impl Times {
    fn total(&self) -> Duration {
        self.ready + self.answered
    }
}

/// A worker without a session.
struct Warm {
    root: tempfile::TempDir,
    config: SharedWorkerConfig,
    secret: SigningSecret,
    worker: Child,
    address: SocketAddr,
    agent: PathBuf,
}

impl Warm {
    fn start(supervisor: &Path, agent: PathBuf) -> Self {
        let root = tempfile::tempdir().unwrap();
        let volume = root.path().join("slots/w");
        fs::create_dir_all(&volume).unwrap();
        for path in [root.path(), &root.path().join("slots"), &volume] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let secret = SigningSecret::generate();
        let root_runs = nix::unistd::geteuid().is_root();
        let config = SharedWorkerConfig {
            sharing: Sharing::User,
            user: "bench".parse().unwrap(),
            slot: SlotId::random(),
            verify_key: secret.public(),
            private: vec![root.path().join("slots")],
            volume,
            ports: PortPool { first: 21_008, ranges: 687, preferred: 0 },
            listen: ([127, 0, 0, 1], 0).into(),
            tls: None,
            plain: false,
            host_uid: root_runs.then_some(1000),
            owner: Some(std::process::id()),
            linger: None,
        };
        hand_over(root.path());
        let mut worker = Command::new(supervisor)
            .arg("worker")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let text = serde_json::to_vec(&config).unwrap();
        worker.stdin.take().unwrap().write_all(&text).unwrap();
        let mut lines = BufReader::new(worker.stdout.take().unwrap()).lines();
        let address = loop {
            match serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() {
                StartEvent::Ready { address, .. } => break address,
                StartEvent::Progress { .. } => {}
                StartEvent::Failed { error } => panic!("{error}"),
            }
        };
        Self { root, config, secret, worker, address, agent }
    }

    /// A repository of forty files and three commits.
    fn source(&self) -> PathBuf {
        let source = self.root.path().join("source");
        fs::create_dir(&source).unwrap();
        let script = "git init -q . && for n in 1 2 3; do seq $((n * 400)) | split -l $((n * 10)) - f$n; \
                      git add . && git -c user.name=n -c user.email=e commit -q -m $n; done";
        let made = Command::new("sh").args(["-c", script]).current_dir(&source).status();
        assert!(made.unwrap().success());
        hand_over(&source);
        source.join(".git")
    }

    fn bare(&self) -> Duration {
        let since = Instant::now();
        let mut agent =
            Command::new(&self.agent).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdin = agent.stdin.take().unwrap();
        writeln!(stdin, "{INITIALIZE}").unwrap();
        let mut line = String::new();
        BufReader::new(agent.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let taken = since.elapsed();
        assert!(line.contains("protocolVersion"), "{line}");
        drop(stdin);
        agent.wait().unwrap();
        taken
    }

    /// As the worker has git clone, without its wall.
    fn bare_clone(&self, source: &Path) -> Duration {
        let folder = self.root.path().join("clones").join(SessionId::random().as_str());
        fs::create_dir_all(&folder).unwrap();
        let since = Instant::now();
        let cloned = Command::new("git")
            .args(["clone", "--quiet", "--no-local", "--no-hardlinks", "--template="])
            .args(["--upload-pack", "git -c safe.directory=* upload-pack", "--"])
            .arg(source)
            .arg(".")
            .current_dir(&folder)
            .status();
        let taken = since.elapsed();
        assert!(cloned.unwrap().success());
        taken
    }

    fn session(&self, repository: Option<Repository>) -> Times {
        let config = SessionConfig {
            user: self.config.user.clone(),
            session: SessionId::random(),
            incarnation: Incarnation(1),
            generation: Generation(1),
            tier: Tier::Domain,
            repository,
            home_template: None,
            skills: None,
            programs: vec![self.agent.clone()],
            policy: DEVELOPER.to_owned(),
            agent: AgentCommand {
                argv: vec![self.agent.display().to_string()],
                env: BTreeMap::new(),
            },
            preferred_ports: 0,
            connect: Vec::new(),
            origins: Vec::new(),
            permission_ttl: 30,
            kept: 1 << 30,
            blocked_ttl: 600,
            grace: 1,
        };
        let body = serde_json::to_string(&config).unwrap();
        let token = self.secret.sign(&Claims {
            session: config.session.clone(),
            incarnation: config.incarnation,
            generation: config.generation,
            slot: self.config.slot.clone(),
            audience: Audience::Attach,
            expires: u64::MAX,
        });
        let own = self.secret.sign_worker(&WorkerClaims {
            slot: self.config.slot.clone(),
            user: self.config.user.clone(),
            expires: u64::MAX,
        });
        let used = cpu(self.worker.id());
        let since = Instant::now();
        let said = self.call(&own, "POST", "/v1/sessions", &body);
        let ready = since.elapsed();
        assert!(said.contains(r#""event":"ready""#), "{said}");
        let since = Instant::now();
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut request = format!("ws://{}/acp", self.address).into_client_request().unwrap();
        let bearer = format!("Bearer {token}").parse().unwrap();
        request.headers_mut().insert("authorization", bearer);
        let (mut socket, _) = client(request, stream).unwrap();
        socket.send(Message::text(INITIALIZE)).unwrap();
        let answer = socket.read().unwrap();
        let answered = since.elapsed();
        assert!(answer.to_text().unwrap().contains("protocolVersion"), "{answer}");
        let cpu = cpu(self.worker.id()).saturating_sub(used);
        drop(socket);
        let path = format!("/v1/sessions/{}?storage=keep", config.session);
        let ended = self.call(&own, "DELETE", &path, "");
        assert!(ended.contains("200 OK"), "{ended}");
        Times { ready, answered, cpu }
    }

    /// HTTP/1.0: the answer ends with its connection.
    fn call(&self, token: &str, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nAuthorization: Bearer {token}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Warm {
    fn drop(&mut self) {
        // The worker follows its owner as well; its sessions end with it.
        let _ = self.worker.kill();
        let _ = self.worker.wait();
    }
}

fn hand_over(path: &Path) {
    if nix::unistd::geteuid().is_root() {
        let done = Command::new("chown").args(["-hR", "1000:1000"]).arg(path).status().unwrap();
        assert!(done.success());
    }
}
