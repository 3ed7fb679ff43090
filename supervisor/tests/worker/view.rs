//! What is not the agent's: not to be found in tier `namespace`, and not to be shut for ever in tier `domain`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use casemate_protocol::tier::Tier;
use casemate_protocol::token::Audience;
use casemate_protocol::worker::Repository;

use crate::client::Client;
use crate::harness::{Slot, Who, eventually, example, lives};

/// A repository with a socket of a host's process in it, and a template: (repository, template).
fn surroundings(slot: &Slot) -> (PathBuf, PathBuf) {
    let (source, template) = (slot.root.path().join("source"), slot.root.path().join("template"));
    fs::create_dir(&template).unwrap();
    fs::write(template.join("file"), "of the template").unwrap();
    let made = std::process::Command::new("git").args(["init", "-q"]).arg(&source).status();
    assert!(made.unwrap().success());
    for path in [&source, &template] {
        slot.hand_over(path);
    }
    (source.join(".git"), template)
}

/// Landlock closes contents. What it lets through on a path that is known (metadata, watching, connecting) has no path in
/// tier `namespace`, neither in a new session nor in a resumed one.
#[test]
fn nothing_that_is_not_the_agents_can_be_found_in_tier_namespace() {
    for who in [Who::Own, Who::User] {
        let mut slot = Slot::new(Tier::Namespace, who);
        let (source, template) = surroundings(&slot);
        // What git's own monitor listens on: it runs commands for whoever connects.
        let socket = UnixListener::bind(source.join("fsmonitor--daemon.ipc")).unwrap();
        socket.set_nonblocking(true).unwrap();
        slot.hand_over(&source);
        slot.config.repository = Some(Repository::Local(source));
        slot.config.home_template = Some(template);
        let inside = example("inside");
        slot.config.programs.push(inside.clone());
        for generation in ["new", "resumed"] {
            let (worker, address) = slot.serve();
            let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
            client.initialize();
            let session = client.new_session();
            let mut tried = 0;
            for (verb, path) in [
                ("files", "/casemate/state/provisioned.json"),
                ("files", "/casemate/state/journal/x"),
                ("files", "/casemate/source/HEAD"),
                ("files", "/casemate/source/fsmonitor--daemon.ipc"),
                ("files", "/casemate/template/file"),
                ("socket", "/casemate/source/fsmonitor--daemon.ipc"),
            ] {
                // At its own path, unless the session's own trees are shown there.
                let attack = format!(
                    "for program in {} /programs/1/inside; do [ -x $program ] && $program {verb} {path}; done; true",
                    inside.display()
                );
                let said = client.shell(&session, &attack);
                let attempts = said.lines().filter_map(|line| serde_json::from_str(line).ok());
                for casemate_inside::Attempt { attack, outcome, detail, .. } in attempts {
                    let what =
                        format!("{who:?}, {generation}: {attack} {path}: {outcome} {detail}");
                    assert_eq!(outcome, "ENOENT", "{what}");
                    tried += 1;
                }
            }
            assert!(tried > 90, "{tried} attempts");
            let shut = client.shell(
                &session,
                "for place in state source template; do for command in 'stat' 'chmod 000' 'touch' 'cd'; do \
                 $command /casemate/$place && echo DONE $command $place; done; done; \
                 chmod 000 /casemate && echo DONE; grep ' /casemate' /proc/self/mountinfo && echo DONE; true",
            );
            assert!(!shut.contains("DONE"), "{who:?}, {generation}: {shut}");
            assert!(socket.accept().is_err(), "{who:?}, {generation}: the agent came through");
            // The supervisor goes on where the agent cannot follow.
            let state = slot.config.volume.join("state");
            assert!(fs::read_dir(state.join("journal")).unwrap().count() > 0);
            let log = fs::read_to_string(state.join("agent-stderr.log"));
            assert!(log.is_ok(), "{log:?}");
            worker.stop();
            slot.config.generation = slot.config.generation.next();
        }
    }
}

/// In tier `domain` an agent can change the mode of its supervisor's files; the next start puts that right.
#[test]
fn a_state_that_its_agent_shut_is_opened_again() {
    let mut slot = Slot::new(Tier::Domain, Who::User);
    let (worker, address) = slot.serve();
    let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
    client.initialize();
    let session = client.new_session();
    let state = slot.config.volume.join("state");
    let shut =
        format!("cd {} && chmod 000 provisioned.json saved.json . && echo SHUT", state.display());
    let said = client.shell(&session, &shut);
    assert!(said.contains("SHUT"), "the tier has become stronger: {said}");
    assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0);
    // Killed: its spawner holds the slot until it has ended the agent.
    let left = worker.descendants();
    drop(worker);
    eventually("the slot is free", || !left.iter().any(|pid| lives(*pid)));
    slot.config.generation = slot.config.generation.next();
    let (worker, _) = slot.serve();
    assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(worker.log().contains("mode mended"), "{}", worker.log());
    worker.stop();
}
