//! A home, an allocator in it (in this process, or as a process of its own), and a client.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails there")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Once;
use std::time::{Duration, Instant};

use casemate_protocol::api::{
    Allocate, ApiError, Attached, End, Endpoint, Intent, SessionList, SessionView,
};
use casemate_protocol::end::EndReason;
use casemate_protocol::ids::SessionId;
use casemate_protocol::key::Key;
use serde::de::DeserializeOwned;

/// The directory that holds this build's programs.
pub fn programs() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().to_owned()
}

/// The stand-in worker; `cargo test` builds examples first.
pub fn scripted() -> PathBuf {
    let path = programs().join("examples/scripted_worker");
    assert!(
        path.exists(),
        "{} is missing; run cargo test without --test or --lib alone",
        path.display()
    );
    path
}

/// The supervisor of this build.
pub fn supervisor() -> PathBuf {
    static BUILT: Once = Once::new();
    let path = programs().join("casemate-supervisor");
    BUILT.call_once(|| {
        // `cargo test -p casemate-allocator` builds no other package's programs.
        if !path.exists() {
            let mut build = Command::new(env!("CARGO"));
            let built = build.args(["build", "-p", "casemate-supervisor"]).status();
            assert!(built.is_ok_and(|status| status.success()), "the supervisor does not build");
        }
    });
    path
}

/// A home with an allocator process. Everything in it ends with the value.
pub struct House {
    pub dir: tempfile::TempDir,
    supervisor: PathBuf,
    up: Option<Child>,
    endpoint: Option<Endpoint>,
    tier: Option<&'static str>,
}

impl House {
    pub fn new(supervisor: PathBuf) -> Self {
        let dir = tempfile::Builder::new().prefix("casemate-test-").tempdir_in("/var/tmp").unwrap();
        // Where root runs the tests, the slots' users have to get in.
        chmod(dir.path(), 0o755);
        std::fs::create_dir_all(dir.path().join("home/profiles")).unwrap();
        chmod(&dir.path().join("home"), 0o700);
        Self { dir, supervisor, up: None, endpoint: None, tier: None }
    }

    pub fn started(supervisor: PathBuf) -> Self {
        let mut house = Self::new(supervisor);
        house.up();
        house
    }

    pub fn in_tier(supervisor: PathBuf, tier: &'static str) -> Self {
        let mut house = Self::new(supervisor);
        house.tier = Some(tier);
        house.up();
        house
    }

    pub fn with_tier(mut self, tier: &'static str) -> Self {
        self.tier = Some(tier);
        self
    }

