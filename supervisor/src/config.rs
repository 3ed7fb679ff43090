//! Reads the worker's configuration and refuses what cannot work, before anything is made.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use casemate_protocol::ids::{Generation, Incarnation, SessionId};
use casemate_protocol::policy::{Policy, Port};
use casemate_protocol::ports::PortPool;
use casemate_protocol::sharing::SharedWorkerConfig;
use casemate_protocol::slot::{Bind, Content, SlotConfig, Terms};
use casemate_protocol::tier::Tier;
use casemate_protocol::tls::Certificate;
use casemate_protocol::worker::{AgentCommand, Keys, Repository, StartError, WorkerConfig};
use casemate_tls::server::Acceptor;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::slot::content;
use crate::words::chain;

/// More than any honest configuration holds.
const LARGEST: u64 = 4 * 1024 * 1024;

/// A configuration with its policy, both checked.
#[derive(Debug)]
pub struct Wanted {
    /// The configuration.
    pub config: WorkerConfig,
    /// Its policy, parsed.
    pub policy: Policy,
    /// The file that the configuration came from: no agent may read it.
    pub file: Option<PathBuf>,
}

/// What kind of worker is wanted.
#[derive(Debug)]
pub enum Kind {
    /// One session, from the start on.
    One(Box<Wanted>),
    /// Sessions of one user, none to begin with; and the file that the configuration came from.
    Many(Box<SharedWorkerConfig>, Option<PathBuf>),
}

/// Tells one kind from the other, whatever else is said.
#[derive(Deserialize)]
struct Peek {
    #[serde(default)]
    sharing: Option<serde_json::Value>,
}

/// Reads a slot's configuration.
///
/// # Errors
/// [`StartError::Config`] with what to mend.
pub fn read_slot(file: &Path) -> Result<SlotConfig, StartError> {
    let config: SlotConfig = from_json(&text_of(Some(file))?)?;
    let tls = config.tls.as_ref().map(content::certificate).transpose()?;
    check_door(config.listen, tls.as_ref(), config.plain)?;
    check_ports(config.ports)?;
    if config.tier != Tier::Pod {
        return Err(wrong(format!("tier {}: a slot of one session has tier pod", config.tier)));
    }
    if config.verify_also.len() >= Keys::MOST {
        return Err(wrong(format!(
            "verify_also: with verify_key there are at most {}",
            Keys::MOST
        )));
    }
    let lists = config.programs.iter().chain(&config.skills).chain(&config.home_template);
    all_absolute(lists.chain(config.secrets.values()))?;
    Ok(config)
}

/// Checks of a slot what does not depend on whose it will be: as [`examine`] and [`check_presence`] do of the session that it is bound to.
/// The configuration of a session of nobody's comes of it.
///
/// # Errors
/// [`StartError`] with what to mend.
pub fn examine_slot(config: &SlotConfig, content: Content) -> Result<WorkerConfig, StartError> {
    let nobodys = Bind {
        slot: config.name.clone(),
        session: SessionId::random(),
        incarnation: Incarnation(0),
        generation: Generation(0),
        expires: 0,
        canary: None,
        answered: None,
        terms: Terms {
            repository: None,
            agent: AgentCommand { argv: vec!["agent".to_owned()], env: BTreeMap::new() },
            policy_revision: None,
            skills_revision: None,
            connect: Vec::new(),
            origins: Vec::new(),
            permission_ttl: 0,
            kept: 0,
            blocked_ttl: 0,
            grace: 0,
        },
    };
    let whole = config.bound(nobodys, content);
    examine(&whole)?;
    check_presence(&whole)?;
    Ok(whole)
}

