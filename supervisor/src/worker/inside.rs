//! From the shield on: the session, its walls, its clone, the probe; then [`serve`](super::serve).

use std::ffi::CString;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::rc::Rc;

use casemate_protocol::ids::BootId;
use casemate_protocol::policy::{Policy, Port};
use casemate_protocol::tier::Tier;
use casemate_protocol::worker::{StartError, WorkerConfig};
use casemate_sandbox::shield::ShieldReport;
use casemate_sandbox::{Places, SpawnError, Spawner, Step, Wall, WallError};
use nix::errno::Errno;
use tokio::signal::unix::{SignalKind, signal};

use super::outside::Prepared;
use super::state::State;
use super::{STOPPED, other, serve};
use crate::environment::{self, DEFAULT_PATH};
use crate::evidence::Inspector;
use crate::layout::Layout;
use crate::ports::Claim;
use crate::process::agent::Recipe;
use crate::process::confined::c_strings;
use crate::process::reaper::{Reaper, Session};
use crate::provision::{Provisioner, Resolved};
use crate::words::chain;
use crate::{report, shield, skills};

/// A worker that is ready to serve.
#[derive(Debug)]
pub(super) struct Ready {
    /// The configuration.
    pub config: WorkerConfig,
    /// Where everything is.
    pub layout: Layout,
    /// The supervisor's own.
    pub state: State,
    /// Where it listens.
    pub listener: TcpListener,
    /// The session.
    pub session: Rc<Session>,
    /// The agent's wall.
    pub wall: Wall,
    /// How to start the agent.
    pub recipe: Recipe,
    /// How to look at the worktree.
    pub inspector: Inspector,
    /// As measured.
    pub tier: Tier,
    /// This start.
    pub boot: BootId,
    /// Of the policy.
    pub policy_revision: String,
    /// Of the skills.
    pub skills_revision: Option<String>,
    /// One line a mechanism.
    pub enforcement: Vec<String>,
}

/// Runs the worker until its end; its exit code.
///
/// # Errors
/// [`StartError`] where it never came to serve.
pub(super) async fn run(
    prepared: Prepared,
    claim: Claim,
    spawner: &Spawner,
    shield: &ShieldReport,
) -> Result<u8, StartError> {
    let children = Reaper::subscribe().map_err(|error| other("no SIGCHLD", &error))?;
    let reaper = Reaper::new(spawner);
    tokio::task::spawn_local(Rc::clone(&reaper).run(children));
    let mut terminate =
        signal(SignalKind::terminate()).map_err(|error| other("no SIGTERM", &error))?;
    let mut interrupt =
        signal(SignalKind::interrupt()).map_err(|error| other("no SIGINT", &error))?;
    let session_spawner = spawner.session().map_err(|error| no_session(&error))?;
    let session = Rc::new(Session { spawner: session_spawner, reaper });
    let started = tokio::select! {
        ready = start(prepared, &claim, Rc::clone(&session), shield) => Some(ready),
        _ = terminate.recv() => None,
        _ = interrupt.recv() => None,
    };
    let ended = match started {
        Some(Ok((ready, lock))) => {
            let code = serve::run(ready, terminate, interrupt).await;
            drop(lock);
            code
        }
        Some(Err(error)) => Err(error),
        None => {
            report::failed(&StartError::Other { message: "stopped while it started".into() });
            Ok(STOPPED)
        }
    };
    session.end().await;
    session.spawner.close();
    drop(claim);
    ended
}

