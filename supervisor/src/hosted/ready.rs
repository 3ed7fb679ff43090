//! A session made ready: its walls, its clone, the look from inside, and everything that its generation will need.
//!
//! Nothing here is of the worker: it is the same for the one session of a worker that is given at the start and for each that
//! a worker of many takes in later.

use std::cell::OnceCell;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::slice;
use std::sync::Arc;

use casemate_protocol::matrix::Matrix;
use casemate_protocol::policy::{Policy, Port};
use casemate_protocol::ports::PortRange;
use casemate_protocol::tier::Tier;
use casemate_protocol::usage::HeldBy;
use casemate_protocol::worker::{StartError, WorkerConfig};
use casemate_sandbox::namespaces::Withdrawal;
use casemate_sandbox::users;
use casemate_sandbox::{Listener, Places, ProbeAnswer, SpawnError, Spawner, Step, Wall, WallError};
use nix::errno::Errno;

use super::state::State;
use crate::bounds::Bounds;
use crate::bounds::backstop::backstop;
use crate::durable::Flush;
use crate::environment::{self, DEFAULT_PATH};
use crate::evidence::Inspector;
use crate::layout::Layout;
use crate::learning::{self, Learner};
use crate::probe::judge::{self, Said};
use crate::probe::measure::{Place, measure};
use crate::probe::range::Range;
use crate::process::agent::Recipe;
use crate::process::confined::c_strings;
use crate::process::reaper::Session;
use crate::provision::{Marker, Provisioner, Resolved, Seed};
use crate::report::Report;
use crate::shared::Turn;
use crate::skills::Skills;
use crate::slot::pod;
use crate::told::Told;
use crate::words::chain;
use crate::{shield, walls};

/// What a session is made of.
#[derive(Debug)]
pub struct Making<'a> {
    /// The configuration.
    pub config: WorkerConfig,
    /// Its policy.
    pub policy: Policy,
    /// The file that the configuration came from: no agent may read it.
    pub file: Option<PathBuf>,
    /// The places of other sessions in the same slot: no wall grants them, and they are tried from inside.
    pub others: Vec<PathBuf>,
    /// Where everything is.
    pub layout: Layout,
    /// The remote, if one is to be cloned.
    pub resolved: Option<Resolved>,
    /// The means to hide what the agent has no business with; `None` in tier `domain`.
    pub withdrawal: Option<Withdrawal>,
    /// The session's own ports.
    pub ports: PortRange,
    /// Where its processes run.
    pub session: Rc<Session>,
    /// Nothing but this session's worker runs as its user, so that the kernel can count it.
    pub alone: bool,
    /// How the supervisor is shielded: one line a mechanism.
    pub shield: Vec<String>,
    /// What is known of the walls.
    pub probing: Probing<'a>,
    /// Where the worker keeps an empty repository.
    pub seed: Option<&'a Seed>,
    /// Before this is done, nothing on the disk may say that the session's trees are made.
    pub placed: Option<Flush>,
    /// Who hears how it goes.
    pub report: &'a dyn Report,
}

/// Whether the walls are still to be tried.
#[derive(Debug)]
pub enum Probing<'a> {
    /// They are.
    Measure {
        /// Gives the attacker and its decoy a session each.
        spawner: &'a Spawner,
        /// What is shot at.
        range: Box<Range>,
        /// Given up as soon as they were, where others wait.
        turn: Option<Turn<'a>>,
    },
    /// They were, by this process and for this policy.
    Known(Matrix),
}

/// A session that is ready to be served.
#[derive(Debug)]
pub struct Ready {
    /// The configuration.
    pub config: WorkerConfig,
    /// Where everything is.
    pub layout: Layout,
    /// The supervisor's own.
    pub state: State,
    /// Where its processes run.
    pub session: Rc<Session>,
    /// What it may take of the machine.
    pub bounds: Rc<Bounds>,
    /// What its walls refuse, where that is told.
    pub told: Option<Arc<Told>>,
    /// What it would be refused, where it is learned from.
    pub learner: Option<Arc<Learner>>,
    /// The agent's wall.
    pub wall: Wall,
    /// How to start the agent.
    pub recipe: Recipe,
    /// How to look at the worktree.
    pub inspector: Inspector,
    /// As measured.
    pub tier: Tier,
    /// Of the policy.
    pub policy_revision: String,
    /// The skills.
    pub skills: Option<Skills>,
    /// One line a mechanism.
    pub enforcement: Vec<String>,
    /// What the walls stop.
    pub matrix: Matrix,
}

