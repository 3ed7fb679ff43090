//! One test's own machine: HOME, casemate's home, a sample repository, and every process started in it.
//!
//! Places of one test process exist one after the other: all the processes below are then this place's, and dropping
//! it ends them by pid.

use std::collections::HashSet;
use std::fs::DirBuilder;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use casemate_protocol::api::{Endpoint, Phase, SessionView};
use nix::sys::signal::Signal;

use crate::processes;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// What a command said.
#[derive(Debug)]
pub struct Said {
    /// How it ended.
    pub status: ExitStatus,
    /// Its stdout.
    pub out: String,
    /// Its stderr.
    pub err: String,
}

/// The place.
#[derive(Debug)]
pub struct Place {
    room: tempfile::TempDir,
    variables: Vec<(String, String)>,
    _turn: MutexGuard<'static, ()>,
}

/// Runs git with a fixed identity and none of this machine's configuration.
///
/// # Panics
/// Where git fails: a test cannot go on without its repository.
pub fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", concat!(env!("CARGO_MANIFEST_DIR"), "/gitconfig"))
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .envs([("GIT_AUTHOR_NAME", "suite"), ("GIT_AUTHOR_EMAIL", "suite@localhost")])
        .envs([("GIT_COMMITTER_NAME", "suite"), ("GIT_COMMITTER_EMAIL", "suite@localhost")])
        .output()
        .expect("git is installed");
    assert!(
        output.status.success(),
        "git {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A program of this workspace, built beside the running test.
///
/// # Panics
/// Where it was not built.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a running program has a path");
    let path = test.ancestors().nth(2).expect("tests run in target/PROFILE/deps").join(name);
    assert!(path.exists(), "{} is missing: run `cargo build --workspace`", path.display());
    path
}

// === impl Place ===

impl Place {
    /// A new place with a sample repository of one commit.
    ///
    /// # Panics
    /// Where no temporary directory is to be had.
    #[must_use]
    pub fn new() -> Self {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        processes::adopt_orphans();
        let room = tempfile::tempdir().expect("a temporary directory is to be had");
        let place = Self { room, variables: Vec::new(), _turn: turn };
        std::fs::create_dir(place.home()).expect("an empty directory takes one more");
        std::fs::create_dir(place.repository()).expect("an empty directory takes one more");
        git(&place.repository(), &["init", "-q", "-b", "main"]);
        std::fs::write(place.repository().join("README"), "sample\n").expect("it is ours");
        git(&place.repository(), &["add", "."]);
        git(&place.repository(), &["commit", "-q", "-m", "the sample"]);
        place
    }

