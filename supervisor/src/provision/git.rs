//! The git commands of provisioning, as values.
//!
//! Pure. Git runs behind the session's wall and with a configuration of ours alone: no system or user file, no prompt,
//! no hook, no template. The clone comes over the transport, so that no unreachable object and no configuration of
//! the source comes along.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::process::confined::Job;

use super::remote::Remote;

/// The worktree, which every command runs in. Arguments are everybody's to read, and in tier `domain` other sessions shall
/// not learn the path from them.
const HERE: &str = ".";

/// What the commands have in common.
#[derive(Debug, Clone)]
pub(super) struct Git {
    /// Absolute path of git inside.
    pub program: PathBuf,
    /// PATH inside.
    pub path: String,
    /// The worktree.
    pub work: PathBuf,
    /// An empty scratch directory as HOME.
    pub home: PathBuf,
}

/// A remote with the addresses that its name had outside: behind the wall there may be no resolver.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The remote.
    pub remote: Remote,
    /// Its addresses; empty where the host is an address already.
    pub addresses: Vec<IpAddr>,
}

// === impl Resolved ===

impl Resolved {
    /// A remote whose host answers at this address.
    #[must_use]
    pub fn at(remote: Remote, address: IpAddr) -> Self {
        let is_address = remote.host.parse::<IpAddr>().is_ok();
        let addresses = if is_address { Vec::new() } else { vec![address] };
        Self { remote, addresses }
    }
}

// === impl Git ===

