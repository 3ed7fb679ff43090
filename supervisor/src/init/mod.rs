//! `casemate-supervisor exec`: any command behind a policy's walls, with this process as its init.
//!
//! For what is no ACP agent: a server agent, a headless task, in an image that knows nothing of casemate. It shares the
//! container's network, so its ports are reachable as far as the policy has them. This process shields itself as a worker
//! does, reaps every orphan, passes signals on and leaves with the command's code when nothing of it is left.
//!
//! | file | owns |
//! |---|---|
//! | [`options`] | the command line, and what of it is refused |
//! | [`layers`] | which walls stand, and the words for those that do not |
//! | [`casemates`] | casemate's own homes, closed to every command |
//! | [`file`] | what is written beside the command, out of its reach |
//! | [`bounds`] | what of the machine the command may take |
//! | [`watch`] | signals, grace, the end |
//! | [`install`] | this program, copied where another container finds it |

mod bounds;
mod casemates;
mod file;
pub mod install;
pub mod layers;
pub mod options;
mod watch;

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use casemate_protocol::codes::exit;
use casemate_protocol::home;
use casemate_protocol::policy::learn::kept;
use casemate_protocol::policy::{Learning, Policy};
use casemate_protocol::tier::Tier;
use casemate_sandbox::shield::calls::Role;
use casemate_sandbox::{
    Command, Places, Recorder, SpawnError, Spawner, Step, Wall, WallError, reap,
};
use nix::errno::Errno;
use serde::Serialize;

use crate::environment::DEFAULT_PATH;
use crate::learning::{self, Learner};
use crate::words::chain;
use crate::worker::identity;
use bounds::Limits;
use file::{NewFile, cannot_create, open};
use layers::Chosen;
use options::{Checked, Options};

/// Why the command was not started: what to say, and the exit code.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused {
    /// One of [`exit`].
    pub code: u8,
    /// What and how to mend it.
    pub message: String,
}

/// What holds, for `--report`.
#[derive(Debug, Serialize)]
struct Report<'a> {
    policy: &'a str,
    revision: &'a str,
    tier: Tier,
    layers: Vec<&'static str>,
    without: Vec<&'static str>,
    learning: bool,
    enforcement: Vec<String>,
    pid: u32,
    uid: u32,
    program: &'a str,
}

/// Runs the command to its end; its exit code, or why it was not started.
#[must_use]
pub fn run(options: Options) -> u8 {
    match start(options) {
        Ok(code) => code,
        Err(Refused { code, message }) => {
            say(&message);
            code
        }
    }
}

/// One line on stderr, as people and logs of any image read it.
fn say(words: &str) {
    let _ = writeln!(io::stderr(), "casemate-supervisor: {words}");
}

fn start(options: Options) -> Result<u8, Refused> {
    let chosen = options.layers();
    let (text, policy) = options.policy()?;
    let mut checked = options.check(&policy, &text)?;
    let chosen = match options.learn {
        Some(_) => {
            learnable(&policy, chosen, options.user)?;
            Chosen::LEARNING
        }
        None => chosen,
    };
    if identity::check(checked.user).is_err() && options.user != Some(0) {
        let message = "the command would be root: name a user with --user, or say --user 0 for root without capabilities";
        return Err(usage(message));
    }
    // As who this process still is: /dev/fd belongs to nobody else once it is shielded.
    let learned = options
        .learn
        .as_deref()
        .map(|file| NewFile::create("--learn", file, &checked.reach))
        .transpose()?;
    let report =
        options.report.as_deref().map(|file| open("--report", file, &checked.reach)).transpose()?;
    identity::assume(checked.user)
        .map_err(|error| Refused { code: exit::DENIED, message: chain(&error) })?;
    if checked.user.is_some() {
        casemates::reachable(&mut checked.places.never);
    }
    let shield = casemate_sandbox::shield::harden().map_err(|error| broken(&error))?;
    reap::adopt_orphans().map_err(|error| broken(&error))?;
    let stdin = io::stdin();
    let terminal = stdin.is_terminal()
        && casemate_sandbox::terminal::release(stdin.as_fd()).map_err(|error| broken(&error))?;
    let spawner = Spawner::start(&[]).map_err(|error| broken(&error))?;
    let learner = options
        .learn
        .as_deref()
        .map(|file| learner(&policy, &text, &mut checked.places, file).map(Arc::new))
        .transpose()?;
    let wall = match &learner {
        Some(learner) => {
            let recorder = Arc::clone(learner) as Arc<dyn Recorder>;
            Wall::learning(&policy, &checked.places, recorder)
        }
        None => Wall::build_of(&policy, &checked.places, chosen.walls),
    };
    let wall = wall.map_err(|error| not_built(&error, &text))?;
    let env = environment(&options, &policy, &checked.places, chosen)?;
    let limits = chosen.bounds.then(|| Limits::of(policy.bounds, &checked.places));
    let wall = match &limits {
        Some(limits) => limits.wall(wall),
        None => wall,
    };
    announce(&policy, chosen, &checked, learner.is_some());
    if let Some((name, file)) = options.report.as_deref().zip(report) {
        let mut enforcement = wall.summary();
        enforcement.extend(shield.summary());
        enforcement.extend(limits.as_ref().map(Limits::summary));
        let said = Report {
            policy: &policy.name,
            revision: &policy.revision,
            tier: checked.places.tier,
            layers: chosen.on(),
            without: chosen.off(),
            learning: learner.is_some(),
            enforcement,
            pid: std::process::id(),
            uid: nix::unistd::geteuid().as_raw(),
            program: &options.command[0],
        };
        write(file, &said).map_err(|error| cannot_create("--report", name, &error))?;
    }
    // Nothing of this process's work is left but to start, to wait and to end.
    casemate_sandbox::shield::confine(Role::Init).map_err(|error| broken(&error))?;
    let code = watch::run(spawner, chosen.walls.scope, limits, options.grace(), |session| {
        spawn(
            session,
            &wall,
            learner.as_deref(),
            &options.command,
            &env,
            &checked.places.work,
            terminal,
        )
    })?;
    if let Some((learner, file)) = learner.zip(learned) {
        keep(&learner, file).map_err(|why| Refused {
            code: exit::CANNOT_CREATE,
            message: format!("--learn: {why}"),
        })?;
    }
    Ok(code)
}

