//! The allocator of one machine: finds or makes the session of a key, gives it a worker, finds workers again after a
//! restart, stops idle ones, and deletes what may be deleted.
//!
//! [`start`] runs it inside the caller's tokio runtime (`casemate up`, `run`, `demo` do); the binary
//! `casemate-allocator` is the same with a command line. Decisions are in `casemate-allocator-core`; here are the store,
//! the processes, the files and the HTTP door. The data's way never leads through it: attachments go on while it is down.

mod audit;
mod check;
mod closed;
mod delete;
mod door;
mod driver;
mod home;
mod http;
mod plan;
mod profile;
mod programs;
mod recorded;
mod refusal;
mod repository;
mod store;
mod values;
mod worker;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use casemate_protocol::api::{ApiError, Endpoint};
use casemate_protocol::codes::exit;
use casemate_protocol::tier::Tier;
use tokio::task::JoinHandle;

pub use check::{CheckError, check};
pub use closed::leaves_closed;
pub use door::{Exposed, exposed_ports};
pub use home::HomeError;
pub use recorded::recorded;
pub use store::StoreError;

/// How to run.
#[derive(Debug, Clone)]
pub struct Config {
    /// casemate's home; made with mode 0700 where it is missing.
    pub home: PathBuf,
    /// Where to serve; port 0: the first free one of 20000-20999, which no agent can get. Loopback only.
    pub listen: SocketAddr,
    /// The `casemate-supervisor` program.
    pub supervisor: PathBuf,
    /// Where profiles are read; `None`: `profiles/` of the home. A throw-away home has none of its own.
    pub profiles: Option<PathBuf>,
    /// The home of whoever runs this for a throw-away one: as closed to its sessions as its own.
    pub beside: Option<PathBuf>,
    /// The tier of new sessions; `None`: the best that this machine gives, measured.
    pub tier: Option<Tier>,
    /// The longest time that a starting worker may be silent. A clone reports progress.
    pub patience: Duration,
    /// The workers end when this process does, however it ends: for throw-away homes. The thread that drives the runtime
    /// must be the one that lives longest (prctl(2), PR_SET_PDEATHSIG).
    pub owned: bool,
    /// **No walls**: what its sessions would be refused is noted and let through, but at these paths. For a throw-away home of one
    /// person's one session; there is no request that asks for it.
    pub learn: Option<Vec<PathBuf>>,
}

impl Config {
    /// The usual settings for a home and a supervisor.
    #[must_use]
    pub fn new(home: PathBuf, supervisor: PathBuf) -> Self {
        Self {
            home,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            supervisor,
            profiles: None,
            beside: None,
            tier: None,
            patience: Duration::from_secs(120),
            owned: false,
            learn: None,
        }
    }
}

/// Why the allocator does not run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The home.
    #[error("cannot use the home")]
    Home(#[from] HomeError),
    /// The store.
    #[error("cannot use the store")]
    Store(#[from] StoreError),
    /// The audit log.
    #[error("cannot keep the audit log in {home}")]
    Audit {
        /// The home.
        home: PathBuf,
        /// Why.
        #[source]
        source: casemate_audit::OpenError,
    },
    /// The measurement.
    #[error("cannot measure this machine")]
    Check(#[from] CheckError),
    /// A weaker machine than asked for.
    #[error("tier {wanted} is not to be had here ({}); `casemate doctor` says what is missing", .got.map_or("not even domain".to_owned(), |tier| format!("best: {tier}")))]
    Tier {
        /// Asked for.
        wanted: Tier,
        /// Measured.
        got: Option<Tier>,
    },
    /// No isolation at all.
    #[error("this kernel gives no isolation at all; `casemate doctor` says what is missing")]
    NoTier,
    /// An address beyond this machine.
    #[error("--listen {0} is not loopback; the allocator's token must not travel")]
    NotLoopback(SocketAddr),
    /// The address is taken.
    #[error("--listen {address} is in use; name another port, or 0 for a free one of 20000-20999")]
    InUse {
        /// The address.
        address: SocketAddr,
    },
    /// The address cannot be used.
    #[error("cannot listen on --listen {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// What was there could not be read.
    #[error("cannot find the workers of an earlier run: {0}")]
    Recover(ApiError),
}

impl StartError {
    /// The process's exit code ([`exit`]).
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Home(HomeError::AlreadyRunning { .. }) | Self::InUse { .. } => exit::BUSY,
            Self::Store(StoreError::InUse(_)) => exit::BUSY,
            Self::Home(
                HomeError::Open { .. } | HomeError::Foreign { .. } | HomeError::Unreachable { .. },
            ) => exit::DENIED,
            Self::Home(HomeError::Key { .. }) | Self::Store(StoreError::Row(_)) => exit::DATA,
            Self::Audit { source: casemate_audit::OpenError::Broken, .. } => exit::DATA,
            Self::Audit { .. } => exit::CANNOT_CREATE,
            Self::Home(HomeError::Io { .. }) | Self::Store(_) => exit::CANNOT_CREATE,
            Self::Check(CheckError::Run { .. }) => exit::NO_INPUT,
            Self::Check(_) | Self::Recover(_) => exit::SOFTWARE,
            Self::Tier { .. } | Self::NoTier => exit::TIER,
            Self::NotLoopback(_) | Self::Listen { .. } => exit::USAGE,
        }
    }
}

