//! A place, a repository and the programs, and nothing left of them afterwards.
#![allow(clippy::unwrap_used, reason = "a house that does not stand fails its test")]
#![allow(dead_code, reason = "each test binary uses its part")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Once;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::host::Host;

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

pub(crate) struct House {
    directory: TempDir,
    home: PathBuf,
}

/// The programs of the other crates, of the same build.
fn programs() -> PathBuf {
    static BUILT: Once = Once::new();
    let directory = Path::new(CASEMATE).parent().unwrap();
    BUILT.call_once(|| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args([
            "build",
            "--quiet",
            "-p",
            "casemate-supervisor",
            "-p",
            "casemate-scripted-agent",
        ]);
        if directory.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.status().unwrap().success());
    });
    directory.to_owned()
}

impl House {
    pub(crate) fn new() -> Self {
        programs();
        let directory = TempDir::with_prefix("casemate-house-").unwrap();
        // Made by the first command, with the mode that it wants.
        let house = Self { home: directory.path().join("home"), directory };
        let repository = house.repository();
        fs::create_dir(&repository).unwrap();
        fs::create_dir(house.temporary()).unwrap();
        fs::write(repository.join("a.txt"), "hello\n").unwrap();
        house.git(&["init", "--quiet"]);
        house.git(&["add", "."]);
        house.git(&["-c", "user.name=n", "-c", "user.email=e@x", "commit", "--quiet", "-m", "one"]);
        house
    }

    fn git(&self, args: &[&str]) {
        let status = Command::new("git").arg("-C").arg(self.repository()).args(args).status();
        assert!(status.unwrap().success(), "git {args:?}");
    }

    pub(crate) fn repository(&self) -> PathBuf {
        self.directory.path().join("repository")
    }

    /// Where `casemate run` puts its throw-away home.
    fn temporary(&self) -> PathBuf {
        self.directory.path().join("tmp")
    }

    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// The directory of the scripted agent and its path.
    pub(crate) fn agent() -> (String, String) {
        let directory = programs();
        let agent = directory.join("casemate-scripted-agent").display().to_string();
        (directory.display().to_string(), agent)
    }

    /// A host of the scripted agent in this repository.
    pub(crate) fn acp(&self, options: &[&str]) -> Host {
        let (directory, agent) = Self::agent();
        let repository = self.repository().display().to_string();
        let mut all = vec!["--repo", &repository, "--program", &directory];
        all.extend(options);
        Host::start(self.home(), &all, &[&agent])
    }

    /// A copy of the scripted agent among other people's things, of which one is a login.
    pub(crate) fn agent_among_others(&self) -> (String, String) {
        let directory = self.directory.path().join("Downloads");
        fs::create_dir_all(&directory).unwrap();
        let (agent, login) = (directory.join("agent"), directory.join("auth.json"));
        fs::copy(Self::agent().1, &agent).unwrap();
        fs::write(&login, "another login").unwrap();
        (agent.display().to_string(), login.display().to_string())
    }

    /// A host of any agent in this repository, for which nothing is granted by hand.
    pub(crate) fn acp_of(&self, agent: &str) -> Host {
        let repository = self.repository().display().to_string();
        Host::start(self.home(), &["--repo", &repository, "-v"], &[agent])
    }

    fn run_command(&self, options: &[&str], agent: &[&str]) -> Command {
        let mut command = Command::new(CASEMATE);
        command
            .args(["run", "--program", &Self::agent().0])
            .args(options)
            .arg("--")
            .args(agent)
            .env("TMPDIR", self.temporary())
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run_agent(&self, options: &[&str], agent: &[&str]) -> Output {
        self.run_command(options, agent).output().unwrap()
    }

    pub(crate) fn run(&self, options: &[&str]) -> Output {
        let repository = self.repository().display().to_string();
        let mut all = vec!["--repo", &repository];
        all.extend(options);
        self.run_agent(&all, &[&Self::agent().1])
    }

    pub(crate) fn start_run(&self, options: &[&str]) -> Child {
        let mut command = self.run_command(options, &[&Self::agent().1]);
        command.stdout(Stdio::piped()).spawn().unwrap()
    }

    /// A command of this house.
    pub(crate) fn command(&self, args: &[&str]) -> Output {
        Command::new(CASEMATE).arg("--home").arg(self.home()).args(args).output().unwrap()
    }

    /// What a command says in JSON.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let output =
            Command::new(CASEMATE).arg("--home").arg(self.home()).args(args).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// How often this stands in the audit logs of the house's workers.
    pub(crate) fn recorded(&self, word: &str) -> usize {
        let slots = fs::read_dir(self.home().join("slots")).unwrap();
        let logs = slots.map(|slot| slot.unwrap().path().join("state/audit.ndjson"));
        let texts = logs.filter_map(|log| fs::read_to_string(log).ok());
        texts.map(|text| text.matches(word).count()).sum()
    }

    /// Kills a session's worker and waits until it is gone.
    pub(crate) fn kill_worker(&self, session: &str) {
        let view = self.json(&["sessions", "show", session, "--json"]);
        let pid = i32::try_from(view["worker"]["pid"].as_i64().unwrap()).unwrap();
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        let started = Instant::now();
        while fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z "))
        {
            assert!(started.elapsed() < Duration::from_secs(10), "worker {pid} does not die");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Process ids of the allocators that serve this house.
    pub(crate) fn allocators(&self) -> Vec<i32> {
        self.processes(|words| words.contains(" up --background"))
    }

    /// Every process with this house's paths in its command line, and every file left of throw-away sessions.
    pub(crate) fn left_over(&self) -> Vec<String> {
        let temporary = self.temporary();
        let files = fs::read_dir(&temporary).unwrap();
        let mut left: Vec<String> =
            files.map(|entry| entry.unwrap().path().display().to_string()).collect();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let own = self.directory.path().display().to_string();
        left.extend(mounts.lines().filter(|line| line.contains(&own)).map(Into::into));
        left.extend(self.processes(|_| true).iter().map(|pid| format!("process {pid}")));
        left
    }

    fn processes(&self, wanted: impl Fn(&str) -> bool) -> Vec<i32> {
        let own = self.directory.path().display().to_string();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap() {
            let Ok(pid) = entry.unwrap().file_name().to_string_lossy().parse::<i32>() else {
                continue;
            };
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words = String::from_utf8_lossy(&words).replace('\0', " ");
            if words.contains(&own) && wanted(&words) {
                found.push(pid);
            }
        }
        found
    }

    pub(crate) fn applies(&self, patch: &str) {
        self.git(&["apply", "--check", patch]);
    }
}

impl Drop for House {
    fn drop(&mut self) {
        let stop =
            Command::new(CASEMATE).arg("--home").arg(self.home()).args(["up", "--stop"]).output();
        // A test that fails has said why already.
        if !std::thread::panicking() {
            assert!(
                stop.is_ok_and(|output| output.status.success()),
                "the allocator does not stop"
            );
        }
    }
}

/// Waits until a child's piped stdout has said this.
pub(crate) fn wait_for_line(child: &mut Child, words: &str) {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while !lines.next().expect("the child goes on").unwrap().contains(words) {}
    // Keeps the pipe open: the child must not die of a broken one.
    std::mem::forget(lines);
}
