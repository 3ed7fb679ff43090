//! A worker of many sessions of one user, warm: everything but a session is there before it is asked for one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use casemate_protocol::audit::Event;
use casemate_protocol::codes::exit;
use casemate_protocol::ids::{BootId, SessionId};
use casemate_protocol::sharing::{SharedWorkerConfig, UserId};
use casemate_protocol::tier::Tier;
use casemate_protocol::worker::{StartError, StartEvent};
use casemate_sandbox::Spawner;
use casemate_sandbox::lock::HeldLock;
use casemate_sandbox::shield::calls::Role;
use casemate_sandbox::shield::confine;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::door::Door;
use super::signals::Ending;
use super::{Supervisor, identity, on_one_thread, other, outside, owner};
use crate::audit::Audit;
use crate::http::app::App;
use crate::http::auth::Gate;
use crate::probe::range::Ground;
use crate::process::reaper::Reaper;
use crate::provision::Seed;
use crate::report::{Report as _, Stdout};
use crate::shared::floor::{self, Floor};
use crate::shared::porter::{self, Porter};
use crate::shared::{Measured, Shared, Table};
use crate::words::chain;
use crate::{directories, durable};

/// How long the directories that sessions have in common may stay closed.
const OPEN_AGAIN: Duration = Duration::from_secs(1);

/// Runs the worker to its end; the process's exit code.
///
/// # Errors
/// [`StartError`] where it never came to serve.
pub(super) fn run(config: SharedWorkerConfig, file: Option<PathBuf>) -> Result<u8, StartError> {
    identity::check(config.host_uid)?;
    Stdout.progress(format!("starting a worker for sessions of one user in slot {}", config.slot));
    directories::make_shared(&config)?;
    let lock = outside::hold(&config.volume, &config.slot)?;
    identity::assume(config.host_uid)?;
    owner::follow(config.owner)?;
    bind(&config.volume, &config.user)?;
    let audit = Audit::open(&config.volume.join("state"), &config.slot)?;
    let newest = floor::read(&config.volume.join("state")).map_err(|error| StartError::Volume {
        message: format!("state/floors: {error}: check the volume, and remove a damaged file when every token of its session has expired"),
    });
    audit.keep(newest.and_then(|newest| live(config, file, lock, newest, &audit)))
}

fn live(
    mut config: SharedWorkerConfig,
    file: Option<PathBuf>,
    lock: HeldLock,
    newest: BTreeMap<SessionId, Floor>,
    audit: &Audit,
) -> Result<u8, StartError> {
    let supervisor = Supervisor::start(config.ports, &lock)?;
    // Before any agent is there to see where.
    let ground = Ground::make(&config.volume.join("run"), None)?;
    let porter = porter::start(config.ports, &ground)?;
    let spawner = Rc::new(supervisor.spawner);
    let door = Door::open(config.listen, config.tls.take(), &supervisor.claim)?;
    more_descriptors();
    // After the spawner and the porter, which would inherit it; before anything that somebody else wrote is read.
    let filter =
        confine(Role::Supervisor).map_err(|error| StartError::Shield { message: chain(&error) })?;
    let shield = supervisor.shield.summary().into_iter();
    let served = Served {
        door,
        shield: shield.chain([filter.to_string(), porter.confined().to_string()]).collect(),
        spawner: Rc::clone(&spawner),
        porter: porter.clone(),
        config,
        file,
        lock,
        newest,
        audit: audit.clone(),
    };
    let code = on_one_thread(serve(served));
    porter.end();
    // Whoever waits for this process may rely on the slot and the ports being free then. Nothing else has it any more.
    if let Some(spawner) = Rc::into_inner(spawner) {
        spawner.end();
    }
    drop(supervisor.claim);
    code
}

