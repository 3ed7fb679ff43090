//! A worker that waits in its Pod for one session: everything but the session is there before it is asked for it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use casemate_protocol::audit::Event;
use casemate_protocol::codes::exit;
use casemate_protocol::ids::{SessionId, SlotId};
use casemate_protocol::slot::{SlotConfig, paths};
use casemate_protocol::tier::Tier;
use casemate_protocol::worker::{StartError, StartEvent, WorkerConfig};
use casemate_sandbox::Spawner;
use casemate_sandbox::lock::HeldLock;
use casemate_sandbox::memory;
use casemate_sandbox::shield::calls::Role;
use casemate_sandbox::shield::confine;

use super::door::Door;
use super::signals::{Ending, forward};
use super::{STOPPED, Supervisor, failed, identity, on_one_thread, other, outside};
use crate::audit::Audit;
use crate::hosted::ready;
use crate::hosted::registry::Registry;
use crate::http::app::App;
use crate::http::auth::Gate;
use crate::layout::Layout;
use crate::ports::Claim;
use crate::probe::range::Ground;
use crate::process::reaper::{self, Reaper};
use crate::report::{Report as _, Stdout};
use crate::shared::floor::{self, Floor};
use crate::shared::porter::{self, Porter};
use crate::slot::content::{self, Found};
use crate::slot::pod::{self, Measured};
use crate::slot::{Session, Slot, Taken};
use crate::words::chain;
use crate::{config, directories, walls};

/// How long those who asked for the session have to hear why there is none.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How often it is looked whether they have.
const LOOK: Duration = Duration::from_millis(20);

/// Runs the worker to its end; the process's exit code.
#[must_use]
pub fn wait(file: &Path) -> u8 {
    memory::keep_a_little();
    begin(file).unwrap_or_else(|error| failed(&error))
}

fn begin(file: &Path) -> Result<u8, StartError> {
    let config = config::read_slot(file)?;
    let id = pod::slot()?;
    identity::check(None)?;
    let measured = pod::measure()?;
    Stdout.progress(format!("slot {} gets ready for a session", config.name));
    directories::make_in_pod()?;
    let lock = outside::hold(Path::new(paths::VOLUME), &config.name)?;
    let audit = Audit::open(Path::new(paths::STATE), &id)?;
    let floors = floor::read(Path::new(paths::STATE)).map_err(|error| StartError::Volume {
        message: format!("state/floors: {error}: the volume is damaged, use another"),
    });
    let begun = floors.and_then(|floors| {
        let found = content::read(&config)?;
        let nobodys = config::examine_slot(&config, found.content.clone())?;
        Before { config, id, file: file.to_owned(), found, nobodys, floors, lock, measured }
            .live(&audit)
    });
    audit.keep(begun)
}

/// What was found and made.
struct Before {
    config: SlotConfig,
    id: SlotId,
    file: PathBuf,
    found: Found,
    /// A session's as it would be, of nobody.
    nobodys: WorkerConfig,
    floors: BTreeMap<SessionId, Floor>,
    lock: HeldLock,
    measured: Measured,
}

/// What is there when the event loop begins.
struct Waiting {
    slot: Rc<Slot>,
    door: Door,
    claim: Claim,
    porter: Porter,
    file: PathBuf,
}

// === impl Before ===

impl Before {
    fn live(self, audit: &Audit) -> Result<u8, StartError> {
        let Self { config, id, file, found, nobodys, floors, lock, measured } = self;
        let supervisor = Supervisor::start(config.ports, &lock)?;
        // Before any agent is there to see where.
        let ground = Ground::make(Path::new(paths::RUN), None)?;
        let porter = porter::start(config.ports, &ground)?;
        let tls = config.tls.as_ref().map(content::certificate).transpose()?;
        let door = Door::open(config.listen, tls, &supervisor.claim)?;
        // After the spawner and the porter, which would inherit it; before anything that somebody else wrote is read.
        let filter = confine(Role::Supervisor)
            .map_err(|error| StartError::Shield { message: chain(&error) })?;
        // Where this kernel has no wall such as the policy wants, nobody is to be told to wait for one.
        let layout = Layout::in_pod(&nobodys);
        let mut places = layout.places(&nobodys, Some(&file), supervisor.claim.own());
        places.never.extend([paths::SLOT, paths::KEY].map(PathBuf::from));
        walls::build(&found.policy, &places, None)?;
        let shield = supervisor.shield.summary().into_iter();
        let enforcement = shield.chain([filter.to_string(), porter.confined().to_string()]);
        let Measured { lines, address } = measured;
        let enforcement = enforcement.chain(lines).collect();
        let slot = Rc::new(Slot::new(config, id, found, enforcement, address, floors));
        let spawner = supervisor.spawner;
        let waiting = Waiting { slot, door, claim: supervisor.claim, porter: porter.clone(), file };
        let code = on_one_thread(waiting.serve(&spawner, audit));
        porter.end();
        // Whoever waits for this process may rely on its processes being gone then.
        spawner.end();
        drop(lock);
        code
    }
}