/// Reads from a file, or from stdin until its end.
///
/// # Errors
/// [`StartError::Config`] or [`StartError::Policy`] with what to mend.
pub fn read(file: Option<&Path>) -> Result<Kind, StartError> {
    let text = text_of(file)?;
    let file = file.map(Path::to_owned);
    let peek: Peek = from_json(&text)?;
    if peek.sharing.is_some() {
        let config: SharedWorkerConfig = from_json(&text)?;
        check_shared(&config)?;
        return Ok(Kind::Many(Box::new(config), file));
    }
    let config: WorkerConfig = from_json(&text)?;
    let policy = examine(&config)?;
    if config.tier == Tier::Pod {
        return Err(StartError::Tier {
            wanted: Tier::Pod,
            message: "a Pod's tier is made by the cluster, and its worker is started with --slot; ask for namespace or domain here".into(),
        });
    }
    Ok(Kind::One(Box::new(Wanted { config, policy, file })))
}

fn text_of(file: Option<&Path>) -> Result<String, StartError> {
    let mut text = String::new();
    let done = match file {
        Some(path) => std::fs::File::open(path)
            .and_then(|file| file.take(LARGEST).read_to_string(&mut text))
            .map_err(|error| format!("cannot read {}: {error}", path.display())),
        None => std::io::stdin()
            .take(LARGEST)
            .read_to_string(&mut text)
            .map_err(|error| format!("cannot read stdin: {error}")),
    };
    done.map_err(|message| StartError::Config { message })?;
    if text.trim().is_empty() {
        return Err(wrong("it is empty: give the configuration as JSON on stdin or with --config"));
    }
    Ok(text)
}

/// The text holds what callers hand to the agent: serde_json's message names fields and positions, not values of strings it
/// accepted.
fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, StartError> {
    serde_json::from_str(text)
        .map_err(|error| wrong(format!("{error}; compare with the fields of docs/worker.md")))
}

/// Checks a session's configuration; its policy, parsed.
///
/// # Errors
/// [`StartError`] with what to mend.
pub fn examine(config: &WorkerConfig) -> Result<Policy, StartError> {
    let policy = Policy::parse(&config.policy)
        .map_err(|error| StartError::Policy { message: error.to_string() })?;
    check(config)?;
    takes_tier(&policy, config.tier)?;
    keeps_ports_apart(&policy, config)?;
    Ok(policy)
}

fn check_shared(config: &SharedWorkerConfig) -> Result<(), StartError> {
    check_door(config.listen, config.tls.as_ref(), config.plain)?;
    check_ports(config.ports)?;
    all_absolute(std::iter::once(&config.volume).chain(&config.private))?;
    check_volume(&config.volume)
}

/// A policy may need more than the tier that was asked for; what is measured later on is never below that.
fn takes_tier(policy: &Policy, asked: Tier) -> Result<(), StartError> {
    if asked < policy.tier {
        let message = format!(
            "policy \"{}\" needs it and {asked} was asked for: ask for tier {} or use a policy that takes {asked}",
            policy.name, policy.tier
        );
        return Err(StartError::Tier { wanted: policy.tier, message });
    }
    Ok(())
}

/// Landlock knows numbers, not owners: a port of a range is granted as `{ports}`, to the session that has the range, and never by
/// its number. Whose range it is may change, so none of the pool is taken, whoever has it now.
fn keeps_ports_apart(policy: &Policy, config: &WorkerConfig) -> Result<(), StartError> {
    let number = |port: &Port| match port {
        Port::Number(number) => Some(*number),
        Port::Own | Port::Connect => None,
    };
    let named = policy.tcp.iter().flat_map(|rule| rule.connect.iter().chain(&rule.bind));
    let mut all = named.filter_map(number).chain(config.connect.iter().copied());
    let door = config.listen.port();
    let Some(port) = all.find(|port| *port > 0 && (config.ports.has(*port) || *port == door))
    else {
        return Ok(());
    };
    Err(StartError::Policy {
        message: format!(
            "tcp port {port} is a session's or a worker's own, and no session gets it by number: name another in `connect` and in \
             [[tcp]], or write {{ports}} for the session's own"
        ),
    })
}

fn wrong(message: impl Into<String>) -> StartError {
    StartError::Config { message: message.into() }
}