    /// The place's directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.room.path()
    }

    /// HOME of all that runs here.
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.path().join("home")
    }

    /// `CASEMATE_HOME` of all that runs here.
    #[must_use]
    pub fn casemate_home(&self) -> PathBuf {
        self.path().join("casemate")
    }

    /// Writes a profile.
    ///
    /// # Panics
    /// Where it cannot be written.
    pub fn profile(&self, name: &str, text: &str) {
        let profiles = self.casemate_home().join("profiles");
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&profiles);
        made.expect("the place is ours");
        std::fs::write(profiles.join(format!("{name}.toml")), text).expect("the place is ours");
    }

    /// The sample repository.
    #[must_use]
    pub fn repository(&self) -> PathBuf {
        self.path().join("sample")
    }

    /// One more variable for all that is started from now on.
    pub fn set(&mut self, name: &str, value: &str) {
        self.variables.push((name.into(), value.into()));
    }

    /// The environment of all that runs here.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, String)> {
        let mut all = vec![
            ("PATH".to_owned(), std::env::var("PATH").unwrap_or_default()),
            ("HOME".to_owned(), self.home().display().to_string()),
            ("CASEMATE_HOME".to_owned(), self.casemate_home().display().to_string()),
        ];
        all.extend(self.variables.clone());
        all
    }

    /// The scripted agent, alone in a directory of its own, so that granting the directory grants nothing else.
    ///
    /// # Panics
    /// Where it was not built or cannot be copied.
    #[must_use]
    pub fn scripted_agent(&self) -> PathBuf {
        self.alone("casemate-scripted-agent")
    }

    fn alone(&self, name: &str) -> PathBuf {
        let copy = self.path().join("agent").join(name).join(name);
        if !copy.exists() {
            let directory = copy.parent().expect("it lies in a directory");
            std::fs::create_dir_all(directory).expect("the place is ours");
            std::fs::copy(program(name), &copy).expect("the place is ours");
        }
        copy
    }

    /// `casemate acp` with these options and the scripted agent, here.
    ///
    /// # Panics
    /// Where the agent was not built.
    #[must_use]
    pub fn bridge(&self, options: &[&str]) -> Command {
        self.bridge_to("casemate-scripted-agent", options)
    }

    /// `casemate acp` with these options and another agent of this workspace, here.
    ///
    /// # Panics
    /// Where the agent was not built.
    #[must_use]
    pub fn bridge_to(&self, agent: &str, options: &[&str]) -> Command {
        let agent = self.alone(agent);
        let directory = agent.parent().expect("it lies in a directory").to_owned();
        let mut command = self.casemate(&["acp"]);
        command.args(options).arg("--program").arg(directory).arg("--").arg(agent);
        command
    }

    /// `casemate` with these arguments, here.
    #[must_use]
    pub fn casemate<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(program("casemate"));
        command.args(arguments).env_clear().envs(self.environment()).current_dir(self.path());
        command
    }

    /// Runs to its end with this on stdin; killed after `within`.
    ///
    /// # Panics
    /// Where it does not start or does not end in time.
    #[must_use]
    pub fn run(&self, command: &mut Command, stdin: &str, within: Duration) -> Said {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut pipe = child.stdin.take().expect("stdin was asked for");
        // One that refuses early never reads its input.
        pipe.write_all(stdin.as_bytes()).ok();
        drop(pipe);
        let out = gather(child.stdout.take().expect("stdout was asked for"));
        let err = gather(child.stderr.take().expect("stderr was asked for"));
        let status = self.wait(&mut child, within);
        // A daemon that it left behind must have closed these, or joining would wait for the daemon.
        let said = |thread: std::thread::JoinHandle<String>| {
            processes::until(Duration::from_secs(5), || thread.is_finished().then_some(()))
                .expect("nobody holds the command's stdout or stderr once it has ended");
            thread.join().expect("reading does not panic")
        };
        let (out, err) = (said(out), said(err));
        let status = status.unwrap_or_else(|| panic!("{command:?} still ran\n{out}\n{err}"));
        Said { status, out, err }
    }

    /// Waits for a child's end; kills it and gives nothing where it takes too long.
    #[must_use]
    pub fn wait(&self, child: &mut Child, within: Duration) -> Option<ExitStatus> {
        let ended = processes::until(within, || child.try_wait().ok().flatten());
        if ended.is_none() {
            child.kill().ok();
            child.wait().ok();
        }
        ended
    }

    /// Where the allocator of this place is, if one was started.
    #[must_use]
    pub fn endpoint(&self) -> Option<Endpoint> {
        let text = std::fs::read(self.casemate_home().join("run/allocator.json")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// `GET /v1/sessions` of the allocator of this place.
    #[must_use]
    pub fn sessions(&self) -> Option<Vec<SessionView>> {
        let endpoint = self.endpoint()?;
        let mut stream = std::net::TcpStream::connect(endpoint.address).ok()?;
        write!(
            stream,
            "GET /v1/sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\r\n",
            endpoint.token
        )
        .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let body = answer.split_once("\r\n\r\n")?.1;
        let start = body.find('{')?;
        let end = body.rfind('}')?;
        let list: casemate_protocol::api::SessionList =
            serde_json::from_str(&body[start..=end]).ok()?;
        Some(list.sessions)
    }

    /// The sessions that are not over: an agent's introduction leaves a record of a session that was never used.
    #[must_use]
    pub fn living(&self) -> Option<Vec<SessionView>> {
        let mut sessions = self.sessions()?;
        sessions.retain(|session| session.phase != Phase::Ended);
        Some(sessions)
    }

    /// The slots' directories.
    #[must_use]
    pub fn slots(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.casemate_home().join("slots"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect()
    }

    /// Asks the allocator to end, then ends all that still runs here; gives back what was still there.
    pub fn end_all(&self) -> Vec<processes::Process> {
        if let Some(endpoint) = self.endpoint()
            && let Ok(pid) = i32::try_from(endpoint.pid)
            && processes::ours().iter().any(|process| process.pid == pid)
        {
            let _ = processes::signal(pid, Signal::SIGTERM);
            processes::until(Duration::from_secs(5), || {
                processes::reap(&HashSet::new());
                processes::ours().iter().all(|process| process.pid != pid).then_some(())
            });
        }
        let left = processes::ours();
        for process in &left {
            let _ = processes::signal(process.pid, Signal::SIGKILL);
        }
        processes::until(Duration::from_secs(5), || {
            processes::reap(&HashSet::new());
            processes::ours().is_empty().then_some(())
        });
        left
    }
}

impl Default for Place {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.end_all();
    }
}

fn gather(mut pipe: impl std::io::Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        pipe.read_to_end(&mut all).ok();
        String::from_utf8_lossy(&all).into_owned()
    })
}
