//! Runs tests one after another in one thread: the spawner and the namespaces are made before any thread exists, which
//! libtest cannot offer. As root every test runs twice, as root and as uid 1000: the product is for ordinary users.
// Each test program uses a part of it; a panic is the failure report; a test program leaves by its exit code.
#![allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    clippy::exit,
    reason = "each test program uses its part; a role ends its process"
)]

mod places;

use std::ffi::CString;
use std::fs;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use casemate_sandbox::{Command, Exit, Program, SessionSpawner, Spawner, Wall, reap};
use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, Scope,
};

pub(crate) use places::places;

/// A test's name and body.
pub(crate) type Test = (&'static str, fn());

/// The user that root's second pass runs as.
pub(crate) const USER: u32 = 1000;
/// Set for that pass.
const AGAIN: &str = "CASEMATE_TEST_SECOND_RUN";

/// The file's `main`: a verb of `inside` if this is the agent, else the tests.
pub(crate) fn main(tests: &[Test], inside: fn(&str, &[String])) {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, word, verb, rest @ ..] = arguments.as_slice()
        && word == "inside"
    {
        inside(verb, rest);
        return;
    }
    let filter = arguments.iter().skip(1).find(|word| !word.starts_with("--")).cloned();
    let user = nix::unistd::geteuid();
    println!("\nrunning {} tests as uid {user}", tests.len());
    let mut failed = 0_usize;
    let mut passed = 0_usize;
    for (name, body) in tests {
        if filter.as_ref().is_some_and(|filter| !name.contains(filter.as_str())) {
            continue;
        }
        let outcome = catch_unwind(AssertUnwindSafe(body));
        println!("test {name} (uid {user}) ... {}", if outcome.is_ok() { "ok" } else { "FAILED" });
        if outcome.is_ok() {
            passed += 1
        } else {
            failed += 1
        }
        // What a test leaves to be reaped must not confuse the next one.
        settle();
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {word}. {passed} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out"
    );
    if user.is_root() && !second_pass(&arguments) {
        failed += 1;
    }
    std::process::exit(i32::from(failed != 0));
}

/// The same tests as an ordinary user, from a copy of this program that the user may run.
fn second_pass(arguments: &[String]) -> bool {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = dir.path().join("tests");
    fs::copy("/proc/self/exe", &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = std::process::Command::new(&copy);
    command.args(&arguments[1..]).current_dir("/").env(AGAIN, "1");
    // SAFETY: two system calls between fork and exec of a single-threaded process.
    unsafe {
        command.pre_exec(|| {
            nix::unistd::setgroups(&[])?;
            nix::unistd::setresgid(USER.into(), USER.into(), USER.into())?;
            nix::unistd::setresuid(USER.into(), USER.into(), USER.into())?;
            Ok(())
        });
    }
    command.status().unwrap().success()
}

/// Whether this is the second run, as uid 1000, of tests that ran as root: what only root has was tried then.
pub(crate) fn is_second_run() -> bool {
    std::env::var_os(AGAIN).is_some()
}

fn settle() {
    let until = Instant::now() + Duration::from_millis(200);
    while Instant::now() < until
        && nix::sys::wait::waitpid(None, Some(nix::sys::wait::WaitPidFlag::WNOHANG)).is_ok()
    {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// This program, where the user of this pass may run it.
pub(crate) fn this_program() -> PathBuf {
    fs::read_link("/proc/self/exe").unwrap()
}

/// Reads and runs everything, writes below `writable`, signals and abstract sockets scoped. The seccomp program refuses
/// prlimit64(2) on other processes.
pub(crate) fn wall(writable: &[&Path]) -> Wall {
    wall_over(&[Path::new("/")], writable)
}

/// As [`wall`], by a policy that says nothing of signals.
pub(crate) fn wall_without_scopes() -> Wall {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::MakeBlock)
        .unwrap()
        .create()
        .unwrap();
    let fd: Option<OwnedFd> = ruleset.into();
    Wall::from_parts(fd.unwrap(), vec![prlimit_filter()], Vec::new())
}

/// Reads below `readable` only.
pub(crate) fn wall_over(readable: &[&Path], writable: &[&Path]) -> Wall {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V5))
        .unwrap()
        .scope(Scope::Signal)
        .unwrap()
        .scope(Scope::AbstractUnixSocket)
        .unwrap()
        .create()
        .unwrap();
    for path in readable {
        let rule = PathBeneath::new(PathFd::new(path).unwrap(), AccessFs::from_read(ABI::V5));
        ruleset = ruleset.add_rule(rule).unwrap();
    }
    for path in writable.iter().chain(&[Path::new("/dev/null")]) {
        let path_fd = PathFd::new(path).unwrap();
        let access =
            if path.is_dir() { AccessFs::from_all(ABI::V5) } else { AccessFs::from_file(ABI::V5) };
        ruleset = ruleset.add_rule(PathBeneath::new(path_fd, access)).unwrap();
    }
    let fd: Option<OwnedFd> = ruleset.into();
    Wall::from_parts(fd.unwrap(), vec![prlimit_filter()], Vec::new())
}

