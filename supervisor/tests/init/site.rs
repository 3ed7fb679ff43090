//! Where a command works, lives and scratches, and how it is run there.

use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use tempfile::TempDir;

use crate::traced;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_casemate-supervisor");
const LONG: Duration = Duration::from_secs(30);

/// A place to work, to live and to scratch, and something beside them.
pub(crate) struct Site(TempDir);

impl Site {
    pub(crate) fn new() -> Self {
        Self::with(&[], &["secret"])
    }

    /// With these directories and files beside the three places.
    pub(crate) fn with(directories: &[&str], files: &[&str]) -> Self {
        let root = TempDir::with_prefix("casemate-init-").unwrap();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["work", "home", "scratch"].iter().chain(directories) {
            fs::create_dir_all(root.path().join(name)).unwrap();
        }
        for name in files {
            fs::write(root.path().join(name), "sentinel").unwrap();
        }
        let site = Self(root);
        if geteuid().is_root() {
            let done = Command::new("chown").args(["-R", "1000:1000"]).arg(site.path("")).status();
            assert!(done.unwrap().success());
        }
        site
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// What the options about places are; as root the command becomes user 1000.
    pub(crate) fn options(&self) -> Vec<String> {
        let mut all: Vec<String> = ["work", "home", "scratch"]
            .iter()
            .flat_map(|name| [format!("--{name}"), self.path(name).display().to_string()])
            .collect();
        if geteuid().is_root() {
            all.extend(["--user", "1000"].map(str::to_owned));
        }
        all
    }

    pub(crate) fn command(&self, before: &[&str], options: &[&str], words: &[&str]) -> Command {
        // strace(1) beside it would be one of the children that it ends with everything else, where it is PID 1.
        let traced = if before.is_empty() { traced::before("init") } else { Vec::new() };
        let traced = traced.iter().map(String::as_str);
        let mut all = before.iter().copied().chain(traced).chain([PROGRAM, "exec"]);
        let mut command = Command::new(all.next().unwrap());
        command.args(all).args(self.options()).args(options).arg("--").args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, options: &[&str], words: &[&str]) -> (i32, String, String) {
        said(self.command(&[], options, words).output().unwrap())
    }

    pub(crate) fn sh(&self, options: &[&str], script: &str) -> (i32, String, String) {
        self.run(options, &["sh", "-c", script])
    }
}

pub(crate) fn said(output: Output) -> (i32, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let errors = text(output.stderr);
    // Whatever the test is about: what it needs is in supervisor/sandbox/src/shield/init.calls.
    assert!(!errors.contains("own filter refused"), "{errors}");
    (output.status.code().unwrap(), text(output.stdout), errors)
}

pub(crate) fn wait(child: &mut Child) -> i32 {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code().unwrap();
        }
        if started.elapsed() > LONG {
            child.kill().unwrap();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
}

pub(crate) fn until(out: &mut impl Read, words: &str) -> String {
    let mut said = String::new();
    let mut lines = BufReader::new(out).lines();
    while !said.contains(words) {
        said += &lines.next().expect("it goes on").unwrap();
    }
    said
}

pub(crate) fn eventually<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(started.elapsed() < LONG, "never");
        std::thread::sleep(Duration::from_millis(10));
    }
}