fn keep(learner: &Learner, file: NewFile) -> Result<(), String> {
    let (text, words) = learner.proposal()?;
    file.fill(text.as_bytes()).map_err(|error| error.to_string())?;
    say(&format!("{words}. Nothing is applied: read it, compare it with `casemate policy diff`"));
    Ok(())
}

/// Whether there may be a run to learn from.
fn learnable(policy: &Policy, chosen: Chosen, user: Option<u32>) -> Result<(), Refused> {
    if !chosen.off().is_empty() {
        let message =
            "--learn: it says what all layers would refuse: leave --layers and --without out";
        return Err(usage(message));
    }
    // Root that becomes somebody else is asked again below, as whom it became.
    let becomes = user.is_some_and(|user| user != 0);
    match learning::forbidden(policy) {
        Some(why) if !(becomes && policy.learning == Learning::Allowed) => {
            Err(Refused { code: exit::DENIED, message: format!("--learn: {why}") })
        }
        _ => Ok(()),
    }
}

/// Who notes, with what is closed to the run; as the user that it runs as.
fn learner(
    policy: &Policy,
    text: &str,
    places: &mut Places,
    file: &Path,
) -> Result<Learner, Refused> {
    if let Some(why) = learning::forbidden(policy) {
        return Err(Refused { code: exit::DENIED, message: format!("--learn: {why}") });
    }
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new(".")).canonicalize().unwrap_or_default();
    if [&places.work, &places.home, &places.scratch].iter().any(|own| own.starts_with(&directory)) {
        return Err(usage(format!(
            "--learn {}: name a file in a directory of its own, which is closed to the run",
            file.display()
        )));
    }
    let variable = |name: &str| std::env::var_os(name);
    let mut kept: Vec<PathBuf> = kept(variable("HOME").map(PathBuf::from).as_deref()).collect();
    // One that is not there yet may be tomorrow.
    kept.extend(home::named(&variable));
    places.never.push(directory);
    Ok(Learner::of(policy, text, places, &kept))
}

fn announce(policy: &Policy, chosen: Chosen, checked: &Checked, learns: bool) {
    let revision = policy.revision.get(..12).unwrap_or(&policy.revision);
    if learns {
        let uid = nix::unistd::geteuid();
        say(&format!(
            "LEARNING, NO WALL: the command may do whatever uid {uid} may, and what policy {} ({revision}) would refuse is noted. \
             Run nothing that you would not run without casemate",
            policy.name
        ));
        return;
    }
    say(&format!(
        "policy {} ({revision}), tier {}, layers {}",
        policy.name,
        checked.places.tier,
        chosen.on().join(", ")
    ));
    let off = chosen.off();
    if !off.is_empty() {
        say(&format!("WEAKER THAN THE POLICY: without {}", off.join(", ")));
    }
    if nix::unistd::geteuid().is_root() {
        say("WEAKER THAN IT COULD BE: the command is root, though without capabilities");
    }
}