/// EPERM for prlimit64(2) with a pid that is not 0, everything else allowed.
fn prlimit_filter() -> Program {
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let number = u32::try_from(libc::SYS_prlimit64).unwrap();
    Program::new(vec![
        step(0x20, 0, 0, 0),           // load nr
        step(0x15, 0, 3, number),      // not prlimit64: to allow
        step(0x20, 0, 0, 16),          // load the low half of argument 0
        step(0x15, 1, 0, 0),           // itself: to allow
        step(0x06, 0, 0, 0x0005_0001), // EPERM
        step(0x06, 0, 0, 0x7fff_0000), // allow
    ])
}

/// A session under test and its agents' outputs.
pub(crate) struct Session {
    pub(crate) spawner: Spawner,
    pub(crate) session: SessionSpawner,
}

impl Session {
    pub(crate) fn new() -> Self {
        casemate_sandbox::reap::adopt_orphans().unwrap();
        let spawner = Spawner::start(&[]).unwrap();
        let session = spawner.session().unwrap();
        Self { spawner, session }
    }
}

/// A command that runs a verb of this file's `inside`, and the reading end of its output.
pub(crate) fn inside(verb: &str, arguments: &[&str]) -> (Command, std::io::PipeReader) {
    let program = this_program();
    let mut argv = vec![program.to_str().unwrap(), "inside", verb];
    argv.extend(arguments);
    command(&program, &argv, &["PATH=/usr/bin:/bin"])
}

/// Any command, its output and errors in one pipe.
pub(crate) fn command(
    program: &Path,
    argv: &[&str],
    env: &[&str],
) -> (Command, std::io::PipeReader) {
    let (reader, writer) = std::io::pipe().unwrap();
    let texts = |list: &[&str]| list.iter().map(|text| CString::new(*text).unwrap()).collect();
    let command = Command {
        program: program.to_owned(),
        argv: texts(argv),
        env: texts(env),
        cwd: PathBuf::from("/"),
        stdin: fs::File::open("/dev/null").unwrap().into(),
        stdout: writer.try_clone().unwrap().into(),
        stderr: writer.into(),
        terminal: false,
    };
    (command, reader)
}

/// Runs it to its end: how it ended and what it said.
pub(crate) fn run(
    session: &SessionSpawner,
    wall: &Wall,
    verb: &str,
    arguments: &[&str],
) -> (Exit, String) {
    let (command, mut reader) = inside(verb, arguments);
    let pid = session.spawn(command, wall).unwrap();
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    (wait_for(pid), said)
}

/// The end of a child; the ends of others meanwhile are dropped.
pub(crate) fn wait_for(pid: i32) -> Exit {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some((_, exit)) = reap().into_iter().find(|(ended, _)| *ended == pid) {
            return exit;
        }
        assert!(Instant::now() < until, "process {pid} did not end");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until something holds; the ceiling is for what never will.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < until, "{what}: not within 60 s");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A directory that the current user owns and everybody may enter.
pub(crate) fn temp_dir() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    dir
}