async fn start(
    prepared: Prepared,
    claim: &Claim,
    session: Rc<Session>,
    shield: &ShieldReport,
) -> Result<(Ready, casemate_sandbox::lock::HeldLock), StartError> {
    let Prepared { wanted, layout, resolved, lock, withdrawal } = prepared;
    let (config, policy, file) = (wanted.config, wanted.policy, wanted.file);
    let listener = door(config.listen, claim)?;
    let ports = claim.own();
    let places = layout.places(&config, file.as_deref(), ports);
    let wall = build_wall(&policy, &places)?;
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
    within_reach(&session, &wall, &program)?;

    let marker = Provisioner {
        config: &config,
        layout: &layout,
        session: &session,
        wall: &cloning_wall(&policy, &places, &layout, resolved.as_ref())?,
        path: &path,
        git: git.as_deref(),
        resolved: resolved.as_ref(),
        blobless: resolved
            .as_ref()
            .is_some_and(|from| may_connect(&places, &policy, from.remote.port)),
    }
    .provision()
    .await?;

    // What a git left behind (its own maintenance) must hold nothing open of what is taken away below.
    session.end().await;
    report::progress("trying the walls from inside");
    let walled = layout.walled(&config, file.as_deref());
    let answers = session
        .spawner
        .probe(&walled, &wall)
        .map_err(|error| StartError::Shield { message: chain(&error) })?;
    let tier = shield::judge(&answers, &walled, &layout.decoy(&config), config.tier)?;
    // After the probe, which tries Landlock alone on it.
    let state = State::keep(&layout, withdrawal)?;

    let skills_revision = skills_revision(&layout)?;
    let skills = layout.skills.as_ref().zip(skills_revision.as_deref());
    let skills = skills.map(|((_, path), revision)| (path.as_path(), revision));
    let variables: Vec<(String, String)> =
        environment::variables(&config, ports, given, skills).into_iter().collect();
    let recipe = Recipe {
        program,
        argv: words(arguments)?,
        env: words(variables.iter().map(|(name, value)| format!("{name}={value}")).collect())?,
        cwd: layout.inside.work.clone(),
        stderr_log: state.path().join("agent-stderr.log"),
    };
    let mut env = variables;
    env.push(("GIT_OPTIONAL_LOCKS".into(), "0".into()));
    let inspector = Inspector { git, env, work: layout.inside.work.clone(), base: marker.base };
    let mut enforcement = wall.summary();
    enforcement.extend(shield.summary());
    enforcement.push(format!("tcp ports {} claimed", environment::first_and_last(ports)));
    let ready = Ready {
        boot: BootId::random(),
        policy_revision: policy.revision,
        config,
        layout,
        state,
        listener,
        session,
        wall,
        recipe,
        inspector,
        tier,
        skills_revision,
        enforcement,
    };
    Ok((ready, lock))
}

/// In tier `domain` a program may be there and yet be closed to the agent.
fn within_reach(session: &Session, wall: &Wall, program: &Path) -> Result<(), StartError> {
    let probed = session.spawner.probe(&[program.to_owned()], wall);
    let answers = probed.map_err(|error| StartError::Shield { message: chain(&error) })?;
    if answers.first().is_some_and(|answer| answer.read_errno == Errno::EACCES as i32) {
        return Err(StartError::AgentNotFound {
            message: format!(
                "{} is there, but the policy keeps it from the agent: name its directory in `programs`",
                program.display()
            ),
        });
    }
    Ok(())
}

/// Where clients come in: the claim itself, unless the configuration names another address.
fn door(wanted: SocketAddr, claim: &Claim) -> Result<TcpListener, StartError> {
    let address = match wanted.port() {
        0 => SocketAddr::new(wanted.ip(), claim.address().port()),
        _ => wanted,
    };
    let listener =
        if address == claim.address() { claim.listener() } else { TcpListener::bind(address) };
    let listener = listener.and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listener.map_err(|error| StartError::Listen {
        message: format!(
            "{address}: {error}: name a free address, or 127.0.0.1:0 for the worker's claim"
        ),
    })
}

fn build_wall(policy: &Policy, places: &Places) -> Result<Wall, StartError> {
    Wall::build(policy, places).map_err(|error| {
        let message = chain(&error);
        match error {
            WallError::NoLandlock { .. } | WallError::Kernel { .. } => {
                StartError::Kernel { message }
            }
            _ => StartError::Policy { message },
        }
    })
}

fn cloning_wall(
    policy: &Policy,
    places: &Places,
    layout: &Layout,
    resolved: Option<&Resolved>,
) -> Result<Wall, StartError> {
    let port = resolved.map(|from| from.remote.port);
    build_wall(policy, &layout.cloning_places(places.clone(), port))
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

fn skills_revision(layout: &Layout) -> Result<Option<String>, StartError> {
    let Some((outside, inside)) = &layout.skills else { return Ok(None) };
    skills::revision(inside).map(Some).map_err(|error| StartError::Config {
        message: format!("skills {}: {error}: check its owner and mode", outside.display()),
    })
}

fn words(list: Vec<String>) -> Result<Vec<CString>, StartError> {
    c_strings(list).map_err(|error| StartError::Config { message: error.to_string() })
}

fn no_session(error: &SpawnError) -> StartError {
    let message = chain(error);
    if error.step == Step::SignalScope {
        StartError::Kernel { message }
    } else {
        StartError::Other { message }
    }
}
