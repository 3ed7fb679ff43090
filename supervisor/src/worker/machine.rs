//! What `casemate doctor` asks for: the matrix of a wall of this machine, without a session of anybody's.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::Path;
use std::rc::Rc;

use casemate_protocol::codes::exit;
use casemate_protocol::ids::{Generation, Incarnation, SessionId, SlotId};
use casemate_protocol::policy::{DEVELOPER, Policy};
use casemate_protocol::ports::{PortPool, PortRange};
use casemate_protocol::tier::Tier;
use casemate_protocol::token::SigningSecret;
use casemate_protocol::worker::{AgentCommand, StartError, WorkerConfig};
use casemate_sandbox::namespaces::Entered;
use casemate_sandbox::{Exit, Spawner, Wall};

use super::{identity, namespaces, on_one_thread, other};
use crate::directories;
use crate::layout::Layout;
use crate::probe::judge::Said;
use crate::probe::measure::{Place, measure as measure_all, try_all};
use crate::probe::range::{Ground, Range};
use crate::process::reaper::Reaper;
use crate::words::chain;

/// Whom root measures as: the kernel's overflow user, who owns nothing.
const NOBODY: u32 = 65_534;

/// Makes a slot in `directory`, tries the default policy's wall of `tier` there, prints the matrix, or each answer by itself.
/// Whoever made the directory removes it. To be called before any thread is started.
#[must_use]
pub fn measure(tier: &str, directory: &Path, answers: bool) -> u8 {
    let tier = match tier {
        "domain" => Tier::Domain,
        "namespace" => Tier::Namespace,
        _ => {
            eprintln!("casemate-supervisor: {tier} is no tier of one machine: domain or namespace");
            return exit::USAGE;
        }
    };
    match in_tier(&config(tier, directory), answers) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("casemate-supervisor: {error}");
            error.exit_code()
        }
    }
}

fn config(tier: Tier, directory: &Path) -> WorkerConfig {
    WorkerConfig {
        session: SessionId::random(),
        incarnation: Incarnation(1),
        generation: Generation(1),
        slot: SlotId::random(),
        verify_key: SigningSecret::generate().public(),
        tier,
        private: Vec::new(),
        volume: directory.join("slots").join("one"),
        repository: None,
        home_template: None,
        skills: None,
        programs: Vec::new(),
        policy: DEVELOPER.to_owned(),
        agent: AgentCommand { argv: vec!["true".into()], env: BTreeMap::new() },
        ports: PortPool { first: 0, ranges: 0, preferred: 0 },
        connect: Vec::new(),
        listen: ([127, 0, 0, 1], 0).into(),
        tls: None,
        plain: false,
        origins: Vec::new(),
        permission_ttl: 0,
        kept: 1 << 30,
        blocked_ttl: 600,
        grace: 0,
        host_uid: nix::unistd::geteuid().is_root().then_some(NOBODY),
        owner: None,
        learn: None,
    }
}

/// What an allocator makes for a worker.
fn slot(config: &WorkerConfig) -> io::Result<()> {
    std::fs::create_dir_all(&config.volume)?;
    match config.host_uid {
        Some(user) => std::os::unix::fs::chown(&config.volume, Some(user), Some(user)),
        None => Ok(()),
    }
}

fn in_tier(config: &WorkerConfig, answers: bool) -> Result<u8, StartError> {
    let layout = Layout::of(config);
    slot(config).map_err(|error| StartError::Volume {
        message: format!("{}: {error}: name a directory of your own", config.volume.display()),
    })?;
    directories::make(config, &layout)?;
    let range = Range::make(Ground::make(&config.volume.join("run"), config.host_uid)?)?;
    if config.tier == Tier::Domain {
        identity::assume(config.host_uid)?;
        return print(config, &layout, range, answers);
    }
    match casemate_sandbox::namespaces::enter(&namespaces::plan(config, &layout)) {
        Ok(Entered::Inside(_)) => print(config, &layout, range, answers),
        Ok(Entered::Launcher(launcher)) => {
            // The inner process's to take away.
            std::mem::forget(range);
            launcher
                .wait_forwarding_signals()
                .map(Exit::code)
                .map_err(|error| StartError::Shield { message: chain(&error) })
        }
        Err(error) => Err(StartError::Tier { wanted: config.tier, message: chain(&error) }),
    }
}

fn print(
    config: &WorkerConfig,
    layout: &Layout,
    range: Range,
    answers: bool,
) -> Result<u8, StartError> {
    casemate_sandbox::shield::harden()
        .map_err(|error| StartError::Shield { message: chain(&error) })?;
    casemate_sandbox::reap::adopt_orphans()
        .map_err(|error| other("orphans cannot be adopted", &error))?;
    let spawner =
        Spawner::start(&[]).map_err(|error| other("the spawner did not start", &error))?;
    let tried = on_one_thread(async {
        let line = tried(config, layout, range, answers, &spawner).await?.map_err(io::Error::from);
        line.and_then(|line| writeln!(io::stdout().lock(), "{line}"))
            .map_err(|error| other("cannot print the matrix", &error))?;
        Ok(exit::OK)
    });
    spawner.end();
    tried
}

async fn tried(
    config: &WorkerConfig,
    layout: &Layout,
    range: Range,
    answers: bool,
    spawner: &Spawner,
) -> Result<serde_json::Result<String>, StartError> {
    let policy = Policy::parse(&config.policy)
        .map_err(|error| StartError::Policy { message: chain(&error) })?;
    let places = layout.places(config, None, PortRange { first: 0, count: 0 });
    let wall = Wall::build(&policy, &places)
        .map_err(|error| StartError::Kernel { message: chain(&error) })?;
    let env = casemate_sandbox::environment(&policy, &places);
    let children = Reaper::subscribe().map_err(|error| other("no SIGCHLD", &error))?;
    let reaper = Reaper::new(spawner);
    tokio::task::spawn_local(Rc::clone(&reaper).run(children));
    let cwd = &layout.inside.scratch;
    let place = Place { spawner, reaper: &reaper, wall: &wall, env: &env, cwd, tier: config.tier };
    Ok(match answers {
        true => serde_json::to_string(&try_all(place, range).await?),
        false => {
            serde_json::to_string(&measure_all(place, &Said::of(&policy, &places), range).await?)
        }
    })
}
