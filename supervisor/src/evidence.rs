//! What would be lost with the worktree: asked of git, behind the session's wall.
//!
//! The tree and its configuration are the agent's: a planted `core.fsmonitor` or filter runs on `git status`, so git
//! runs where such a program may do nothing that the agent could not do itself. The answers are the agent's word too:
//! bounded in size and time, and `None` where they make no sense.

use std::time::Duration;

use casemate_protocol::worker::Evidence;
use casemate_sandbox::Wall;

use crate::process::confined::{self, Job};
use crate::process::reaper::Session;

/// For each of the three questions.
const LIMIT: Duration = Duration::from_secs(10);

/// How to ask.
#[derive(Debug, Clone)]
pub struct Inspector {
    /// git inside; `None` where there is none, and so no evidence.
    pub git: Option<std::path::PathBuf>,
    /// Its environment: the agent's, without optional locks.
    pub env: Vec<(String, String)>,
    /// The worktree.
    pub work: std::path::PathBuf,
    /// The commit that the session began at.
    pub base: Option<String>,
}

// === impl Inspector ===

impl Inspector {
    /// Looks at the worktree; `None` where git gave no sensible answer.
    pub async fn look(&self, session: &Session, wall: &Wall) -> Option<Evidence> {
        let status =
            self.ask(session, wall, &["status", "--porcelain=v1", "-z", "--no-renames"]).await?;
        let mut counting = vec!["rev-list", "--count", "--ignore-missing", "--exclude=refs/stash"];
        counting.extend(["--exclude=refs/remotes/*", "--all", "--not", "--remotes"]);
        counting.extend(self.base.as_deref());
        let unpushed = self.ask(session, wall, &counting).await?;
        let stashes = self.ask(session, wall, &["stash", "list", "--format=%H"]).await?;
        Some(Evidence {
            dirty: records(&status, 0),
            unpushed: number(&unpushed)?,
            stashes: records(&stashes, b'\n'),
        })
    }

    async fn ask(&self, session: &Session, wall: &Wall, args: &[&str]) -> Option<Vec<u8>> {
        let job = Job {
            program: self.git.clone()?,
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            env: self.env.clone(),
            cwd: self.work.clone(),
        };
        match confined::run(session, wall, job, LIMIT).await {
            Ok(output) if output.exit.is_success() => Some(output.stdout),
            Ok(output) => {
                tracing::warn!(exit = %output.exit, args = args[0], "no evidence from git");
                None
            }
            Err(error) => {
                tracing::warn!(%error, args = args[0], "no evidence from git");
                None
            }
        }
    }
}

fn records(output: &[u8], end: u8) -> u64 {
    output.split(|byte| *byte == end).filter(|record| !record.is_empty()).count() as u64
}

fn number(output: &[u8]) -> Option<u64> {
    std::str::from_utf8(output).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_and_numbers() {
        assert_eq!(records(b" M a\0?? b c\0", 0), 2);
        assert_eq!(records(b"", 0), 0);
        assert_eq!(number(b"12\n"), Some(12));
        assert_eq!(number(b"-1"), None);
    }
}
