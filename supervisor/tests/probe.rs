//! Every attack of the catalogue in a session of each tier, as root and as an ordinary user: each answer is one that the
//! tier promises, by its errno.
#![allow(clippy::unwrap_used, reason = "a test helper that fails is a failed test")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use casemate_inside::SUCCEEDED;
use casemate_inside::catalogue::{Answer, Expected, UNTRIED, attack, attacks};

const USER: u32 = 1000;

fn answers(tier: &str, user: Option<u32>) -> Vec<Answer> {
    // Not below /tmp: inside a session that is the session's own.
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    // Where the user of this pass may run it.
    let program = place.path().join("casemate-supervisor");
    fs::copy(env!("CARGO_BIN_EXE_casemate-supervisor"), &program).unwrap();
    let slot = place.path().join("place");
    fs::create_dir(&slot).unwrap();
    let mut command = Command::new(program);
    command.args(["probe", "machine", "--answers", tier]).arg(&slot);
    if let Some(user) = user {
        std::os::unix::fs::chown(&slot, Some(user), Some(user)).unwrap();
        command.uid(user).gid(user);
    }
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{tier} {user:?}: {stderr}"))
}

#[test]
fn each_answer_in_each_tier_is_one_that_the_tier_promises() {
    let users: &[Option<u32>] =
        if nix::unistd::geteuid().is_root() { &[None, Some(USER)] } else { &[None] };
    for user in users {
        for tier in ["domain", "namespace"] {
            let answers = answers(tier, *user);
            assert_eq!(answers.len(), attacks().count(), "{tier}");
            let wrong: Vec<String> = answers
                .iter()
                .filter_map(|answer| {
                    let attack = attack(&answer.id).unwrap();
                    let expected = if tier == "domain" { attack.domain } else { attack.namespace };
                    let kept = match expected {
                        Expected::Refused(names) => names.contains(&answer.outcome.as_str()),
                        Expected::Leaks | Expected::Own => answer.outcome == SUCCEEDED,
                    };
                    // A machine may have no su(1), no autofs.
                    let tried = answer.outcome != UNTRIED;
                    (tried && !kept)
                        .then(|| format!("{}: {}, not {expected:?}", answer.id, answer.outcome))
                })
                .collect();
            assert!(wrong.is_empty(), "{tier}, user {user:?}: {wrong:#?}");
        }
    }
}
