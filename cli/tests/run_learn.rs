//! `casemate run --learn` with the real programs: what an agent is refused in each tier is learned, and passes with the learned policy.

#![allow(
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

mod host;
mod house;

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use house::House;
use tempfile::TempDir;

/// A directory that everybody may enter, beside every session.
fn outside() -> TempDir {
    let directory = TempDir::with_prefix("casemate-outside-").unwrap();
    let open = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    open(directory.path(), 0o755);
    fs::create_dir(directory.path().join("made")).unwrap();
    open(&directory.path().join("made"), 0o777);
    fs::write(directory.path().join("secret"), "sentinel").unwrap();
    directory
}

/// What `casemate-supervisor exec --learn` is tried with.
fn prompt(outside: &Path, port: u16) -> String {
    let tries = include_str!("../../supervisor/tests/init/tries.sh");
    format!("!sh set -- {} {port}\n{tries}", outside.display())
}

struct Tried {
    house: House,
    outside: TempDir,
    prompt: String,
    _listener: TcpListener,
}

impl Tried {
    fn new() -> Self {
        let (house, outside) = (House::new(), outside());
        fs::create_dir_all(house.home().join("profiles")).unwrap();
        fs::set_permissions(house.home(), fs::Permissions::from_mode(0o700)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let prompt = prompt(outside.path(), listener.local_addr().unwrap().port());
        Self { house, outside, prompt, _listener: listener }
    }

    fn profile(&self, text: &str) {
        fs::write(self.house.home().join("profiles/default.toml"), text).unwrap();
    }

    fn learned(&self) -> PathBuf {
        self.outside.path().join("learned.toml")
    }

    fn run(&self, options: &[&str]) -> (Output, Vec<String>) {
        let made = self.outside.path().join("made/file");
        if made.exists() {
            fs::remove_file(made).unwrap();
        }
        let home = self.house.home().display().to_string();
        let own = ["--home", &home, "--prompt", &self.prompt];
        let output = self.house.run(&[&own, options].concat());
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let passes = said.lines().filter_map(|line| line.strip_suffix(" passes"));
        let passes = passes.map(str::to_owned).collect();
        (output, passes)
    }
}

#[test]
fn what_an_agent_is_refused_is_learned_and_passes_with_the_learned_policy() {
    let tried = Tried::new();
    let learned = tried.learned();
    let file = learned.display().to_string();
    let (walled, passes) = tried.run(&[]);
    assert_eq!((walled.status.code(), passes), (Some(0), Vec::new()), "{walled:?}");
    // In a namespace what is outside is not there at all, walls or not.
    let expected: &[&str] = match String::from_utf8_lossy(&walled.stderr).contains("tier namespace")
    {
        true => &["connect", "syscall", "socket"],
        false => &["write", "read", "connect", "syscall", "socket"],
    };
    let (open, passes) = tried.run(&["--learn", &file]);
    let words = String::from_utf8_lossy(&open.stderr).into_owned();
    assert_eq!(open.status.code(), Some(0), "{open:?}");
    assert_eq!(passes, expected, "{open:?}");
    assert!(words.contains("LEARNING, NO WALL") && words.contains("learned:"), "{words}");
    let text = fs::read_to_string(&learned).unwrap();
    assert_eq!(text.matches("learned: refused").count(), expected.len(), "{text}");
    tried.profile(&format!("policy = '{file}'\n"));
    let (again, passes) = tried.run(&[]);
    assert_eq!(again.status.code(), Some(0), "{again:?}");
    assert_eq!(passes, expected, "{again:?}");
}

/// A worker that sessions share keeps its walls: the run would teach nothing.
#[test]
fn it_is_refused_at_once_where_sessions_share_a_worker() {
    let tried = Tried::new();
    tried.profile("sharing = 'user'\n");
    let file = tried.learned().display().to_string();
    let (refused, passes) = tried.run(&["--learn", &file]);
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!((refused.status.code(), passes), (Some(64), Vec::new()), "{refused:?}");
    assert!(refused.stdout.is_empty() && words.contains("sharing"), "{refused:?}");
    assert!(!words.contains("nothing is learned") && !tried.learned().exists(), "{words}");
}

#[test]
fn it_is_refused_where_the_profiles_policy_forbids_it_and_where_a_file_is() {
    let tried = Tried::new();
    let file = tried.learned().display().to_string();
    let policy = tried.outside.path().join("policy.toml");
    let developer = casemate_protocol::policy::DEVELOPER;
    let text = developer.replacen("version = 1\n", "version = 1\nlearning = \"forbidden\"\n", 1);
    fs::write(&policy, text).unwrap();
    tried.profile(&format!("policy = '{}'\n", policy.display()));
    let (refused, passes) = tried.run(&["--learn", &file]);
    assert_eq!((refused.status.code(), passes), (Some(77), Vec::new()), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("forbids to learn"), "{refused:?}");
    assert!(!tried.learned().exists());
    fs::write(tried.learned(), "mine").unwrap();
    let (refused, passes) = tried.run(&["--learn", &file]);
    assert_eq!((refused.status.code(), passes), (Some(73), Vec::new()), "{refused:?}");
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(words.contains("is there already") && words.contains("or name another"), "{words}");
    assert_eq!(fs::read_to_string(tried.learned()).unwrap(), "mine");
}
