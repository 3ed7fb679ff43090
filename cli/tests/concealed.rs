//! Programs that hold keys, tokens and conversations are closed to other processes of the same user.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails there")]

use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");
const USER: u32 = 1000;

/// As an ordinary user, whoever runs the tests: what root's processes have is closed to others anyway.
fn as_user() -> Command {
    if !nix::unistd::geteuid().is_root() {
        return Command::new(CASEMATE);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "1000", "--regid", "1000", "--clear-groups", CASEMATE]);
    command
}

/// proc(5): the files of a non-dumpable process belong to root. Before it is `casemate`, the process is setpriv(1).
fn is_concealed(pid: u32) -> bool {
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let owner = std::fs::metadata(format!("/proc/{pid}/environ")).map(|meta| meta.uid());
    comm.trim() == "casemate" && owner.is_ok_and(|uid| uid == 0)
}

#[test]
fn what_holds_keys_or_conversations_is_not_dumpable() {
    for arguments in [&["up"][..], &["acp", "--", "/bin/true"], &["run", "--", "/bin/true"]] {
        let directory = TempDir::with_prefix("casemate-concealed-").unwrap();
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(directory.path(), Some(USER), Some(USER)).unwrap();
        }
        let mut child = as_user()
            .arg("--home")
            .arg(directory.path().join("home"))
            .args(arguments)
            .env("TMPDIR", directory.path())
            // Held open: whoever reads waits.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        let mut concealed = false;
        while !concealed && Instant::now() < until && child.try_wait().unwrap().is_none() {
            concealed = is_concealed(child.id());
        }
        let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
        // Not SIGINT: it may come before its handler is there, and who runs tests in the background has it ignored.
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(concealed, "{arguments:?}");
        // What `acp` may have started in the background.
        let mut stop = as_user();
        stop.arg("--home").arg(directory.path().join("home")).args(["up", "--stop"]);
        stop.output().unwrap();
    }
}