fn check(config: &WorkerConfig) -> Result<(), StartError> {
    if config.agent.argv.first().is_none_or(String::is_empty) {
        return Err(wrong("agent.argv is empty: name the agent's program"));
    }
    if config.agent.argv.iter().any(|word| word.contains('\0'))
        || config.agent.env.iter().any(|(name, value)| {
            name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
        })
    {
        return Err(wrong(
            "agent: a word holds a NUL byte, or a variable's name is empty or holds `=`",
        ));
    }
    check_door(config.listen, config.tls.as_ref(), config.plain)?;
    check_ports(config.ports)?;
    let paths = [Some(&config.volume), config.home_template.as_ref(), config.skills.as_ref()];
    let local = match &config.repository {
        Some(Repository::Local(path)) => Some(path),
        _ => None,
    };
    let lists = config.programs.iter().chain(&config.private);
    all_absolute(paths.into_iter().flatten().chain(local).chain(lists))
}

/// Tokens and conversations pass through the door.
fn check_door(
    listen: SocketAddr,
    tls: Option<&Certificate>,
    plain: bool,
) -> Result<(), StartError> {
    if let Some(certificate) = tls {
        Acceptor::new(certificate).map_err(|error| wrong(format!("tls: {error}")))?;
    } else if !plain && !listen.ip().is_loopback() {
        return Err(wrong(format!(
            "listen {listen} is not loopback and the door would be plain HTTP: give `tls` a certificate and its key, or say `plain` where \
             something else encrypts"
        )));
    }
    Ok(())
}

fn check_ports(ports: PortPool) -> Result<(), StartError> {
    if ports.is_sound() {
        return Ok(());
    }
    Err(wrong(
        "ports: `first` is a positive multiple of 16, `preferred` is below `ranges`, and the last range ends by 65535",
    ))
}

fn all_absolute<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Result<(), StartError> {
    match paths.into_iter().find(|path| !path.is_absolute()) {
        Some(path) => Err(wrong(format!("`{}` is not an absolute path", path.display()))),
        None => Ok(()),
    }
}

/// Checks that what the configuration names is there, seen from outside of every namespace.
///
/// # Errors
/// [`StartError::Repository`], [`StartError::Config`] or [`StartError::Volume`] naming what is missing.
pub fn check_presence(config: &WorkerConfig) -> Result<(), StartError> {
    if let Some(Repository::Local(path)) = &config.repository {
        check_local_repository(path)?;
    }
    let directories =
        [("home_template", config.home_template.as_ref()), ("skills", config.skills.as_ref())];
    for (name, path) in directories {
        if let Some(path) = path.filter(|path| !path.is_dir()) {
            return Err(wrong(format!("{name} {} is not a directory", path.display())));
        }
    }
    if let Some(path) = config.programs.iter().find(|path| !path.exists()) {
        return Err(wrong(format!("programs: {} does not exist", path.display())));
    }
    shows_no_secret(config)?;
    check_volume(&config.volume)
}

/// What the agent is shown under a name of its own, or gets a copy of: no wall knows a mounted secret again there.
fn shows_no_secret(config: &WorkerConfig) -> Result<(), StartError> {
    let local = match &config.repository {
        Some(Repository::Local(path)) => Some(path),
        _ => None,
    };
    let programs = config.programs.iter().map(|path| ("programs", path));
    let others = [
        ("home_template", config.home_template.as_ref()),
        ("skills", config.skills.as_ref()),
        ("repository", local),
    ];
    let others = others.into_iter().filter_map(|(name, path)| Some((name, path?)));
    for (name, path) in others.chain(programs) {
        casemate_sandbox::shows_no_secret(path).map_err(|error| StartError::Policy {
            message: format!("{name}: {}", chain(&error)),
        })?;
    }
    Ok(())
}

fn check_volume(volume: &Path) -> Result<(), StartError> {
    if volume.is_dir() {
        return Ok(());
    }
    Err(StartError::Volume {
        message: format!("{} is not a directory: make the slot first", volume.display()),
    })
}

