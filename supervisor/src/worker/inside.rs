//! From the filter on: the session is made ready ([`crate::hosted`]), and served until its generation is over.

use std::rc::Rc;

use casemate_protocol::ids::BootId;
use casemate_protocol::tier::Tier;
use casemate_protocol::worker::{StartError, StartEvent, WorkerConfig};
use casemate_sandbox::{Spawner, users};

use super::door::Door;
use super::outside::Prepared;
use super::signals::{Ending, forward};
use super::{Footing, STOPPED, other};
use crate::audit::Audit;
use crate::hosted::live;
use crate::hosted::ready::{self, Making, Probing};
use crate::hosted::registry::Registry;
use crate::http::app::App;
use crate::http::auth::Gate;
use crate::process::reaper::{Reaper, Session};
use crate::report::{Report as _, Stdout};
use crate::shared::floor;

/// Runs the worker until its end; its exit code.
///
/// # Errors
/// [`StartError`] where it never came to serve.
pub(super) async fn run(
    prepared: Prepared,
    footing: Footing,
    spawner: &Spawner,
    audit: &Audit,
) -> Result<u8, StartError> {
    let Footing { claim, door, shield, filter } = footing;
    let children = Reaper::subscribe().map_err(|error| other("no SIGCHLD", &error))?;
    let reaper = Reaper::new(spawner);
    tokio::task::spawn_local(Rc::clone(&reaper).run(children));
    let mut ending = Ending::listen()?;
    let session_spawner = spawner.session().map_err(|error| ready::no_session(&error))?;
    let session = Rc::new(Session::new(session_spawner, reaper));
    let Prepared { wanted, layout, resolved, lock, range, withdrawal } = prepared;
    let alone = counted_alone(&wanted.config);
    let making = Making {
        config: wanted.config,
        policy: wanted.policy,
        file: wanted.file,
        others: Vec::new(),
        layout,
        resolved,
        withdrawal,
        ports: claim.own(),
        session: Rc::clone(&session),
        alone,
        shield: shield.summary().into_iter().chain([filter.to_string()]).collect(),
        probing: Probing::Measure { spawner, range, turn: None },
        seed: None,
        placed: None,
        report: &Stdout,
    };
    let started = tokio::select! {
        ready = ready::make(making) => Some(ready),
        () = ending.wanted() => None,
    };
    let ended = match started {
        Some(Ok(ready)) => serve(ready, door, ending, audit).await,
        Some(Err(error)) => Err(error),
        None => {
            Stdout.failed(&StartError::Other { message: "stopped while it started".into() });
            Ok(STOPPED)
        }
    };
    session.close().await;
    drop(lock);
    drop(claim);
    ended
}

/// Whether the kernel counts this worker's processes by themselves (RLIMIT_NPROC counts a user in a user namespace): it made a
/// namespace, was given a user of its own, or is PID 1 of a container whose user namespace is its own (a Pod's with
/// `hostUsers: false`). Below another init there may be more workers of the same user in that namespace.
fn counted_alone(config: &WorkerConfig) -> bool {
    match config.tier {
        Tier::Namespace => true,
        Tier::Domain | Tier::Pod => {
            config.host_uid.is_some() || (std::process::id() == 1 && users::in_own_namespace())
        }
    }
}

/// Serves the one session; the worker's exit code.
async fn serve(
    ready: ready::Ready,
    door: Door,
    ending: Ending,
    audit: &Audit,
) -> Result<u8, StartError> {
    let boot = BootId::random();
    let address = door.address()?;
    let gate = Gate::new(ready.config.verify_key, ready.config.slot.clone());
    let reaper = Rc::clone(&ready.session.reaper);
    let state = ready.state.path().to_owned();
    let (hosted, generation) = live::start(ready, boot.clone(), audit)?;
    let floor = (hosted.fixed.incarnation, hosted.fixed.generation);
    floor::raise(&state, &hosted.fixed.session, floor).await.map_err(|error| StartError::Volume {
        message: format!("the session's generation cannot be kept: {error}: check the volume's space and owner"),
    })?;
    ending.stop(hosted.orders.clone());
    forward(&hosted.orders);
    let registry = Rc::new(Registry::default());
    registry.add(Rc::clone(&hosted));
    let app = Rc::new(App::new(gate, registry, reaper, boot, audit.clone()));
    door.serve(app)?;
    let fixed = &hosted.fixed;
    tracing::info!(
        %address,
        boot = %fixed.boot,
        tier = %fixed.tier,
        policy = %fixed.policy_revision,
        "ready"
    );
    Stdout.event(&StartEvent::Ready {
        address,
        boot: fixed.boot.clone(),
        tier: fixed.tier,
        worktree: fixed.worktree.clone(),
    });
    Ok(generation.await)
}