    pub fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    pub fn profile(&self, name: &str, text: &str) {
        std::fs::write(self.home().join(format!("profiles/{name}.toml")), text).unwrap();
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_casemate-allocator"));
        command.arg("--home").arg(self.home()).arg("--supervisor").arg(&self.supervisor);
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.dir.path().join("up.log"))
            .unwrap();
        command.stdin(Stdio::null()).stderr(log);
        command.args(self.tier.map(|tier| format!("--tier={tier}")));
        command
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("up.log")).unwrap_or_default()
    }

    /// Starts the allocator and waits until it serves.
    pub fn up(&mut self) {
        assert!(self.up.is_none());
        let discovery = self.home().join("run/allocator.json");
        let _ = std::fs::remove_file(&discovery);
        let child = self.command().spawn().unwrap();
        self.take_over(child, &discovery);
    }

    /// Waits until an allocator that was just started serves.
    pub fn take_over(&mut self, mut child: Child, discovery: &Path) {
        let endpoint = eventually("the allocator serves", || {
            assert!(child.try_wait().unwrap().is_none(), "it ended: {}", self.log());
            serde_json::from_slice(&std::fs::read(discovery).ok()?).ok()
        });
        self.up = Some(child);
        self.endpoint = Some(endpoint);
    }

    /// SIGKILL: no step more.
    pub fn kill_up(&mut self) {
        let mut child = self.up.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// SIGTERM, as an init system does.
    pub fn term_up(&mut self) -> std::process::ExitStatus {
        let mut child = self.up.take().unwrap();
        signal(child.id(), "TERM");
        child.wait().unwrap()
    }

    pub fn endpoint(&self) -> Endpoint {
        self.endpoint.clone().unwrap()
    }

    pub fn raw(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (u16, String) {
        http(self.endpoint().address, method, path, headers, body).unwrap()
    }

    pub fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: &str,
    ) -> Result<T, ApiError> {
        let token = format!("Bearer {}", self.endpoint().token);
        let host = self.endpoint().address.to_string();
        let headers = [("authorization", token.as_str()), ("host", host.as_str())];
        let (status, body) = self.raw(method, path, &headers, body);
        if (200..300).contains(&status) {
            Ok(serde_json::from_str(&body).unwrap())
        } else {
            let error: ApiError = serde_json::from_str(&body).unwrap();
            assert_eq!(error.kind.status(), status);
            Err(error)
        }
    }

    pub fn allocate(&self, body: &Allocate) -> Result<Attached, ApiError> {
        self.call("POST", "/v1/sessions", &serde_json::to_string(body).unwrap())
    }

    pub fn resume(&self, id: &SessionId) -> Result<Attached, ApiError> {
        self.call("POST", &format!("/v1/sessions/{id}/resume"), "")
    }

    pub fn show(&self, id: &SessionId) -> Result<SessionView, ApiError> {
        self.call("GET", &format!("/v1/sessions/{id}"), "")
    }

    pub fn list(&self) -> Vec<SessionView> {
        self.call::<SessionList>("GET", "/v1/sessions", "").unwrap().sessions
    }

    pub fn stop(&self, id: &SessionId, force: bool) -> Result<SessionView, ApiError> {
        self.end(id, "stop", &End { force, ..End::by(EndReason::Shutdown) })
    }

    pub fn close(
        &self,
        id: &SessionId,
        discard: bool,
        force: bool,
    ) -> Result<SessionView, ApiError> {
        self.end(id, "close", &End { discard, force, ..End::by(EndReason::Close) })
    }

    pub fn end(&self, id: &SessionId, what: &str, body: &End) -> Result<SessionView, ApiError> {
        let body = serde_json::to_string(body).unwrap();
        self.call("POST", &format!("/v1/sessions/{id}/{what}"), &body)
    }

    /// Gives the stand-in of a session its cue.
    pub fn cue(&self, session: &SessionView, json: &str) {
        let run = self.slot(session).join("run");
        // Whole or not at all: the stand-in reads at each call.
        std::fs::write(run.join("script.new"), json).unwrap();
        std::fs::rename(run.join("script.new"), run.join("script.json")).unwrap();
    }

    pub fn slot(&self, session: &SessionView) -> PathBuf {
        self.home().join("slots").join(session.slot.as_str())
    }

    /// The slots' directories.
    pub fn slots(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.home().join("slots"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect()
    }
}

impl Drop for House {
    fn drop(&mut self) {
        if let Some(mut up) = self.up.take() {
            let _ = up.kill();
            let _ = up.wait();
        }
        // Workers outlive their allocator: each slot's lock names its own.
        for slot in std::fs::read_dir(self.home().join("slots")).into_iter().flatten().flatten() {
            for pid in workers_of(&slot.path()) {
                signal(pid, "KILL");
            }
        }
        if std::thread::panicking() {
            eprintln!("the allocator's log:\n{}", self.log());
        }
    }
}

/// Processes whose configuration or lock names this slot: those that hold `run/lock` open.
pub fn workers_of(slot: &Path) -> Vec<u32> {
    let lock = slot.join("run/lock");
    let mut pids = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Ok(fds) = std::fs::read_dir(entry.path().join("fd")) else { continue };
        if fds.flatten().any(|fd| std::fs::read_link(fd.path()).is_ok_and(|target| target == lock))
        {
            pids.push(pid);
        }
    }
    pids
}

pub fn signal(pid: u32, name: &str) {
    let _ = Command::new("kill")
        .args([format!("-{name}"), pid.to_string()])
        .stderr(Stdio::null())
        .status();
}

pub fn chmod(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

pub fn alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')))
}

/// Waits up to 20 s for an answer.
pub fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "not within 20 s: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A request for thread `thread` with the stand-in's script.
pub fn request(id: &str, thread: &str, script: &str) -> Allocate {
    Allocate {
        request_id: id.into(),
        key: Key {
            tenant: "local".into(),
            agent: "scripted".into(),
            platform: "test".into(),
            thread: thread.into(),
        },
        intent: Intent {
            profile: "default".into(),
            agent: vec!["sh".into()],
            env: [("SCRIPT".to_owned(), script.to_owned())].into(),
            ..Intent::default()
        },
    }
}

/// One HTTP exchange over a connection of its own.
pub fn http(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    let mut text = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
    stream.write_all(text.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body).to_owned();
    Ok((status, body))
}