/// What becomes of the workers when the allocator ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    /// They go on; the next allocator finds them.
    LeaveWorkers,
    /// They end; the sessions sleep.
    StopAll,
    /// They end and everything of all sessions is deleted, unpushed work included: for throw-away homes.
    StopAllAndDelete,
}

/// A running allocator.
#[derive(Debug)]
pub struct Running {
    endpoint: Endpoint,
    tier: Tier,
    home: home::Home,
    driver: std::sync::Arc<driver::Driver>,
    server: JoinHandle<()>,
    clockwork: JoinHandle<()>,
    _lock: home::UpLock,
}

/// Starts an allocator: takes the home, measures the machine, finds the workers of an earlier run, serves, and publishes
/// where. Must be called within a tokio runtime with IO and time.
///
/// # Errors
/// [`StartError`]; nothing is left running.
pub async fn start(config: Config) -> Result<Running, StartError> {
    if !config.listen.ip().is_loopback() {
        return Err(StartError::NotLoopback(config.listen));
    }
    let home = home::Home::open(&config.home)?.beside(config.beside.clone());
    let up_lock = home.lock()?;
    // One that a crash left behind names a port that anybody may have by now.
    home.unpublish();
    let unrecorded = |source| StartError::Audit { home: home.path().to_owned(), source };
    let audit = audit::Audit::open(&home).map_err(unrecorded)?;
    let tier = tier(&config).await?;
    if tier == Tier::Domain && plan::slots_have_users() {
        home.check_the_way()?;
    }
    let secret = home.signing_secret()?;
    let store = store::Store::open(home.store())?;
    let listener = door::listen(config.listen).await.map_err(|source| {
        let address = config.listen;
        if source.kind() == std::io::ErrorKind::AddrInUse {
            StartError::InUse { address }
        } else {
            StartError::Listen { address, source }
        }
    })?;
    let address = listener
        .local_addr()
        .map_err(|source| StartError::Listen { address: config.listen, source })?;
    if let Some(exposed) = door::exposed_ports() {
        tracing::warn!(fix = exposed.fix(), "{exposed}");
    }
    let driver = driver::Driver::new(driver::Parts {
        home: home.clone(),
        store,
        secret,
        supervisor: config.supervisor,
        profiles: config.profiles.unwrap_or_else(|| home.profiles()),
        tier,
        patience: config.patience,
        owned: config.owned,
        learn: config.learn,
        audit: audit.clone(),
    });
    audit.started(tier).map_err(|error| unrecorded(error.into()))?;
    driver.recover_all().await.map_err(StartError::Recover)?;
    let endpoint =
        Endpoint { address, token: bearer_token(), pid: std::process::id(), tier: Some(tier) };
    let guard = http::Guard::new(&endpoint.token, address);
    let server = tokio::spawn(http::serve(listener, std::sync::Arc::clone(&driver), guard));
    // Whoever does not answer holds up nobody else.
    tokio::spawn(std::sync::Arc::clone(&driver).settle_keys());
    let clockwork = tokio::spawn(std::sync::Arc::clone(&driver).clockwork());
    if let Err(error) = home.publish(&endpoint) {
        server.abort();
        clockwork.abort();
        return Err(error.into());
    }
    tracing::info!(%address, %tier, home = %home.path().display(), "allocator serves");
    Ok(Running { endpoint, tier, home, driver, server, clockwork, _lock: up_lock })
}

async fn tier(config: &Config) -> Result<Tier, StartError> {
    let got = check(&config.supervisor).await?.tier;
    match (config.tier, got) {
        (Some(wanted), got) if got.is_none_or(|got| got < wanted) => {
            Err(StartError::Tier { wanted, got })
        }
        (Some(wanted), _) => Ok(wanted),
        (None, got) => got.ok_or(StartError::NoTier),
    }
}

/// 256 random bits in hex, new at each start.
fn bearer_token() -> String {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes).expect("the kernel's random source answers once booted");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

// === impl Running ===

impl Running {
    /// Where it serves, and the token.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The tier of new sessions.
    #[must_use]
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// Ends the allocator. Dropping it instead leaves the workers, too, but not in good order.
    ///
    /// # Errors
    /// [`ApiError`] where a worker could not be proven gone or a directory not deleted; the allocator has ended anyway.
    pub async fn shutdown(self, mode: Shutdown) -> Result<(), ApiError> {
        // First, so that nobody finds what is about to go; the server itself answers to the end.
        self.home.unpublish();
        let outcome = match mode {
            Shutdown::LeaveWorkers => {
                self.driver.drain().await;
                Ok(())
            }
            Shutdown::StopAll => self.driver.stop_all(false).await,
            Shutdown::StopAllAndDelete => self.driver.stop_all(true).await,
        };
        self.clockwork.abort();
        self.server.abort();
        let _ = self.clockwork.await;
        let _ = self.server.await;
        self.driver.audit().settle();
        outcome
    }
}