fn check_local_repository(path: &Path) -> Result<(), StartError> {
    let missing = |message| Err(StartError::Repository { message });
    if !path.exists() {
        return missing(format!("{} does not exist", path.display()));
    }
    if path.join("commondir").exists() {
        return missing(format!(
            "{} belongs to a linked worktree: name the main repository's Git directory",
            path.display()
        ));
    }
    if path.join(".git").exists() && !path.join("objects").exists() {
        return missing(format!(
            "{0} is a worktree: name its Git directory, {0}/.git",
            path.display()
        ));
    }
    if !path.join("objects").is_dir() || !path.join("HEAD").is_file() {
        return missing(format!(
            "{} is not a Git directory (a `.git` or a bare repository): name one, or run `git init` there",
            path.display()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_protocol::policy::{BUILT_IN, DEVELOPER, STRICT};

    use crate::testing;

    #[test]
    fn no_session_gets_a_port_of_another_or_of_a_worker_by_its_number() {
        let config = |connect, tcp: &str| WorkerConfig {
            connect: vec![connect],
            policy: format!("{DEVELOPER}\n{tcp}"),
            listen: ([127, 0, 0, 1], 9443).into(),
            ..testing::config(Path::new("/"))
        };
        // The claim and door of a worker, a session's port, the pool's last one, this worker's door.
        for port in [20_000, 20_001, 20_127, 9443] {
            let refused = examine(&config(port, "")).unwrap_err();
            assert!(matches!(refused, StartError::Policy { .. }), "{port}: {refused:?}");
            assert!(refused.to_string().contains(&port.to_string()), "{refused}");
            for way in ["connect", "bind"] {
                let rule = format!("[[tcp]]\n{way} = [{port}]\nreason = \"r\"\n");
                let refused = examine(&config(443, &rule)).unwrap_err();
                assert!(matches!(refused, StartError::Policy { .. }), "{way} {port}: {refused:?}");
            }
        }
        for port in [443, 19_999, 20_128] {
            examine(&config(port, "[[tcp]]\nbind = [0, 8080]\nreason = \"r\"\n")).unwrap();
        }
    }

    #[test]
    fn a_plain_door_is_on_loopback_or_asked_for() {
        let config = |listen: &str, plain| WorkerConfig {
            listen: listen.parse().unwrap(),
            plain,
            policy: DEVELOPER.to_owned(),
            ..testing::config(Path::new("/"))
        };
        for listen in ["0.0.0.0:9443", "10.0.0.1:0", "[::]:9443", "[fe80::1]:9443"] {
            let refused = examine(&config(listen, false)).unwrap_err();
            assert!(matches!(refused, StartError::Config { .. }), "{listen}: {refused:?}");
            assert!(refused.to_string().contains("tls"), "{refused}");
            examine(&config(listen, true)).unwrap();
            let (certificate, _) = casemate_tls::issue::issue("w-x").unwrap();
            examine(&WorkerConfig { tls: Some(certificate), ..config(listen, false) }).unwrap();
            let (shared, _) = config(listen, false).apart("ann".parse().unwrap(), 0);
            assert!(check_shared(&shared).is_err(), "{listen}");
        }
        for listen in ["127.0.0.1:0", "127.9.9.9:9443", "[::1]:9443"] {
            examine(&config(listen, false)).unwrap();
        }
        let damaged = Certificate { chain: "x".into(), key: "secret".into() };
        let config = WorkerConfig { tls: Some(damaged), ..config("127.0.0.1:0", false) };
        let refused = examine(&config).unwrap_err().to_string();
        assert!(refused.contains("`chain`") && !refused.contains("secret"), "{refused}");
    }

    #[test]
    fn a_policy_is_not_used_in_a_weaker_tier_than_it_needs() {
        let strict = Policy::parse(STRICT).unwrap();
        let refused = takes_tier(&strict, Tier::Domain);
        assert!(
            matches!(refused, Err(StartError::Tier { wanted: Tier::Namespace, .. })),
            "{refused:?}"
        );
        for (_, text) in BUILT_IN {
            let policy = Policy::parse(text).unwrap();
            assert_eq!(takes_tier(&policy, policy.tier), Ok(()));
            assert_eq!(takes_tier(&policy, Tier::Pod), Ok(()));
        }
    }
}