fn write(mut file: fs::File, report: &Report<'_>) -> io::Result<()> {
    let mut json = serde_json::to_vec(report).expect("a report is plain data");
    json.push(b'\n');
    file.write_all(&json)
}

/// The policy's variables and what is added, or, without that layer, everything that this process has.
fn environment(
    options: &Options,
    policy: &Policy,
    places: &Places,
    chosen: Chosen,
) -> Result<Vec<CString>, Refused> {
    // Bytes: this process's own need not be text.
    let mut last: BTreeMap<OsString, OsString> = if chosen.environment {
        let given = casemate_sandbox::environment(policy, places);
        let path = ("PATH".to_owned(), DEFAULT_PATH.to_owned());
        let given = std::iter::once(path).chain(given);
        given.map(|(name, value)| (name.into(), value.into())).collect()
    } else {
        std::env::vars_os().collect()
    };
    let added = options.variables()?;
    last.extend(added.into_iter().map(|(name, value)| (name.into(), value.into())));
    last.into_iter()
        .map(|(name, value)| CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()))
        .collect::<Result<_, _>>()
        .map_err(|_| usage("a variable holds a NUL byte"))
}

fn usage(message: impl Into<String>) -> Refused {
    Refused { code: exit::USAGE, message: message.into() }
}

fn broken(error: &dyn std::error::Error) -> Refused {
    Refused { code: exit::SOFTWARE, message: chain(error) }
}

fn not_built(error: &WallError, text: &str) -> Refused {
    let code = match error {
        WallError::NoLandlock { .. } | WallError::Kernel { .. } => exit::KERNEL,
        _ => exit::DATA,
    };
    let placed = error.in_text(text);
    let message = match placed.position {
        Some(_) => format!("policy {placed}"),
        None => chain(error),
    };
    Refused { code, message }
}

/// Tries each place of PATH as execvp(3) does: what the walls close is passed over.
fn spawn(
    session: &casemate_sandbox::SessionSpawner,
    wall: &Wall,
    learner: Option<&Learner>,
    command: &[String],
    env: &[CString],
    work: &Path,
    terminal: bool,
) -> Result<i32, Refused> {
    let argv = command
        .iter()
        .map(|word| CString::new(word.as_str()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| usage("the command holds a NUL byte"))?;
    let path = env
        .iter()
        .find_map(|entry| entry.to_str().ok()?.strip_prefix("PATH="))
        .unwrap_or(DEFAULT_PATH);
    let own = |fd: io::Result<OwnedFd>| fd.map_err(|error| broken(&error));
    let mut closed: Option<SpawnError> = None;
    for program in candidates(&command[0], path, work) {
        let named = program.clone();
        let started = session.spawn(
            Command {
                program,
                argv: argv.clone(),
                env: env.to_vec(),
                cwd: work.to_owned(),
                stdin: own(io::stdin().as_fd().try_clone_to_owned())?,
                stdout: own(io::stdout().as_fd().try_clone_to_owned())?,
                stderr: own(io::stderr().as_fd().try_clone_to_owned())?,
                terminal,
            },
            wall,
        );
        match started {
            Ok(pid) => {
                if let Some(learner) = learner {
                    learner.started(&named);
                }
                return Ok(pid);
            }
            Err(error)
                if error.step == Step::Exec && is(&error, &[Errno::ENOENT, Errno::ENOTDIR]) => {}
            Err(error) if error.step == Step::Exec && is(&error, &[Errno::EACCES]) => {
                closed = closed.or(Some(error));
            }
            Err(error) => return Err(not_started(&command[0], &error)),
        }
    }
    Err(closed.map_or_else(
        || Refused {
            code: exit::NOT_FOUND,
            message: format!("no program `{}` in {path}", command[0]),
        },
        |error| not_started(&command[0], &error),
    ))
}

fn is(error: &SpawnError, errnos: &[Errno]) -> bool {
    errnos.iter().any(|errno| error.errno() == *errno as i32)
}

fn not_started(program: &str, error: &SpawnError) -> Refused {
    Refused { code: exit::NOT_RUNNABLE, message: format!("{program}: {}", chain(error)) }
}

fn candidates(name: &str, path: &str, work: &Path) -> Vec<PathBuf> {
    if name.contains('/') {
        return vec![work.join(name)];
    }
    path.split(':')
        .filter(|place| !place.is_empty())
        .map(|place| Path::new(place).join(name))
        .collect()
}
