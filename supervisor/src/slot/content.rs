//! What a slot's configuration names: read at the start, so that a worker that cannot use it waits for nobody, and once more when a bind comes,
//! since a kubelet changes what is mounted while the worker waits.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use casemate_protocol::policy::decide::{self, Outcome, Setting};
use casemate_protocol::policy::{BUILT_IN, Policy};
use casemate_protocol::slot::{CertificateFiles, Content, SlotConfig, SlotPolicy};
use casemate_protocol::tier::Tier;
use casemate_protocol::tls::Certificate;
use casemate_protocol::worker::StartError;
use casemate_sandbox::{WallError, check_calls, check_egress};

use crate::skills;

/// All of it.
#[derive(Debug)]
pub struct Found {
    /// The policy, parsed.
    pub policy: Policy,
    /// Its text, and the secrets' values.
    pub content: Content,
    /// The revision of the skills.
    pub skills: Option<String>,
}

/// Reads it.
///
/// # Errors
/// [`StartError::Policy`] of a policy that is wrong or another than the pinned one, [`StartError::Config`] of what cannot be read.
pub fn read(config: &SlotConfig) -> Result<Found, StartError> {
    let (text, pinned) = policy(&config.policy)?;
    let policy =
        Policy::parse(&text).map_err(|error| StartError::Policy { message: error.to_string() })?;
    if let Some(pinned) = pinned.filter(|pinned| **pinned != policy.revision) {
        return Err(StartError::Policy {
            message: format!(
                "the policy's revision is {} and {pinned} is wanted: a policy that changes gets another name",
                policy.revision
            ),
        });
    }
    holds(&policy, &text)?;
    let secrets: BTreeMap<String, String> = config
        .secrets
        .iter()
        .map(|(name, path)| Ok((name.clone(), file(path)?)))
        .collect::<Result<_, StartError>>()?;
    let skills = config
        .skills
        .as_deref()
        .map(|path| skills::revision(path).map_err(|error| unreadable(path, &error)));
    Ok(Found { policy, content: Content { policy: text, secrets }, skills: skills.transpose()? })
}

/// What would be found out when the session is there, told before anybody is bound: names that are no system calls, hosts that nothing
/// holds, and calls that reach other sessions of the user, in which no policy's word counts (`probe/judge.rs`).
fn holds(policy: &Policy, text: &str) -> Result<(), StartError> {
    let wrong = |error: &WallError| StartError::Policy { message: error.in_text(text).to_string() };
    check_calls(policy).map_err(|error| wrong(&error))?;
    check_egress(policy).map_err(|error| wrong(&error))?;
    let setting = Setting { tier: Tier::Pod.wall(), ..Setting::symbolic(policy) };
    let is_open =
        |name: &str| decide::syscall(policy, &setting, name, &[]).outcome == Outcome::Allowed;
    for (calls, what) in [
        (
            &["shmget", "shmat", "shmctl"][..],
            "a segment of another session's memory is found by its number",
        ),
        (&["keyctl"], "the keyrings of a user are every session's"),
    ] {
        if calls.iter().all(|name| is_open(name)) {
            let calls = calls.join(", ");
            let message = format!(
                "the policy lets {calls} through, and no session starts with that in a Pod, since {what}: name them in a [[syscall]] \
                 table, as the built-in policies do"
            );
            return Err(StartError::Policy { message });
        }
    }
    Ok(())
}

/// A slot's certificate with its key, from their files.
///
/// # Errors
/// [`StartError::Config`].
pub fn certificate(files: &CertificateFiles) -> Result<Certificate, StartError> {
    Ok(Certificate { chain: file(&files.chain)?, key: file(&files.key)? })
}

fn policy(wanted: &SlotPolicy) -> Result<(String, Option<&String>), StartError> {
    match wanted {
        SlotPolicy::BuiltIn(name) => {
            let known = BUILT_IN.iter().find(|(known, _)| known == name);
            let (_, text) = known.ok_or_else(|| StartError::Policy {
                message: format!("no policy of the name {name} comes with casemate"),
            })?;
            Ok(((*text).to_owned(), None))
        }
        SlotPolicy::File { path, revision } => Ok((file(path)?, revision.as_ref())),
    }
}

fn file(path: &Path) -> Result<String, StartError> {
    fs::read_to_string(path).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &std::io::Error) -> StartError {
    StartError::Config { message: format!("cannot read {}: {error}", path.display()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_protocol::policy::DEVELOPER;

    #[test]
    fn a_policy_that_no_session_could_start_with_is_refused_before_there_is_one() {
        let told = |text: &str| holds(&Policy::parse(text).unwrap(), text);
        for (name, text) in BUILT_IN {
            told(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        for (from, to, words) in [
            ("\"shmget\", \"shmat\", \"shmctl\", ", "", "shmget, shmat, shmctl"),
            ("\"keyctl\"", "\"sync\"", "keyctl"),
            ("\"setns\"", "\"setnss\"", "column"),
            ("mode = \"open\"", "mode = \"allow-list\"", "not enforced"),
        ] {
            let text = DEVELOPER.replace(from, to);
            assert_ne!(text, DEVELOPER, "{from}");
            let error = told(&text).unwrap_err();
            assert!(matches!(error, StartError::Policy { .. }), "{error:?}");
            assert!(error.to_string().contains(words), "{error}");
        }
        // Of several that an attack needs, one that is refused will do.
        told(&DEVELOPER.replace("\"shmget\", \"shmat\", ", "")).unwrap();
    }
}
