//! What a session's workers are made of: profile and intent, resolved once, when the session is made. A later change of
//! the profile, of PATH or of a policy file touches the key's next incarnation only.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use casemate_allocator_core::record::{Record, Terms};
use casemate_allocator_core::seat::{SEATS, Seat};
use casemate_protocol::api::{ApiError, ErrorKind, Intent};
use casemate_protocol::origin::Origin;
use casemate_protocol::policy::{self, Policy};
use casemate_protocol::sharing::UserId;
use casemate_protocol::tier::Tier;
use casemate_protocol::token::PublicKey;
use casemate_protocol::worker::{AgentCommand, Repository, StartError, WorkerConfig};
use casemate_sandbox::{Places, Reach, Reached, shows_nothing_of};
use serde::{Deserialize, Serialize};

use crate::closed::leaves_closed;
use crate::home::Home;
use crate::profile::{self, Profile, Sharing, is_variable_name};
use crate::programs::{self, Limits};
use crate::refusal::{IntoApi as _, refuse};
use crate::repository;

/// The resolved parts. Never holds values of the allocator's own environment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The tier that each worker of the session sets up.
    pub tier: Tier,
    /// Where the repository comes from.
    pub repository: Option<Repository>,
    /// Copied into a new HOME.
    pub home_template: Option<PathBuf>,
    /// Central skills.
    pub skills: Option<PathBuf>,
    /// Grants besides the system directories.
    pub programs: Vec<PathBuf>,
    /// The policy's text.
    pub policy: String,
    /// The agent's command line, its program absolute.
    pub argv: Vec<String>,
    /// Names of variables from the allocator's environment.
    pub pass: Vec<String>,
    /// Further ports to connect to.
    pub connect: Vec<u16>,
    /// Its workers' doors are encrypted.
    #[serde(default)]
    pub tls: bool,
    /// Pages that may attach.
    #[serde(default)]
    pub origins: Vec<Origin>,
    /// Seconds.
    pub permission_ttl: u64,
    /// Bytes.
    #[serde(default = "casemate_protocol::worker::kept")]
    pub kept: u64,
    /// Seconds.
    #[serde(default = "casemate_protocol::worker::blocked_ttl")]
    pub blocked_ttl: u64,
    /// Seconds.
    pub grace: u64,
    /// The slot has a user id of its own (the allocator was root).
    pub own_uid: bool,
    /// Whose worker it shares with that user's other sessions; `None`: it has one of its own.
    #[serde(default)]
    pub user: Option<UserId>,
}

/// Resolves an intent of `tenant`. Reads profile, policy and PATH; changes nothing.
pub(crate) fn make(
    intent: &Intent,
    tenant: &str,
    home: &Home,
    profiles: &Path,
    tier: Tier,
) -> Result<(Plan, Terms), ApiError> {
    let profile = Profile::load(profiles, &intent.profile).map_err(|error| error.into_api())?;
    let user = sharing_user(&profile, tenant)?;
    let given = given(user.is_some(), tier);
    let tier = given.tier;
    if tier < profile.tier {
        let wanted = profile.tier;
        let message = format!("profile `{}` wants tier {wanted} and {given}", intent.profile);
        return Err(no_tier(wanted, message));
    }
    if user.is_some() && slots_have_users() {
        home.check_the_way().map_err(|error| error.into_api())?;
    }
    for (name, value) in &intent.env {
        if !is_variable_name(name) || value.contains('\0') {
            let message = format!("`{name}` cannot be an environment variable");
            return Err(refuse(ErrorKind::Invalid, message));
        }
    }
    if intent.agent.iter().any(|word| word.contains('\0')) {
        return Err(refuse(ErrorKind::Invalid, "the agent's command line holds a NUL"));
    }
    let closed = home.closed();
    let repository = intent
        .repository
        .as_deref()
        .or(profile.repository.as_deref())
        .map(|text| repository::resolve(text, &closed))
        .transpose()
        .map_err(|error| error.into_api())?;
    let homes = programs::homes();
    let limits = Limits { casemate: &closed, homes: &homes };
    let argv0 = intent.agent.first().map_or("", String::as_str);
    let found = programs::find(argv0, &intent.env, limits).map_err(|error| error.into_api())?;
    let program = found.program.into_os_string().into_string().map_err(|path| {
        refuse(ErrorKind::Invalid, format!("the agent's path {} is not UTF-8", path.display()))
    })?;
    let mut grants = found.grants;
    let skills = intent.skills.clone().or(profile.skills);
    let home_template = intent.home_template.clone().or(profile.home_template);
    let more: Vec<PathBuf> = intent.programs.iter().chain(&profile.programs).cloned().collect();
    for path in more.iter().chain(&skills).chain(&home_template) {
        grantable(path, limits)?;
    }
    for path in more {
        if !grants.contains(&path) {
            grants.push(path);
        }
    }
    let mut connect: Vec<u16> = intent.connect.iter().chain(&profile.connect).copied().collect();
    connect.sort_unstable();
    connect.dedup();
    if connect.contains(&0) {
        return Err(refuse(ErrorKind::Invalid, "port 0 cannot be connected to"));
    }
    let terms = Terms {
        idle_ttl_ms: u64::try_from(profile.idle_ttl.as_millis()).unwrap_or(u64::MAX),
        close: profile.close.into(),
    };
    let policy = policy_text(&profile.policy, home, profiles, &given)?;
    let plan = Plan {
        tier,
        repository,
        home_template,
        skills,
        programs: grants,
        policy,
        argv: std::iter::once(program).chain(intent.agent.iter().skip(1).cloned()).collect(),
        pass: profile.env,
        connect,
        tls: profile.tls,
        origins: profile.origins,
        permission_ttl: profile.permission_ttl.as_secs(),
        kept: profile.kept,
        blocked_ttl: profile.blocked_ttl.as_secs(),
        grace: profile.grace.as_secs(),
        own_uid: slots_have_users(),
        user,
    };
    Ok((plan, terms))
}

