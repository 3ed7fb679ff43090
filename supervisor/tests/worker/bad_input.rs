//! What cannot work is refused with the fix and its exit code, and nothing half made is left.

use std::fs;
use std::net::TcpListener;

use casemate_protocol::ids::Generation;
use casemate_protocol::tier::Tier;
use casemate_protocol::worker::{Repository, StartError, StartEvent};

use crate::harness::{Slot, Who, Worker};

fn slot() -> Slot {
    Slot::new(Tier::Namespace, Who::User)
}

#[test]
fn a_configuration_that_is_no_configuration() {
    let directory = tempfile::tempdir().unwrap();
    for text in ["", "{", r#"{"session":"x"}"#, r#"{"unknown":1}"#] {
        let mut worker = Worker::start(Who::Own, text, directory.path());
        let event = worker.outcome();
        let StartEvent::Failed { error: StartError::Config { message } } = event else {
            panic!("{event:?}");
        };
        assert!(!message.is_empty());
        assert_eq!(worker.wait().code(), Some(64));
    }
}

#[test]
fn a_policy_with_an_unknown_field_or_one_that_grants_the_state() {
    let mut unknown = slot();
    unknown.config.policy =
        unknown.config.policy.replacen("version = 1", "version = 1\nfoo = 2", 1);
    let (error, status) = unknown.fails();
    assert!(matches!(error, StartError::Policy { .. }), "{error}");
    assert!(error.to_string().contains("foo"), "{error}");
    assert_eq!(status.code(), Some(65));

    for tier in [Tier::Domain, Tier::Namespace] {
        let mut granting = Slot::new(tier, Who::User);
        let state = if tier == Tier::Namespace {
            "/casemate/state".to_owned()
        } else {
            granting.config.volume.join("state").display().to_string()
        };
        granting.config.policy +=
            &format!("\n[[path]]\npath = \"{state}\"\naccess = [\"read\"]\nreason = \"wrong\"\n");
        let (error, status) = granting.fails();
        assert!(matches!(error, StartError::Policy { .. }), "{error}");
        assert_eq!(status.code(), Some(65));
    }
}

#[test]
fn a_policy_that_grants_every_slot_is_found_before_an_agent_starts() {
    let mut slot = Slot::new(Tier::Domain, Who::User);
    let neighbour = slot.root.path().join("slots").join("neighbour");
    fs::create_dir_all(&neighbour).unwrap();
    let slots = slot.root.path().join("slots").display().to_string();
    slot.config.policy +=
        &format!("\n[[path]]\npath = \"{slots}\"\naccess = [\"read\"]\nreason = \"wrong\"\n");
    let (error, _) = slot.fails();
    assert!(matches!(error, StartError::Policy { .. } | StartError::Shield { .. }), "{error}");
}

#[test]
fn a_program_directory_that_shows_the_slots_is_refused() {
    let mut slot = slot();
    slot.config.programs.push(slot.root.path().to_owned());
    // Shown inside, it is granted as a program directory as well: the wall sees through the bind mount.
    let (error, status) = slot.fails();
    assert!(matches!(error, StartError::Policy { .. }), "{error}");
    assert_eq!(status.code(), Some(65));
}

#[test]
fn a_missing_repository_and_one_that_is_none() {
    let mut missing = slot();
    missing.config.repository = Some(Repository::Local("/no/such/repository".into()));
    let (error, status) = missing.fails();
    assert!(error.to_string().contains("/no/such/repository does not exist"), "{error}");
    assert_eq!(status.code(), Some(66));

    let mut none = slot();
    let empty = none.root.path().join("empty");
    fs::create_dir(&empty).unwrap();
    none.config.repository = Some(Repository::Local(empty));
    let (error, _) = none.fails();
    assert!(error.to_string().contains("is not a Git directory"), "{error}");
}

#[test]
fn a_remote_that_nobody_serves_and_a_scheme_that_is_not_cloned() {
    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let mut unreachable = slot();
    let url = format!("http://me:hunter2@{free}/r.git");
    unreachable.config.repository = Some(Repository::Remote(url));
    let mut worker = unreachable.start();
    let event = worker.outcome();
    let StartEvent::Failed { error } = event else { panic!("{event:?}") };
    assert!(matches!(error, StartError::Repository { .. }), "{error}");
    assert!(error.to_string().contains("check the URL and the network"), "{error}");
    assert_eq!(worker.wait().code(), Some(66));
    let said = format!("{error} {} {:?}", worker.log(), worker.progress);
    assert!(!said.contains("hunter2"), "{said}");

    let mut scheme = slot();
    scheme.config.repository = Some(Repository::Remote("ext::sh -c true".into()));
    assert!(matches!(scheme.fails().0, StartError::Repository { .. }));
}

