//! A slot in a temporary directory, and a worker in it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use casemate_protocol::ids::{Generation, Incarnation, SessionId, SlotId};
use casemate_protocol::ports::PortPool;
use casemate_protocol::tier::Tier;
use casemate_protocol::token::{Audience, Claims, SigningSecret};
use casemate_protocol::worker::{AgentCommand, StartError, StartEvent, WorkerConfig, WorkerStatus};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};

/// Who starts the worker, and whom it runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// Whoever runs the tests; root on behalf of uid 1000 where that is root.
    Own,
    /// An ordinary user (by setpriv(1) where the tests run as root).
    User,
}

/// Every way in which a worker is started.
pub(crate) const ALL: [(Tier, Who); 4] = [
    (Tier::Domain, Who::Own),
    (Tier::Domain, Who::User),
    (Tier::Namespace, Who::Own),
    (Tier::Namespace, Who::User),
];

const USER: u32 = 1000;

/// How long anything may take.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A slot with a configuration to change before it is started.
pub(crate) struct Slot {
    pub(crate) root: tempfile::TempDir,
    pub(crate) config: WorkerConfig,
    pub(crate) secret: SigningSecret,
    pub(crate) who: Who,
}

/// A started worker.
pub(crate) struct Worker {
    pub(crate) child: Child,
    out: BufReader<ChildStdout>,
    pub(crate) progress: Vec<String>,
    log: PathBuf,
}

/// The scripted agent.
pub(crate) fn agent_program() -> PathBuf {
    example("scripted-agent")
}

/// An example of this crate, beside the program under test.
pub(crate) fn example(name: &str) -> PathBuf {
    let program =
        Path::new(env!("CARGO_BIN_EXE_casemate-supervisor")).with_file_name("examples").join(name);
    assert!(program.exists(), "not built: run `cargo test -p casemate-supervisor` without --test");
    program
}

/// The machine's pool, as every worker gets it. Which range a worker has is settled by the kernel, beside other tests too.
pub(crate) const POOL: PortPool = PortPool { first: 21_008, ranges: 687, preferred: 0 };

// === impl Slot ===

impl Slot {
    pub(crate) fn new(tier: Tier, who: Who) -> Self {
        let root = tempfile::Builder::new().prefix("casemate-test-").tempdir().unwrap();
        let volume = root.path().join("slots").join("w");
        fs::create_dir_all(&volume).unwrap();
        let secret = SigningSecret::generate();
        let agent = agent_program();
        let config = WorkerConfig {
            session: SessionId::random(),
            incarnation: Incarnation(1),
            generation: Generation(1),
            slot: SlotId::random(),
            verify_key: secret.public(),
            tier,
            private: vec![root.path().join("slots")],
            volume,
            repository: None,
            home_template: None,
            skills: None,
            programs: vec![agent.clone()],
            policy: include_str!("../../../policies/developer.toml").to_owned(),
            agent: AgentCommand { argv: vec![agent.display().to_string()], env: BTreeMap::new() },
            ports: POOL,
            connect: Vec::new(),
            listen: ([127, 0, 0, 1], 0).into(),
            tls: None,
            plain: false,
            origins: Vec::new(),
            permission_ttl: 30,
            kept: 1 << 30,
            blocked_ttl: 600,
            grace: 2,
            host_uid: (geteuid().is_root() && who == Who::Own).then_some(USER),
            owner: None,
            learn: None,
        };
        Self { root, config, secret, who }
    }

    /// Gives a directory and everything below it to whoever the worker runs as.
    pub(crate) fn hand_over(&self, path: &Path) {
        if geteuid().is_root() {
            let done = Command::new("chown").args(["-hR", "1000:1000"]).arg(path).status().unwrap();
            assert!(done.success());
        }
    }

    pub(crate) fn start(&self) -> Worker {
        self.start_by(crate::traced::before("worker"))
    }