/// Makes a session ready.
///
/// # Errors
/// [`StartError`]; what was made of its trees is made anew by the next try.
pub async fn make(making: Making<'_>) -> Result<Ready, StartError> {
    let Making { config, policy, file, layout, resolved, withdrawal, ports, session, .. } = making;
    let report = making.report;
    let mut places = layout.places(&config, file.as_deref(), ports);
    places.never.extend(making.others.iter().cloned());
    let processes = policy.bounds.processes;
    let (held_by, backstop) = match processes.filter(|_| making.alone) {
        Some(_) => (HeldBy::Kernel, None),
        None => (HeldBy::Watch, backstop(processes)),
    };
    let tasks = if held_by == HeldBy::Kernel { processes } else { backstop };
    let bounds = Bounds::set(
        policy.bounds,
        held_by,
        backstop,
        vec![layout.inside.work.clone(), layout.inside.home.clone(), layout.inside.scratch.clone()],
        Rc::clone(&session),
    )
    .map_err(|error| StartError::Other { message: chain(&error) })?;
    // What stays closed to the agent is not closed to what makes its trees.
    let mut opened = places.clone();
    let learner = learner(&config, &policy, &mut opened)?;
    let told = if learner.is_none() { Told::of(&policy, &places) } else { None };
    let mut wall = match &learner {
        Some(learner) => walls::learning(&policy, &opened, tasks, learner)?,
        None => walls::build(&policy, &places, tasks)?,
    };
    if let Some(told) = &told {
        let wrong = |error: WallError| StartError::Kernel { message: chain(&error) };
        wall = wall.told_to(Arc::clone(told) as Arc<dyn Listener>).map_err(wrong)?;
    }
    session.spawner.prepare(&wall).map_err(|error| no_probe(&error))?;
    let given = casemate_sandbox::environment(&policy, &places);
    let path = path_of(&given);
    let git = environment::find_program("git", &path, &layout.inside.work).ok();
    // Looked for before the clone: an agent that is not there should not cost one.
    let arguments: Vec<String> = environment::arguments(&config, ports, &layout.inside.work)
        .into_iter()
        .map(|word| layout.word_inside(word))
        .collect();
    let with_own = environment::variables(&config, ports, given.clone(), None);
    let agent_path = with_own.get("PATH").map_or(DEFAULT_PATH, String::as_str);
    let program = environment::find_program(&arguments[0], agent_path, &layout.inside.work)?;
    let clones = resolved.is_some() || layout.source.is_some();
    if clones && Marker::read(&layout.inside.state, &config)?.is_none() {
        let probed = session.spawner.probe(slice::from_ref(&program), &wall);
        within_reach(&probed.map_err(|error| no_probe(&error))?, &program)?;
    }

    let made = async {
        Provisioner {
            config: &config,
            layout: &layout,
            session: &session,
            policy: &policy,
            places: &places,
            tasks,
            wall: OnceCell::new(),
            seed: making.seed,
            placed: making.placed,
            path: &path,
            git: git.as_deref(),
            resolved: resolved.as_ref(),
            blobless: resolved
                .as_ref()
                .is_some_and(|from| may_connect(&places, &policy, from.remote.port)),
            report,
        }
        .provision()
        .await
    };
    let matrix = async {
        match making.probing {
            // There is nothing to be tried: it is said to be open.
            _ if learner.is_some() => {
                Ok(Matrix { tier: config.tier, took_ms: 0, rows: Vec::new() })
            }
            Probing::Known(matrix) => Ok(matrix),
            Probing::Measure { spawner, range, turn } => {
                let (reaper, cwd) = (&session.reaper, &layout.inside.scratch);
                let place =
                    Place { spawner, reaper, wall: &wall, env: &given, cwd, tier: layout.wall() };
                let matrix = measure(place, &Said::of(&policy, &places), *range).await?;
                judge::keeps_its_promise(&matrix)?;
                if let Some(turn) = turn {
                    turn.found(matrix.clone());
                }
                Ok(matrix)
            }
        }
    };
    // Beside the clone: it waits for the disk or the network most of its time.
    let (made, matrix) = tokio::join!(made, matrix);
    let (made, matrix) = (made?, matrix?);

    // What a git left behind (its own maintenance) must hold nothing open of what is taken away below.
    session.end().await;
    report.progress("trying the walls from inside".to_owned());
    let mut walled = layout.walled(&config, file.as_deref());
    walled.extend(making.others);
    let elsewhere = if config.tier == Tier::Pod { &pod::ELSEWHERE[..] } else { &[][..] };
    let elsewhere = elsewhere.iter().map(PathBuf::from);
    let tried: Vec<PathBuf> =
        walled.iter().chain([&program]).cloned().chain(elsewhere.clone()).collect();
    let base = made.base.clone();
    // The disk works while the walls are tried.
    let (kept, answers) = tokio::join!(made.keep(), async { session.spawner.probe(&tried, &wall) });
    kept?;
    let answers = answers.map_err(|error| no_probe(&error))?;
    within_reach(&answers, &program)?;
    let tier = if config.tier == Tier::Pod {
        shield::judge_in_pod(&answers, &walled, &elsewhere.collect::<Vec<_>>())?
    } else {
        shield::judge(&answers, &walled, &layout.decoy(&config), config.tier)?
    };
    // After the probe, which tries Landlock alone on it.
    let state = State::keep(&layout, withdrawal)?;

    let (skills, revision) = read_skills(&layout)?.unzip();
    let shown = layout.skills.as_ref().zip(revision.as_deref());
    let shown = shown.map(|((_, path), revision)| (path.as_path(), revision));
    let variables: Vec<(String, String)> = environment::trusting(
        environment::variables(&config, ports, given, shown),
        &layout.inside.work,
    )
    .into_iter()
    .collect();
    let recipe = Recipe {
        program,
        argv: words(arguments)?,
        env: words(variables.iter().map(|(name, value)| format!("{name}={value}")).collect())?,
        cwd: layout.inside.work.clone(),
        stderr_log: state.path().join("agent-stderr.log"),
    };
    let mut env = variables;
    env.push(("GIT_OPTIONAL_LOCKS".into(), "0".into()));
    let inspector = Inspector { git, env, work: layout.inside.work.clone(), base };
    let mut enforcement = wall.summary();
    enforcement.extend(making.shield);
    if learner.is_none() {
        enforcement.push(Told::summary(told.as_deref()));
    }
    enforcement.push(bounds.summary());
    enforcement.push(identity(making.alone));
    enforcement.extend(shared_limits(making.alone));
    enforcement.push(matrix.summary());
    enforcement.push(format!("tcp ports {} claimed", environment::first_and_last(ports)));
    Ok(Ready {
        policy_revision: policy.revision,
        config,
        layout,
        state,
        session,
        bounds,
        told,
        learner,
        wall,
        recipe,
        inspector,
        tier,
        skills,
        enforcement,
        matrix,
    })
}