#[test]
fn an_agent_that_is_not_there() {
    let mut slot = slot();
    slot.config.agent.argv = vec!["no-such-agent".into()];
    let (error, status) = slot.fails();
    assert!(matches!(error, StartError::AgentNotFound { .. }), "{error}");
    assert!(error.to_string().contains("/usr/bin/no-such-agent"), "{error}");
    assert_eq!(status.code(), Some(127));
    // Found before anything was cloned or marked.
    assert!(!slot.config.volume.join("state/provisioned.json").exists());
}

#[test]
fn an_agent_outside_of_what_is_shown_inside() {
    for tier in [Tier::Namespace, Tier::Domain] {
        let mut slot = Slot::new(tier, Who::User);
        slot.config.programs.clear();
        let (error, status) = slot.fails();
        assert!(matches!(error, StartError::AgentNotFound { .. }), "{tier}: {error}");
        assert_eq!(status.code(), Some(127));
    }
}

#[test]
fn an_address_that_is_taken() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let mut slot = slot();
    slot.config.listen = taken.local_addr().unwrap();
    let (error, status) = slot.fails();
    assert!(matches!(error, StartError::Listen { .. }), "{error}");
    assert_eq!(status.code(), Some(75));
}

#[test]
fn a_second_worker_on_the_slot_and_another_session_in_it() {
    let mut slot = slot();
    let (worker, _) = slot.serve();
    slot.config.generation = Generation(2);
    let (error, status) = slot.fails();
    assert_eq!(error, StartError::SlotBusy { slot: slot.config.slot.clone() });
    assert_eq!(status.code(), Some(75));
    worker.stop();
    slot.config.session = casemate_protocol::ids::SessionId::random();
    let (error, status) = slot.fails();
    assert!(matches!(error, StartError::Volume { .. }), "{error}");
    assert_eq!(status.code(), Some(73));
}

#[test]
fn a_session_keeps_its_tier() {
    let mut slot = slot();
    slot.serve().0.stop();
    slot.config.generation = slot.config.generation.next();
    slot.config.tier = Tier::Domain;
    let (error, status) = slot.fails();
    assert!(matches!(error, StartError::Tier { .. }), "{error}");
    assert_eq!(status.code(), Some(78));
}

#[test]
fn a_policy_that_grants_keys_store_or_another_slot_is_refused() {
    for who in [Who::Own, Who::User] {
        for path in [
            "keys",
            "keys/signing.seed",
            "store.redb",
            "slots/other",
            "slots/other/sessions/s/work",
            "link",
            "",
        ] {
            let mut slot = Slot::new(Tier::Domain, who);
            let home = slot.root.path().to_owned();
            slot.config.private = vec![home.clone()];
            for directory in ["keys", "slots/other/sessions/s/work"] {
                fs::create_dir_all(home.join(directory)).unwrap();
            }
            for file in ["keys/signing.seed", "store.redb"] {
                fs::write(home.join(file), "secret").unwrap();
            }
            std::os::unix::fs::symlink(home.join("slots/other"), home.join("link")).unwrap();
            slot.config.policy += &format!(
                "\n[[path]]\npath = \"{}\"\naccess = [\"read\"]\nreason = \"wrong\"\n",
                home.join(path).display().to_string().trim_end_matches('/')
            );
            let (error, status) = slot.fails();
            assert!(matches!(error, StartError::Policy { .. }), "{who:?} {path}: {error}");
            assert!(error.to_string().contains("no agent may have"), "{who:?} {path}: {error}");
            assert_eq!(status.code(), Some(65));
        }
    }
}