/// Whose worker a session shares. On one machine the one identity that is authenticated is the home's owner; the authority's word
/// for the user is the key's tenant.
fn sharing_user(profile: &Profile, tenant: &str) -> Result<Option<UserId>, ApiError> {
    match profile.sharing {
        Sharing::Session => Ok(None),
        Sharing::User => {
            let wrong = |error| refuse(ErrorKind::Invalid, format!("`key.tenant`: {error}"));
            tenant.parse().map(Some).map_err(wrong)
        }
    }
}

/// The tier that there is for a session, and why no better one.
struct Given {
    tier: Tier,
    because: &'static str,
}

fn given(shares: bool, machine: Tier) -> Given {
    if shares {
        Given { tier: Tier::Domain, because: "a worker that a user's sessions share (`sharing`)" }
    } else {
        Given { tier: machine, because: "this machine" }
    }
}

impl std::fmt::Display for Given {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { tier, because } = self;
        write!(f, "{because} gives {tier}; `casemate doctor` says what this machine could give")
    }
}

fn no_tier(wanted: Tier, message: String) -> ApiError {
    let start = Some(StartError::Tier { wanted, message: message.clone() });
    ApiError { start, ..refuse(ErrorKind::Unavailable, message) }
}

/// Whether each slot gets a user of its own.
pub(crate) fn slots_have_users() -> bool {
    nix::unistd::geteuid().is_root() && seats_are_mapped()
}

/// Whether this user namespace has the seats' user ids (user_namespaces(7)): root of a rootless container has not.
fn seats_are_mapped() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.lines().any(|line| {
        let mut numbers = line.split_ascii_whitespace().map(str::parse::<u64>);
        let (Some(Ok(first)), Some(Ok(_)), Some(Ok(count))) =
            (numbers.next(), numbers.next(), numbers.next())
        else {
            return false;
        };
        let wanted = [Seat(0).uid(), Seat(SEATS - 1).uid()];
        wanted.iter().all(|&uid| (first..first + count).contains(&u64::from(uid)))
    })
}

/// Whether a path that a profile or a caller names may be shown to an agent.
fn grantable(path: &Path, limits: Limits<'_>) -> Result<(), ApiError> {
    let shown = path.display();
    if !path.is_absolute() {
        let message = format!("`{shown}` is relative; write an absolute path");
        return Err(refuse(ErrorKind::Invalid, message));
    }
    let resolved = path
        .canonicalize()
        .map_err(|_| refuse(ErrorKind::NotFound, format!("{shown} does not exist")))?;
    // Known again by whatever mount it is reached.
    let is_casemates = || shows_nothing_of(&resolved, limits.casemate).is_err();
    if !programs::allowed(&resolved, limits) || is_casemates() {
        let message = format!(
            "{shown} cannot be granted: it is or holds the root, a home or casemate's home, or lies in the last; \
             name a narrower directory"
        );
        return Err(refuse(ErrorKind::Invalid, message));
    }
    Ok(())
}