/// A slot is one user's for its whole life.
fn bind(volume: &Path, user: &UserId) -> Result<(), StartError> {
    let path = volume.join("state").join("user");
    let trouble = |error: std::io::Error| StartError::Volume {
        message: format!("state/user: {error}: check the volume's space and owner"),
    };
    match std::fs::read_to_string(&path) {
        Ok(bound) if bound == user.as_str() => Ok(()),
        Ok(_) => Err(StartError::Volume {
            message: "the slot holds sessions of another user: use a new slot for this one".into(),
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            durable::replace(&path, user.as_str().as_bytes()).map_err(trouble)
        }
        Err(error) => Err(trouble(error)),
    }
}

/// What is there when the event loop begins.
struct Served {
    door: Door,
    shield: Vec<String>,
    spawner: Rc<Spawner>,
    porter: Porter,
    config: SharedWorkerConfig,
    file: Option<PathBuf>,
    lock: HeldLock,
    newest: BTreeMap<SessionId, Floor>,
    audit: Audit,
}

async fn serve(served: Served) -> Result<u8, StartError> {
    let children = Reaper::subscribe().map_err(|error| other("no SIGCHLD", &error))?;
    let reaper = Reaper::new(&served.spawner);
    tokio::task::spawn_local(Rc::clone(&reaper).run(children));
    let mut ending = Ending::listen()?;
    super::signals::ignore();
    let address = served.door.address()?;
    let boot = BootId::random();
    let gate = Gate::new(served.config.verify_key, served.config.slot.clone());
    let audit = served.audit;
    audit.require([Event::started("supervisor", Tier::Domain, &served.shield)])?;
    let shared = Rc::new(Shared {
        audit: audit.clone(),
        worktrees: served.config.volume.join("sessions"),
        seed: Seed::new(&served.config.volume.join("state")),
        config: served.config,
        spawner: served.spawner,
        porter: served.porter,
        reaper: Rc::clone(&reaper),
        shield: served.shield,
        file: served.file,
        boot: boot.clone(),
        address,
        registry: Rc::default(),
        counted: crate::http::metrics::Metrics::default(),
        measured: Measured::default(),
        table: Table::new(served.newest),
    });
    tokio::task::spawn_local(keep_open(shared.config.volume.clone()));
    let porters_end = reaper.end_of_own(shared.porter.pid());
    let watched = tokio::task::spawn_local(async move {
        if let Ok(exit) = porters_end.await {
            tracing::error!(%exit, "the porter process ended: no session is taken in until the worker is started again");
        }
    });
    let registry = Rc::clone(&shared.registry);
    let app = App::new(gate, registry, Rc::clone(&reaper), boot.clone(), audit);
    served.door.serve(Rc::new(app.sharing(Rc::clone(&shared))))?;
    tracing::info!(%address, %boot, slot = %shared.config.slot, "ready");
    Stdout.event(&StartEvent::Ready {
        address,
        boot,
        tier: Tier::Domain,
        worktree: shared.worktrees.clone(),
    });
    let code = tokio::select! {
        () = ending.wanted() => exit::OK,
        () = shared.over() => exit::OK,
        () = reaper.spawner_end() => {
            tracing::error!("the spawner process is gone: no session can be started or ended");
            exit::SOFTWARE
        }
    };
    shared.end_all().await;
    watched.abort();
    // What is still being looked up is nobody's any more, and its thread ends now.
    shared.porter.close();
    drop(served.lock);
    Ok(code)
}

/// For ever. An agent that closes them over and over wins in between: it shuts the others' paths, and opens none.
async fn keep_open(volume: PathBuf) {
    loop {
        tokio::time::sleep(OPEN_AGAIN).await;
        if let Err(error) = directories::open_again(&volume) {
            tracing::warn!(%error, "a directory above the sessions cannot be opened again");
        }
    }
}

/// Each session costs some thirty descriptors: the soft limit is raised to the hard one. The spawner was forked before, so no
/// agent inherits it.
fn more_descriptors() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!(%error, "the limit of open files stays: many sessions may not fit");
    }
}