/// Behind a Pod's mounts: its own token, a Secret, a file of one, the token's place mounted once more, a link to it.
#[test]
fn a_policy_that_grants_a_mounted_secret_is_refused_and_the_default_one_is_not() {
    let policy = include_str!("../../../policies/developer.toml");
    for tier in [Tier::Domain, Tier::Namespace] {
        let mut slot = Slot::new(tier, Who::Own);
        let mounts = slot.root.path().join("mounts");
        fs::create_dir(&mounts).unwrap();
        let Some(before) = crate::pod::before(&mounts) else { return };
        let outcome = |slot: &Slot| {
            let mut worker = slot.start_by(before.clone());
            (worker.outcome(), worker)
        };
        let (event, worker) = outcome(&slot);
        assert!(matches!(event, StartEvent::Ready { .. }), "{tier}: {event:?}\n{}", worker.log());
        worker.stop();
        let below = |name: &str| mounts.join(name).display().to_string();
        let names = ["token", "token/value", "key", "bound", "link", ""].map(below);
        // In a namespace of its own the session has nothing of all that: there a rule is empty, but where the name says it, of a directory
        // above as well.
        let found = if tier == Tier::Domain { &names[..] } else { &[] };
        let named = ["/run/secrets", "/var/run/secrets/kubernetes.io/serviceaccount"];
        let above = Some("/run");
        let paths = found.iter().map(String::as_str).chain(above);
        for (path, words) in paths
            .map(|path| (path, "where secrets are mounted"))
            .chain(named.map(|path| (path, "no agent may have those")))
        {
            slot.config.generation = Generation(slot.config.generation.0 + 1);
            slot.config.policy = format!(
                "{policy}\n[[path]]\npath = \"{}\"\naccess = [\"read\"]\nreason = \"wrong\"\n",
                path.trim_end_matches('/')
            );
            let (event, mut worker) = outcome(&slot);
            let StartEvent::Failed { error: StartError::Policy { message } } = &event else {
                panic!("{tier} {path}: {event:?}\n{}", worker.log());
            };
            assert!(message.contains(words), "{tier} {path}: {message}");
            assert_eq!(worker.wait().code(), Some(65));
        }
    }
}

/// In a namespace of its own the session is shown these at `/skills` and `/programs`, and gets a copy of the template: names by which
/// no wall would know a secret again.
#[test]
fn no_mounted_secret_is_shown_under_a_name_of_the_sessions_own() {
    for tier in [Tier::Namespace, Tier::Domain] {
        let mut slot = Slot::new(tier, Who::Own);
        let mounts = slot.root.path().join("mounts");
        fs::create_dir(&mounts).unwrap();
        let Some(before) = crate::pod::before(&mounts) else { return };
        let below = |name: &str| mounts.join(name);
        let directories =
            ["token", "bound", "link", ""].map(below).into_iter().chain(["/run/secrets".into()]);
        let fixed = ["/run/secrets/plain", "/var/run/secrets"].map(std::path::PathBuf::from);
        let directories: Vec<_> = directories.chain(["/run".into()]).collect();
        let set = |slot: &mut Slot, name: &str, path: &std::path::Path| {
            let config = &mut slot.config;
            (config.skills, config.home_template) = (None, None);
            config.programs.truncate(1);
            match name {
                "skills" => config.skills = Some(path.to_owned()),
                "home_template" => config.home_template = Some(path.to_owned()),
                _ => config.programs.push(path.to_owned()),
            }
        };
        let cases = directories.iter().flat_map(|path| {
            ["skills", "home_template", "programs"].map(|name| (name, path.clone()))
        });
        let files = [below("token/value"), below("key")].into_iter().chain(fixed);
        for (name, path) in cases.chain(files.map(|path| ("programs", path))) {
            slot.config.generation = Generation(slot.config.generation.0 + 1);
            set(&mut slot, name, &path);
            let mut worker = slot.start_by(before.clone());
            let event = worker.outcome();
            let StartEvent::Failed { error: StartError::Policy { message } } = &event else {
                panic!("{tier} {name} {}: {event:?}\n{}", path.display(), worker.log());
            };
            assert!(message.contains("where secrets are mounted"), "{tier} {name}: {message}");
            assert_eq!(worker.wait().code(), Some(65));
        }
        // What is mounted beside them is no secret.
        set(&mut slot, "skills", &below("config"));
        slot.config.generation = Generation(slot.config.generation.0 + 1);
        let mut worker = slot.start_by(before);
        let event = worker.outcome();
        assert!(matches!(event, StartEvent::Ready { .. }), "{tier}: {event:?}\n{}", worker.log());
        worker.stop();
    }
}

#[test]
fn in_tier_domain_no_agent_is_root() {
    if !nix::unistd::geteuid().is_root() {
        // Nobody else can start a worker that would be.
        return;
    }
    for uid in [None, Some(0)] {
        let mut slot = Slot::new(Tier::Domain, Who::Own);
        slot.config.host_uid = uid;
        let (error, status) = slot.fails();
        assert!(
            matches!(&error, StartError::Config { message } if message.starts_with("host_uid")),
            "{error}"
        );
        assert_eq!(status.code(), Some(64));
    }
}
