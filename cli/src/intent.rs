//! The options that say what a session is made of; the same for `acp` and `run`.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};

use casemate_protocol::api::Intent;
use casemate_protocol::codes::exit;

use crate::failure::Failure;

/// What a session is made of.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct IntentArgs {
    /// Profile: the administrator's choice of policy, tier, lifetimes and of who shares a worker
    #[arg(long, value_name = "NAME", default_value = "default")]
    profile: String,
    /// Repository that the agent gets a private clone of: a directory or an http(s) URL (default: an empty repository)
    #[arg(long, value_name = "REPO")]
    repo: Option<String>,
    /// Hand a variable to the agent; NAME alone takes the value from here, so that it is in no command line
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// Let the agent connect to this TCP port (a model server on loopback, say)
    #[arg(long, value_name = "PORT")]
    connect: Vec<u16>,
    /// Let the agent read and run this file, or what is below this directory (its own installation)
    #[arg(long, value_name = "PATH")]
    program: Vec<PathBuf>,
    /// Copy this directory into each new HOME
    #[arg(long, value_name = "DIR")]
    home_template: Option<PathBuf>,
    /// Show this directory to the agent as read-only skills
    #[arg(long, value_name = "DIR")]
    skills: Option<PathBuf>,
    /// The agent's ACP command line, after `--`
    #[arg(last = true, required = true, value_name = "AGENT")]
    agent: Vec<String>,
}

// === impl IntentArgs ===

impl IntentArgs {
    /// Paths made absolute and looked at, variables looked up.
    pub(crate) fn into_intent(self) -> Result<Intent, Failure> {
        Ok(Intent {
            profile: self.profile,
            repository: self.repo.map(repository).transpose()?,
            agent: self.agent,
            env: self
                .env
                .iter()
                .map(|text| variable(text))
                .collect::<Result<BTreeMap<_, _>, _>>()?,
            connect: self.connect,
            programs: self
                .program
                .iter()
                .map(|path| existing("--program", path))
                .collect::<Result<_, _>>()?,
            skills: self.skills.map(|path| directory("--skills", &path)).transpose()?,
            home_template: self
                .home_template
                .map(|path| directory("--home-template", &path))
                .transpose()?,
        })
    }
}

fn repository(text: String) -> Result<String, Failure> {
    if is_ssh(&text) {
        let what = "SSH remotes are not supported, for an agent has no keys of yours; give the https:// URL";
        return Err(Failure::new(
            exit::USAGE,
            format!("--repo: {what}, or a clone on this machine"),
        ));
    }
    if text.contains("://") {
        return Ok(text);
    }
    let path = directory("--repo", Path::new(&text))?;
    path.into_os_string().into_string().map_err(|path| {
        Failure::new(exit::USAGE, format!("--repo {}: the path is not UTF-8", path.display()))
    })
}

fn existing(option: &str, path: &Path) -> Result<PathBuf, Failure> {
    path.canonicalize().map_err(|error| {
        Failure::because(exit::NO_INPUT, format!("{option} {}", path.display()), &error)
    })
}

/// `ssh://…`, or scp's `user@host:path` (git-clone(1), "GIT URLS"): a colon before the first slash.
fn is_ssh(text: &str) -> bool {
    if let Some((scheme, _)) = text.split_once("://") {
        return matches!(scheme, "ssh" | "git+ssh" | "ssh+git");
    }
    let host = text.split('/').next().unwrap_or_default();
    host.contains(':') && !Path::new(text).exists()
}

fn directory(option: &str, path: &Path) -> Result<PathBuf, Failure> {
    let resolved = existing(option, path)?;
    if resolved.is_dir() {
        Ok(resolved)
    } else {
        Err(Failure::new(exit::NO_INPUT, format!("{option} {}: not a directory", path.display())))
    }
}

/// A variable as it is written on a command line.
pub(crate) fn variable(text: &str) -> Result<(String, String), Failure> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, value.to_owned()),
        None => {
            let value = env::var(text).map_err(|error| {
                Failure::because(
                    exit::USAGE,
                    format!("--env {text}: set it here or write NAME=VALUE"),
                    &error,
                )
            })?;
            (text, value)
        }
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(plain) || name.starts_with(|c: char| c.is_ascii_digit())
    {
        return Err(Failure::new(exit::USAGE, format!("--env {name}: not a variable's name")));
    }
    Ok((name.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_taken_as_written_or_from_here() {
        assert_eq!(variable("A=b=c").unwrap(), ("A".into(), "b=c".into()));
        assert_eq!(variable("PATH").unwrap().1, env::var("PATH").unwrap());
        assert_eq!(variable("NO_SUCH_VARIABLE_HERE").unwrap_err().code(), exit::USAGE);
        assert_eq!(variable("1A=x").unwrap_err().code(), exit::USAGE);
        assert_eq!(variable("=x").unwrap_err().code(), exit::USAGE);
    }

    #[test]
    fn a_repository_is_a_url_or_an_existing_directory() {
        assert_eq!(repository("https://x/y.git".into()).unwrap(), "https://x/y.git");
        for ssh in ["git@github.com:a/b", "ssh://git@example.org/a", "host:a"] {
            assert!(repository(ssh.into()).unwrap_err().to_string().contains("https://"), "{ssh}");
        }
        assert_eq!(repository("/no/such/place".into()).unwrap_err().code(), exit::NO_INPUT);
        assert_eq!(repository("/proc/version".into()).unwrap_err().code(), exit::NO_INPUT);
    }
}