/// Who notes what a session is not refused, where that is asked for and allowed.
fn learner(
    config: &WorkerConfig,
    policy: &Policy,
    places: &mut Places,
) -> Result<Option<Arc<Learner>>, StartError> {
    let Some(kept) = &config.learn else { return Ok(None) };
    if let Some(why) = learning::forbidden(policy) {
        return Err(StartError::Forbidden { message: why.to_owned() });
    }
    Ok(Some(Arc::new(Learner::of(policy, &config.policy, places, kept))))
}

/// Whom the session runs as, for the status.
fn identity(alone: bool) -> String {
    let namespace = if users::in_own_namespace() { "own" } else { "the machine's" };
    let shared = if alone { "this worker's alone" } else { "shared with others" };
    format!("uid {} {shared}, user namespace {namespace}", nix::unistd::geteuid())
}

/// What else the kernel counts by user ([SECURITY.md] lists it), for the status. To try it would take it from the user's other programs.
fn shared_limits(alone: bool) -> Option<String> {
    (!alone).then(|| {
        "counted by the kernel for all that this user runs, so any of it can use them up: processes, inotify instances and watches, \
         pending signals, message queues, keys, pipe buffers"
            .to_owned()
    })
}

fn no_probe(error: &SpawnError) -> StartError {
    StartError::Shield { message: chain(error) }
}

/// In tier `domain` a program may be there and yet be closed to the agent.
fn within_reach(answers: &[ProbeAnswer], program: &Path) -> Result<(), StartError> {
    let closed =
        |answer: &ProbeAnswer| answer.path == program && answer.read_errno == Errno::EACCES as i32;
    if answers.iter().any(closed) {
        return Err(StartError::AgentNotFound {
            message: format!(
                "{} is there, but the policy keeps it from the agent: name its directory in `programs`",
                program.display()
            ),
        });
    }
    Ok(())
}

/// The session itself may connect to this port later on.
fn may_connect(places: &Places, policy: &Policy, port: u16) -> bool {
    policy.tcp.iter().flat_map(|rule| &rule.connect).any(|allowed| match allowed {
        Port::Number(number) => *number == port,
        Port::Connect => places.connect.contains(&port),
        Port::Own => places.ports.iter().any(|own| own == port),
    })
}

fn path_of(variables: &[(String, String)]) -> String {
    let path = variables.iter().rev().find(|(name, _)| name == "PATH");
    path.map_or_else(|| DEFAULT_PATH.to_owned(), |(_, value)| value.clone())
}

fn read_skills(layout: &Layout) -> Result<Option<(Skills, String)>, StartError> {
    let Some((outside, inside)) = &layout.skills else { return Ok(None) };
    let trouble = |error: &dyn std::fmt::Display| StartError::Config {
        message: format!("skills {}: {error}: check its owner and mode", outside.display()),
    };
    let skills = Skills::read(inside).map_err(|error| trouble(&error))?;
    let revision = skills.revision(|_| ()).ok_or_else(|| trouble(&"it was changed meanwhile"))?;
    Ok(Some((skills, revision)))
}

fn words(list: Vec<String>) -> Result<Vec<CString>, StartError> {
    c_strings(list).map_err(|error| StartError::Config { message: error.to_string() })
}

/// Why the spawner gave no thread.
#[must_use]
pub fn no_session(error: &SpawnError) -> StartError {
    let message = chain(error);
    if error.step == Step::SignalScope {
        StartError::Kernel { message }
    } else {
        StartError::Other { message }
    }
}