    /// As [`Slot::start`], by another program with its arguments.
    pub(crate) fn start_by(&self, words: Vec<String>) -> Worker {
        for (path, mode) in [(self.root.path(), 0o755), (&self.root.path().join("slots"), 0o755)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        self.hand_over(&self.root.path().join("slots"));
        let config = serde_json::to_string(&self.config).unwrap();
        Worker::start_by(words, self.who, &config, self.root.path(), |_| {})
    }

    /// Starts and waits until it serves.
    pub(crate) fn serve(&self) -> (Worker, SocketAddr) {
        let mut worker = self.start();
        let event = worker.outcome();
        let StartEvent::Ready { address, .. } = event else {
            panic!("{event:?}\n{}", worker.log());
        };
        (worker, address)
    }

    /// Starts, and expects that it does not come to serve.
    pub(crate) fn fails(&self) -> (StartError, ExitStatus) {
        let mut worker = self.start();
        let event = worker.outcome();
        let StartEvent::Failed { error } = event else { panic!("{event:?}\n{}", worker.log()) };
        (error, worker.wait())
    }

    pub(crate) fn token(&self, audience: Audience) -> String {
        self.secret.sign(&self.claims(audience))
    }

    pub(crate) fn claims(&self, audience: Audience) -> Claims {
        Claims {
            session: self.config.session.clone(),
            incarnation: self.config.incarnation,
            generation: self.config.generation,
            slot: self.config.slot.clone(),
            audience,
            expires: u64::MAX,
        }
    }

    /// The session's own directory on the volume.
    pub(crate) fn session(&self) -> PathBuf {
        self.config.volume.join("sessions").join(self.config.session.as_str())
    }

    pub(crate) fn status(&self, address: SocketAddr) -> WorkerStatus {
        let answer = call(address, "GET", "/v1/status", Some(&self.token(Audience::Control)), "");
        assert_eq!(answer.0, 200, "{}", answer.1);
        serde_json::from_str(&answer.1).unwrap()
    }
}

// === impl Worker ===

impl Worker {
    pub(crate) fn start(who: Who, config: &str, directory: &Path) -> Self {
        Self::start_after(who, config, directory, |_| {})
    }

    /// As [`Worker::start`], and does something to the process before it has its configuration.
    pub(crate) fn start_after(
        who: Who,
        config: &str,
        directory: &Path,
        first: impl FnOnce(Pid),
    ) -> Self {
        Self::start_by(crate::traced::before("worker"), who, config, directory, first)
    }

    /// As [`Worker::start`], by another program with its arguments.
    pub(crate) fn start_by(
        mut words: Vec<String>,
        who: Who,
        config: &str,
        directory: &Path,
        first: impl FnOnce(Pid),
    ) -> Self {
        words.push(env!("CARGO_BIN_EXE_casemate-supervisor").to_owned());
        let mut command = if who == Who::User && geteuid().is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", "1000", "--regid", "1000", "--clear-groups"]).args(&words);
            command
        } else {
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            command
        };
        let log = directory.join("worker.log");
        let mut child = command
            .arg("worker")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(fs::File::options().create(true).append(true).open(&log).unwrap())
            .spawn()
            .unwrap();
        first(Pid::from_raw(i32::try_from(child.id()).unwrap()));
        child.stdin.take().unwrap().write_all(config.as_bytes()).unwrap();
        Self::of(child, log)
    }

    /// One that was started already, with its stdout piped.
    pub(crate) fn of(mut child: Child, log: PathBuf) -> Self {
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out, progress: Vec::new(), log }
    }

    /// Reads events up to the last one.
    pub(crate) fn outcome(&mut self) -> StartEvent {
        loop {
            let mut line = String::new();
            self.out.read_line(&mut line).unwrap();
            let event = serde_json::from_str(&line)
                .unwrap_or_else(|error| panic!("{error}: {line:?}\n{}", self.log()));
            match event {
                StartEvent::Progress { what } => self.progress.push(what),
                last => return last,
            }
        }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let until = Instant::now() + LONG;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                // Whatever the test was about: what the supervisor needs is in supervisor/sandbox/src/shield/supervisor.calls.
                assert!(!self.log().contains("own filter refused"), "{}", self.log());
                return status;
            }
            assert!(Instant::now() < until, "the worker did not end\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops it in order and checks that it left with 0.
    pub(crate) fn stop(mut self) {
        self.signal(Signal::SIGTERM);
        let status = self.wait();
        assert_eq!((status.code(), status.signal()), (Some(0), None), "{}", self.log());
    }

    /// The pids of everything that descends from the worker.
    pub(crate) fn descendants(&self) -> Vec<i32> {
        let mut found = vec![self.pid().as_raw()];
        let mut at = 0;
        while at < found.len() {
            let path = format!("/proc/{}/task", found[at]);
            for task in fs::read_dir(path).into_iter().flatten().flatten() {
                let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
                found.extend(children.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
            }
            at += 1;
        }
        found.remove(0);
        found
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a condition holds.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A pid that lives: exists and is no zombie.
pub(crate) fn lives(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().starts_with(" Z"))
}

/// One HTTP call with nothing but a socket: status and body.
pub(crate) fn call(
    address: SocketAddr,
    method: &str,
    path: &str,
    token: Option<&str>,
    body: &str,
) -> (u16, String) {
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    raw(
        address,
        &format!(
            "{method} {path} HTTP/1.1\r\nHost: w\r\nConnection: close\r\n{token}Content-Length: {}\r\n\r\n{body}",
            body.len()
        ),
    )
}

pub(crate) fn raw(address: SocketAddr, request: &str) -> (u16, String) {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}
