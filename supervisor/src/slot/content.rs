//! What a slot's configuration names, read while the worker waits, so that a bind costs none of it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use casemate_protocol::policy::{BUILT_IN, Policy};
use casemate_protocol::slot::{CertificateFiles, Content, SlotConfig, SlotPolicy};
use casemate_protocol::tls::Certificate;
use casemate_protocol::worker::StartError;

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