impl Git {
    fn job(&self, config: &[(String, String)], args: &[&str]) -> Job {
        let fixed = [
            ("HOME", self.home.to_string_lossy().into_owned()),
            ("PATH", self.path.clone()),
            ("LC_ALL", "C".into()),
            ("GIT_CONFIG_NOSYSTEM", "1".into()),
            ("GIT_CONFIG_GLOBAL", "/dev/null".into()),
            ("GIT_TERMINAL_PROMPT", "0".into()),
            ("GIT_ASKPASS", "true".into()),
            ("GIT_ALLOW_PROTOCOL", "file:http:https".into()),
            ("GIT_AUTHOR_NAME", "casemate".into()),
            ("GIT_AUTHOR_EMAIL", "casemate@localhost".into()),
            ("GIT_COMMITTER_NAME", "casemate".into()),
            ("GIT_COMMITTER_EMAIL", "casemate@localhost".into()),
        ];
        let mut env: Vec<(String, String)> =
            fixed.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        // Configuration goes by the environment: `/proc/PID/cmdline` is everybody's to read.
        env.push(("GIT_CONFIG_COUNT".into(), config.len().to_string()));
        for (index, (key, value)) in config.iter().enumerate() {
            env.push((format!("GIT_CONFIG_KEY_{index}"), key.clone()));
            env.push((format!("GIT_CONFIG_VALUE_{index}"), value.clone()));
        }
        Job {
            program: self.program.clone(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            env,
            cwd: self.work.clone(),
        }
    }

    fn ours(&self) -> Vec<(String, String)> {
        vec![
            ("core.hooksPath".into(), "/dev/null".into()),
            ("safe.directory".into(), self.work.to_string_lossy().into_owned()),
            ("advice.detachedHead".into(), "false".into()),
        ]
    }

    /// Asks a local source for its own `origin`.
    #[must_use]
    pub(super) fn read_origin(&self, source: &Path) -> Job {
        let file = source.join("config");
        self.job(&[], &["config", "--file", &file.to_string_lossy(), "--get", "remote.origin.url"])
    }

    /// Clones a repository of this machine.
    #[must_use]
    pub(super) fn clone_local(&self, source: &Path) -> Job {
        // The source may belong to another user than the one that git runs as; only the serving side is told to accept
        // that, and only for this clone.
        let serve = "git -c safe.directory=* upload-pack";
        self.job(
            &self.ours(),
            &[
                "clone",
                "--quiet",
                "--no-local",
                "--no-hardlinks",
                "--template=",
                "--upload-pack",
                serve,
                "--",
                &source.to_string_lossy(),
                HERE,
            ],
        )
    }

    /// Clones a remote, without the contents of old versions where `blobless`.
    #[must_use]
    pub(super) fn clone_remote(&self, from: &Resolved, blobless: bool) -> Job {
        let mut config = self.ours();
        if let Some(header) = &from.remote.header {
            config.push((format!("http.{}.extraHeader", from.remote.url), header.clone()));
        }
        if let Some(resolve) = curl_resolve(from) {
            config.push(("http.curloptResolve".into(), resolve));
        }
        let mut args = vec!["clone", "--quiet", "--template="];
        if blobless {
            args.push("--filter=blob:none");
        }
        args.extend(["--", &from.remote.url, HERE]);
        self.job(&config, &args)
    }

    /// Makes an empty repository on a branch.
    #[must_use]
    pub(super) fn init(&self, branch: &str) -> Job {
        self.job(&self.ours(), &["init", "--quiet", "--template=", "--initial-branch", branch])
    }

    /// The commit that HEAD names, if any.
    #[must_use]
    pub(super) fn head(&self) -> Job {
        self.job(&self.ours(), &["rev-parse", "--quiet", "--verify", "HEAD^{commit}"])
    }

    /// Moves a clone onto the session's branch.
    #[must_use]
    pub(super) fn checkout_new(&self, branch: &str) -> Job {
        self.job(&self.ours(), &["checkout", "--quiet", "-b", branch, "--no-track"])
    }

    /// Names the branch of a clone that has no commit.
    #[must_use]
    pub(super) fn name_unborn(&self, branch: &str) -> Job {
        self.job(&self.ours(), &["symbolic-ref", "HEAD", &format!("refs/heads/{branch}")])
    }

    /// One empty commit, so that every session has a base to compare with.
    #[must_use]
    pub(super) fn first_commit(&self) -> Job {
        self.job(
            &self.ours(),
            &["commit", "--quiet", "--allow-empty", "--no-gpg-sign", "--message", "Start"],
        )
    }

    /// Lets `origin` name the source's own, or nothing.
    #[must_use]
    pub(super) fn set_origin(&self, url: Option<&str>) -> Job {
        match url {
            Some(url) => self.job(&self.ours(), &["remote", "set-url", "origin", "--", url]),
            None => self.job(&self.ours(), &["remote", "remove", "origin"]),
        }
    }
}

/// `HOST:PORT:ADDRESS,...` as CURLOPT_RESOLVE takes it (git-config(1), http.curloptResolve).
fn curl_resolve(from: &Resolved) -> Option<String> {
    if from.addresses.is_empty() {
        return None;
    }
    let addresses: Vec<String> = from
        .addresses
        .iter()
        .map(|address| match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        })
        .collect();
    Some(format!("{}:{}:{}", from.remote.host, from.remote.port, addresses.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git() -> Git {
        Git {
            program: "/usr/bin/git".into(),
            path: "/usr/bin".into(),
            work: "/work".into(),
            home: "/tmp".into(),
        }
    }

    #[test]
    fn a_credential_is_in_the_environment_and_not_in_the_arguments() {
        let from = Resolved {
            remote: Remote::parse("https://u:hunter2@h/r").unwrap(),
            addresses: vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
        };
        let job = git().clone_remote(&from, true);
        let args = job.args.join(" ");
        assert!(
            args.contains("https://h/r") && !args.contains("hunter2") && !args.contains("Basic")
        );
        let values: Vec<&str> = job.env.iter().map(|(_, value)| value.as_str()).collect();
        assert!(values.iter().any(|value| value.starts_with("Authorization: Basic ")));
        assert!(values.contains(&"h:443:192.0.2.1,[2001:db8::1]"));
    }

    #[test]
    fn every_job_shuts_out_foreign_configuration_and_prompts() {
        let git = git();
        for job in [git.head(), git.init("b"), git.clone_local(Path::new("/s")), git.first_commit()]
        {
            for (name, value) in [
                ("GIT_CONFIG_NOSYSTEM", "1"),
                ("GIT_CONFIG_GLOBAL", "/dev/null"),
                ("GIT_TERMINAL_PROMPT", "0"),
                ("GIT_ASKPASS", "true"),
            ] {
                assert!(job.env.contains(&(name.into(), value.into())), "{name} in {job:?}");
            }
        }
    }
}
