//! The session's work as one patch against the commit that it began with: asked of git, behind the session's wall.
//!
//! Changed, new and deleted files, committed or not, binary ones included; ignored ones are not. git works with an index
//! of its own in the scratch directory, so the agent's index stays as it is. What git says is the agent's word, as in
//! [`crate::evidence`]; formats that its configuration could change are set on the command line.

use std::time::Duration;

use casemate_protocol::ids::BootId;
use casemate_sandbox::Wall;

use crate::evidence::Inspector;
use crate::process::confined::{self, Job, RunError};
use crate::process::reaper::Session;

/// For each of the three commands: all files are read once.
const LIMIT: Duration = Duration::from_secs(120);
/// The longest patch, in bytes.
const LONGEST: usize = 64 * 1024 * 1024;

/// Why there is no patch.
#[derive(Debug, thiserror::Error)]
pub enum PatchError {
    /// The session has no git or no commit to compare with.
    #[error("the session has no git repository to compare with")]
    NoBase,
    /// It does not fit.
    #[error("the work is more than {LONGEST} bytes; fetch its branch from the worktree instead")]
    TooLong,
    /// git did not want.
    #[error("git {command} failed: {words}")]
    Git {
        /// Which.
        command: &'static str,
        /// What it said last.
        words: String,
    },
    /// git could not be run to its end.
    #[error("git was not run to its end")]
    Run(#[from] RunError),
}

impl Inspector {
    /// Makes the patch.
    ///
    /// # Errors
    /// [`PatchError`]; the worktree is as it was.
    pub async fn patch(&self, session: &Session, wall: &Wall) -> Result<Vec<u8>, PatchError> {
        let base = self.base.as_deref().ok_or(PatchError::NoBase)?;
        let scratch = self.env.iter().find(|(name, _)| name == "TMPDIR");
        let scratch = scratch.map_or("/tmp", |(_, path)| path.as_str());
        // Never used twice: a command that was killed leaves a lock behind.
        let index = format!("{scratch}/casemate-index-{}", BootId::random());
        let git = Git { inspector: self, session, wall, index };
        git.run("read-tree", &[base]).await?;
        git.run("add", &["--all", "--", "."]).await?;
        let mut diff = vec!["--cached", "--binary", "--full-index", "--no-renames", "--no-color"];
        diff.extend(["--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/"]);
        diff.extend([base, "--"]);
        git.run("diff", &diff).await
    }
}

/// git with an index of its own.
struct Git<'a> {
    inspector: &'a Inspector,
    session: &'a Session,
    wall: &'a Wall,
    index: String,
}

impl Git<'_> {
    async fn run(&self, command: &'static str, args: &[&str]) -> Result<Vec<u8>, PatchError> {
        let mut env = self.inspector.env.clone();
        env.push(("GIT_INDEX_FILE".into(), self.index.clone()));
        let job = Job {
            program: self.inspector.git.clone().ok_or(PatchError::NoBase)?,
            args: std::iter::once(command).chain(args.iter().copied()).map(Into::into).collect(),
            env,
            cwd: self.inspector.work.clone(),
        };
        let output = confined::run_up_to(self.session, self.wall, job, LIMIT, LONGEST).await?;
        if !output.exit.is_success() {
            let words = output.stderr.lines().last().unwrap_or("it said nothing").to_owned();
            return Err(PatchError::Git { command, words });
        }
        if output.stdout.len() > LONGEST {
            return Err(PatchError::TooLong);
        }
        Ok(output.stdout)
    }
}
