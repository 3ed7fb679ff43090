//! Every attack of the catalogue behind the default policy's wall, and behind each half of it: the whole refuses what
//! tier `domain` promises, and what is said to stop an attack is what stops it.
#![allow(clippy::unwrap_used, reason = "a panic is the failure report")]

mod support;

use std::fs;
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use casemate_inside::SUCCEEDED;
use casemate_inside::catalogue::{
    Answer, Attack, Decoys, Defence, Expected, Planted, UNTRIED, Victim, attack, attacks,
    closed_here, is_asleep, run,
};
use casemate_protocol::policy::{DEVELOPER, Policy};
use casemate_protocol::tier::Tier;
use casemate_sandbox::{Places, Wall};
use support::{Session, Test, command, eventually, places, temp_dir, this_program, wait_for};

fn main() {
    let tests: &[Test] = &[
        ("the_wall_refuses_what_the_tier_promises", the_wall_refuses_what_the_tier_promises),
        ("what_is_said_to_stop_an_attack_stops_it", what_is_said_to_stop_an_attack_stops_it),
    ];
    support::main(tests, inside);
}

fn inside(verb: &str, arguments: &[String]) {
    assert_eq!(verb, "attack");
    let decoys: Decoys = serde_json::from_str(&arguments[0]).unwrap();
    let answers = run(&decoys, PATIENCE, |_| true).unwrap();
    println!("{}", serde_json::to_string(&answers).unwrap());
}

/// For one attack: whatever else the machine has to do meanwhile.
const PATIENCE: Duration = Duration::from_secs(120);

const MARK: &str = "86400.0625";

/// The attacks are an ordinary user's: root's pass has nothing to show.
fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

struct Site {
    dir: tempfile::TempDir,
    wall: Wall,
    env: Vec<String>,
    places: Places,
}

impl Site {
    fn new() -> Self {
        let dir = temp_dir();
        let root = dir.path().canonicalize().unwrap();
        let places = Places { programs: vec![this_program()], ..places(&root, Tier::Domain) };
        let policy = Policy::parse(DEVELOPER).unwrap();
        let wall = Wall::build(&policy, &places).unwrap();
        let env = casemate_sandbox::environment(&policy, &places);
        let env = env.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        Self { dir, wall, env, places }
    }

    fn tree(&self) -> PathBuf {
        self.dir.path().join("other")
    }
}

fn the_wall_refuses_what_the_tier_promises() {
    if is_root() {
        return;
    }
    let site = Site::new();
    let session = Session::new();
    let other = session.spawner.session().unwrap();
    let (decoy, _output) = command(Path::new("/bin/sleep"), &["sleep", MARK], &[]);
    let decoy = other.spawn(decoy, &site.wall).unwrap();
    eventually("it sleeps", || is_asleep(decoy, MARK).unwrap());
    let planted = Planted::plant(&site.tree(), None).unwrap();
    let own = i32::try_from(std::process::id()).unwrap();
    let decoys = serde_json::to_string(&planted.decoys(decoy, MARK, own)).unwrap();

    let program = this_program();
    let argv = [program.to_str().unwrap(), "inside", "attack", &decoys];
    let env: Vec<&str> = site.env.iter().map(String::as_str).collect();
    let (mut attacker, mut reader) = command(&program, &argv, &env);
    attacker.cwd = site.places.work.clone();
    let pid = session.session.spawn(attacker, &site.wall).unwrap();
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    wait_for(pid);
    let answers: Vec<Answer> = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
    other.kill_all().unwrap();
    wait_for(decoy);

    assert_eq!(answers.len(), attacks().count());
    let wrong: Vec<String> = answers
        .iter()
        .filter_map(|answer| {
            let expected = attack(&answer.id).unwrap().domain;
            let kept = match expected {
                Expected::Refused(names) => names.contains(&answer.outcome.as_str()),
                Expected::Leaks | Expected::Own => answer.outcome == SUCCEEDED,
            };
            (!kept).then(|| format!("{}: {}, not {expected:?}", answer.id, answer.outcome))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(fs::read_to_string(site.tree().join("secret")).unwrap(), "the other session's\n");
}

/// Half a wall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Half {
    Landlock,
    Seccomp,
}

impl Half {
    fn stops(self, attack: &Attack) -> Option<bool> {
        let mut stops = false;
        for defence in attack.defences {
            let half = match defence {
                Defence::FileRules
                | Defence::PortRules
                | Defence::SignalScope
                | Defence::SocketScope
                | Defence::DomainBorder => Some(Self::Landlock),
                Defence::CallRules | Defence::SocketList | Defence::Architecture => {
                    Some(Self::Seccomp)
                }
                Defence::Namespace | Defence::Nothing => None,
                // In both halves, in neither, or not ours.
                Defence::NoNewPrivileges
                | Defence::Limit
                | Defence::CleanStart
                | Defence::Kernel => return None,
            };
            stops |= half == Some(self);
        }
        Some(stops)
    }
}

fn what_is_said_to_stop_an_attack_stops_it() {
    if is_root() {
        return;
    }
    let mut wrong = Vec::new();
    for half in [Half::Landlock, Half::Seccomp] {
        let site = Site::new();
        let process = Victim::start(MARK, None).unwrap();
        let supervisor = Victim::with_its_own_program(site.dir.path(), "86400.125").unwrap();
        let planted = Planted::plant(&site.tree(), None).unwrap();
        let decoys = planted.decoys(process.pid(), MARK, supervisor.pid());
        for answer in behind(half, &site, &decoys) {
            let attack = attack(&answer.id).unwrap();
            let Some(stopped) = half.stops(attack) else { continue };
            let absent = answer.outcome == UNTRIED || closed_here(attack).is_some();
            if !absent && stopped == (answer.outcome == SUCCEEDED) {
                wrong.push(format!("{half:?} alone: {}: {}", answer.id, answer.outcome));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn behind(half: Half, site: &Site, decoys: &Decoys) -> Vec<Answer> {
    let ruleset = site.wall.ruleset_fd().unwrap().as_raw_fd();
    let filters: Vec<Vec<libc::sock_filter>> =
        site.wall.programs().iter().map(|program| program.instructions().to_vec()).collect();
    let mut command = Command::new(this_program());
    command
        .args(["inside", "attack", &serde_json::to_string(decoys).unwrap()])
        .env_clear()
        .envs(site.env.iter().filter_map(|pair| pair.split_once('=')))
        .current_dir(&site.places.work)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    // SAFETY: between fork and exec of a process with one thread; system calls on memory that was made before.
    unsafe {
        command.pre_exec(move || enforce(half, ruleset, &filters));
    }
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(&said).unwrap_or_else(|_| panic!("{half:?}: {:?} {said}", output.status))
}

fn enforce(half: Half, ruleset: i32, filters: &[Vec<libc::sock_filter>]) -> std::io::Result<()> {
    nix::sys::prctl::set_no_new_privs()?;
    if half == Half::Landlock {
        // SAFETY: both arguments are plain numbers.
        return checked(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0) });
    }
    for filter in filters {
        let program = libc::sock_fprog {
            len: u16::try_from(filter.len()).unwrap_or(u16::MAX),
            filter: filter.as_ptr().cast_mut(),
        };
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        // SAFETY: `program` and the instructions that it points at live as long as the call, which reads them.
        checked(unsafe { libc::syscall(libc::SYS_seccomp, mode, 0, &raw const program) })?;
    }
    Ok(())
}

fn checked(result: i64) -> std::io::Result<()> {
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}