/// A policy's text, checked.
fn policy_text(
    name: &str,
    home: &Home,
    profiles: &Path,
    given: &Given,
) -> Result<String, ApiError> {
    let (text, place) = if let Some(text) = policy::built_in(name) {
        (text.to_owned(), format!("the built-in policy `{name}`"))
    } else if name.starts_with('/') {
        let text = std::fs::read_to_string(name).map_err(|error| {
            refuse(ErrorKind::NotFound, format!("cannot read the policy {name}: {error}"))
        })?;
        (text, name.to_owned())
    } else {
        let known = policy::BUILT_IN.map(|(known, _)| format!("`{known}`")).join(", ");
        let message = format!(
            "no built-in policy `{name}`; use one of {known}, or the absolute path of a policy file"
        );
        return Err(refuse(ErrorKind::NotFound, message));
    };
    // With the worker's own words for it, which decide the exit code: a worker would have refused the file as well.
    let wrong = |message: String| {
        let message = format!("{place}: {message}");
        let start = Some(StartError::Policy { message: message.clone() });
        ApiError { start, ..refuse(ErrorKind::Invalid, message) }
    };
    let policy = Policy::parse(&text).map_err(|error| wrong(error.to_string()))?;
    if let Some((egress, why)) = policy.egress.as_ref().and_then(|e| Some((e, e.unenforced()?))) {
        let message = format!("policy line {}: egress mode {} is {why}", egress.line, egress.mode);
        return Err(wrong(message));
    }
    for closed in home.closed() {
        leaves_closed(&policy, &text, &closed).map_err(|error| wrong(error.to_string()))?;
    }
    if name.starts_with('/') {
        lies_beyond_sessions(Path::new(name), &policy, home).map_err(wrong)?;
        // Sessions of other profiles are no more trusted with it.
        for (other, policy) in profile::policies(profiles) {
            lies_beyond_sessions(Path::new(name), &policy, home)
                .map_err(|message| wrong(format!("as profile `{other}` has it, {message}")))?;
        }
    }
    if given.tier < policy.tier {
        let message = format!("{place} needs tier {} and {given}", policy.tier);
        return Err(no_tier(policy.tier, message));
    }
    Ok(text)
}

/// Refuses a policy file that a session of `policy` could write, and so choose the next one's walls: one among the slots, or in what
/// a rule lets sessions write, whatever name or mount it is named by.
fn lies_beyond_sessions(file: &Path, policy: &Policy, home: &Home) -> Result<(), String> {
    let slots = home.slots();
    let places = Places::new(slots.clone(), slots.clone(), slots, Tier::Pod);
    let reach = Reach::of(policy, &places).map_err(|error| error.to_string())?;
    reach.lies_beyond(file).map_err(|error| match error {
        Reached::Written(place) => format!(
            "a session may write {}, and so the policy of the next: keep the file outside of what its rules let sessions write",
            place.display()
        ),
        Reached::Io(error) => error.to_string(),
    })
}

impl Plan {
    /// The user id of the slot's processes; `None`: the allocator's own.
    #[must_use]
    pub(crate) fn uid(&self, record: &Record) -> Option<u32> {
        self.own_uid.then(|| record.seat.uid())
    }

    /// What the next worker is told; `values`: the variables that the caller hands to the agent.
    #[must_use]
    pub(crate) fn config(
        &self,
        record: &Record,
        values: BTreeMap<String, String>,
        home: &Home,
        verify_key: PublicKey,
        owner: Option<u32>,
        learn: Option<Vec<PathBuf>>,
    ) -> WorkerConfig {
        let mut env = BTreeMap::new();
        for name in &self.pass {
            if let Ok(value) = std::env::var(name) {
                env.insert(name.clone(), value);
            }
        }
        env.extend(values);
        WorkerConfig {
            session: record.id.clone(),
            incarnation: record.incarnation,
            generation: record.generation,
            slot: record.slot.clone(),
            verify_key,
            tier: self.tier,
            // A slot's own user cannot look at what is another's and closed to him by its mode.
            private: if self.own_uid { vec![home.path().to_owned()] } else { home.closed() },
            volume: home.slot(&record.slot),
            repository: self.repository.clone(),
            home_template: self.home_template.clone(),
            skills: self.skills.clone(),
            programs: self.programs.clone(),
            policy: self.policy.clone(),
            agent: AgentCommand { argv: self.argv.clone(), env },
            ports: record.seat.ports(),
            connect: self.connect.clone(),
            listen: std::net::SocketAddr::from(([127, 0, 0, 1], 0)),
            // Issued at each start.
            tls: None,
            plain: false,
            origins: self.origins.clone(),
            permission_ttl: self.permission_ttl,
            kept: self.kept,
            blocked_ttl: self.blocked_ttl,
            grace: self.grace,
            host_uid: self.uid(record),
            owner,
            learn,
        }
    }
}