// === impl Waiting ===

impl Waiting {
    async fn serve(self, spawner: &Spawner, audit: &Audit) -> Result<u8, StartError> {
        let Self { slot, door, claim, porter, file } = self;
        let children = Reaper::subscribe().map_err(|error| other("no SIGCHLD", &error))?;
        let reaper = Reaper::new(spawner);
        tokio::task::spawn_local(Rc::clone(&reaper).run(children));
        let mut ending = Ending::listen()?;
        let address = door.address()?;
        audit.require([Event::started("supervisor", Tier::Pod, &slot.enforcement)])?;
        let registry = Rc::new(Registry::default());
        let app = App::new(
            gate(&slot),
            Rc::clone(&registry),
            Rc::clone(&reaper),
            slot.boot.clone(),
            audit.clone(),
        );
        door.serve(Rc::new(app.waiting(Rc::clone(&slot))))?;
        let boot = slot.boot.clone();
        tracing::info!(%address, %boot, name = %slot.config.name, "waits for a bind");
        Stdout.event(&StartEvent::Ready {
            address,
            boot,
            tier: Tier::Pod,
            worktree: paths::WORK.into(),
        });
        let taken = tokio::select! {
            taken = slot.taken() => taken,
            () = ending.wanted() => return stopped(&slot),
            () = slot.asked_to_stop() => return stopped(&slot),
            () = reaper.spawner_end() => return Ok(exit::SOFTWARE),
        };
        let processes = spawner.session().map_err(|error| ready::no_session(&error))?;
        let processes = Rc::new(reaper::Session::new(processes, reaper));
        let session = Session {
            slot: &slot,
            taken: &taken,
            claim: &claim,
            spawner,
            porter: &porter,
            processes: Rc::clone(&processes),
            registry: &registry,
            audit,
            file: &file,
        };
        let ended = live(session, ending).await;
        processes.close().await;
        if let Err(error) = &ended {
            slot.failed(audit, error);
            heard(taken).await;
        }
        slot.ends(None);
        porter.close();
        ended
    }
}

/// The session's life; the worker's exit code.
async fn live(session: Session<'_>, mut ending: Ending) -> Result<u8, StartError> {
    let slot = session.slot;
    let (hosted, generation) = tokio::select! {
        started = session.start() => started?,
        () = ending.wanted() => return Err(told_to_stop()),
        () = slot.asked_to_stop() => return Err(told_to_stop()),
    };
    ending.stop(hosted.orders.clone());
    slot.stops(&hosted);
    forward(&hosted.orders);
    Ok(generation.await)
}

fn told_to_stop() -> StartError {
    StartError::Other { message: "stopped while it started".into() }
}

fn stopped(slot: &Slot) -> Result<u8, StartError> {
    slot.ends(None);
    Ok(STOPPED)
}

/// Returns when everybody who listens has heard all of it, or had the time for it.
async fn heard(taken: Taken) {
    // The slot's and this one.
    const OURS: usize = 2;
    let all = async {
        while Rc::strong_count(&taken.told) > OURS {
            tokio::time::sleep(LOOK).await;
        }
        // What was taken last is on its way to the socket.
        tokio::time::sleep(LOOK).await;
    };
    // Whoever does not read in time does without.
    let _ = tokio::time::timeout(LAST_WORDS, all).await;
}

/// Takes every key of the slot's.
fn gate(slot: &Slot) -> Gate {
    let config = &slot.config;
    let gate = Gate::new(config.verify_key, slot.id.clone());
    gate.accept(std::iter::once(&config.verify_key).chain(&config.verify_also).copied().collect());
    gate
}
