//! What the agent is started with: variables, arguments, program.
//!
//! Pure but for looking into PATH. The environment is the policy's, then what the caller hands over on purpose, then
//! ours, which no one overrides. Nothing of this process's own environment passes but through the policy.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use casemate_protocol::ports::PortRange;
use casemate_protocol::worker::{StartError, WorkerConfig};

/// Where programs are looked for when nobody says.
pub const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The agent's variables. `policy` is what the policy gives.
#[must_use]
pub fn variables(
    config: &WorkerConfig,
    ports: PortRange,
    policy: Vec<(String, String)>,
    skills: Option<(&Path, &str)>,
) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::from([("PATH".to_owned(), DEFAULT_PATH.to_owned())]);
    variables.insert("CASEMATE_PORTS".into(), first_and_last(ports));
    variables.extend(policy);
    variables.extend(config.agent.env.clone());
    variables.insert("CASEMATE_SESSION".into(), config.session.to_string());
    variables.insert("CASEMATE_GENERATION".into(), config.generation.to_string());
    if let Some((path, revision)) = skills {
        variables.insert("CASEMATE_SKILLS".into(), path.display().to_string());
        variables.insert("CASEMATE_SKILLS_REVISION".into(), revision.to_owned());
    }
    variables
}

/// Lets git use a worktree whose directory is another user's: the kubelet makes a volume's parts, and git leaves alone what is not its
/// user's (git-config(1), safe.directory). Elsewhere the variables stay as they are.
#[must_use]
pub fn trusting(mut variables: BTreeMap<String, String>, work: &Path) -> BTreeMap<String, String> {
    let own = |meta: std::fs::Metadata| meta.uid() == nix::unistd::geteuid().as_raw();
    if std::fs::metadata(work).is_ok_and(own) {
        return variables;
    }
    let count: usize = variables.get("GIT_CONFIG_COUNT").and_then(|n| n.parse().ok()).unwrap_or(0);
    variables.insert(format!("GIT_CONFIG_KEY_{count}"), "safe.directory".to_owned());
    variables.insert(format!("GIT_CONFIG_VALUE_{count}"), work.display().to_string());
    variables.insert("GIT_CONFIG_COUNT".to_owned(), (count + 1).to_string());
    variables
}

/// A range as `CASEMATE_PORTS` names it.
#[must_use]
pub fn first_and_last(ports: PortRange) -> String {
    format!("{}-{}", ports.first, ports.iter().last().unwrap_or(ports.first))
}

/// The agent's arguments with `{port}` and `{work}` replaced.
#[must_use]
pub fn arguments(config: &WorkerConfig, ports: PortRange, work: &Path) -> Vec<String> {
    let port = ports.first.to_string();
    let work = work.to_string_lossy();
    config
        .agent
        .argv
        .iter()
        .map(|word| word.replace("{port}", &port).replace("{work}", &work))
        .collect()
}

/// Finds a program as execvp(3) would, inside the walls.
///
/// # Errors
/// [`StartError::AgentNotFound`] naming every place that was looked in.
pub fn find_program(name: &str, path: &str, work: &Path) -> Result<PathBuf, StartError> {
    let candidates: Vec<PathBuf> = if name.contains('/') {
        vec![work.join(name)]
    } else {
        // An empty element means the working directory (execvp(3)): the worktree is no place for an agent.
        path.split(':')
            .filter(|place| !place.is_empty())
            .map(|place| Path::new(place).join(name))
            .collect()
    };
    let runnable = |path: &&PathBuf| {
        std::fs::metadata(path)
            .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    if let Some(found) = candidates.iter().find(runnable) {
        return Ok(found.clone());
    }
    let places: Vec<String> =
        candidates.iter().map(|candidate| candidate.display().to_string()).collect();
    Err(StartError::AgentNotFound {
        message: format!(
            "`{name}` is not an executable file inside (looked at {}): install it, or name its directory in `programs`",
            places.join(", ")
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::config;

    #[test]
    fn ours_cannot_be_overridden_and_placeholders_are_replaced() {
        let mut config = config(Path::new("/v"));
        config.agent.env = BTreeMap::from([("CASEMATE_SESSION".into(), "forged".into())]);
        config.agent.argv = vec!["a".into(), "--port={port}".into(), "{work}/x".into()];
        let ports = PortRange { first: 20_001, count: 15 };
        let policy = vec![("HOME".into(), "/home/agent".into())];
        let variables = variables(&config, ports, policy, None);
        assert_eq!(variables["CASEMATE_SESSION"], config.session.to_string());
        assert_eq!(variables["CASEMATE_PORTS"], "20001-20015");
        assert_eq!(variables["HOME"], "/home/agent");
        assert_eq!(arguments(&config, ports, Path::new("/work")), ["a", "--port=20001", "/work/x"]);
    }

    #[test]
    fn git_is_told_to_trust_a_worktree_that_is_another_users_and_no_other() {
        let own = tempfile::tempdir().unwrap();
        assert!(trusting(BTreeMap::new(), own.path()).is_empty());
        // Nobody's: what is not there is not this user's.
        let other = own.path().join("missing");
        let given = BTreeMap::from([("GIT_CONFIG_COUNT".to_owned(), "2".to_owned())]);
        let variables = trusting(given, &other);
        assert_eq!(variables["GIT_CONFIG_COUNT"], "3");
        assert_eq!(variables["GIT_CONFIG_KEY_2"], "safe.directory");
        assert_eq!(variables["GIT_CONFIG_VALUE_2"], other.display().to_string());
    }

    #[test]
    fn a_program_is_found_in_path_and_its_absence_names_the_places() {
        assert!(find_program("sh", DEFAULT_PATH, Path::new("/")).is_ok());
        assert!(find_program("/bin/sh", "", Path::new("/")).is_ok());
        let error = find_program("no-such-agent", "/usr/bin::/bin", Path::new("/w")).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("/usr/bin/no-such-agent, /bin/no-such-agent"), "{text}");
        assert!(find_program("/etc/passwd", "", Path::new("/")).is_err());
    }
}
