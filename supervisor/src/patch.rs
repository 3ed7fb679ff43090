//! The session's work as one patch against the commit that it began with: asked of git, behind the session's wall.
//!
//! Changed, new and deleted files, committed or not, binary ones included; ignored ones are not. git works with an index
//! of its own in the scratch directory, so the agent's index stays as it is. What git says is the agent's word, as in
//! [`crate::evidence`]; formats that its configuration could change are set on the command line.
//!
//! A repository inside of the worktree that the session did not begin with has a history of its own, which no patch can
//! hold: it is left out, and the patch says so in lines ahead of its first file, where patch(1) and git-apply(1) take
//! any text.

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
/// More repositories inside of the worktree than this do not go on a command line.
const MOST_NESTED: usize = 256;

/// Why there is no patch.
#[derive(Debug, thiserror::Error)]
pub enum PatchError {
    /// The session has no git or no commit to compare with.
    #[error("the session has no git repository to compare with")]
    NoBase,
    /// It does not fit.
    #[error(
        "the work is more than {LONGEST} bytes; let the agent push its branch to a remote instead"
    )]
    TooLong,
    /// Too many repositories in the worktree.
    #[error(
        "the worktree holds more than {MOST_NESTED} repositories of their own; ignore them with .gitignore"
    )]
    Nested,
    /// One whose name cannot be given to git.
    #[error("a repository inside of the worktree has a name that is not UTF-8; rename it")]
    Name(#[from] std::string::FromUtf8Error),
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
        let listing = ["--others", "--exclude-standard", "--full-name", "-z"];
        let nested = nested(&git.run("ls-files", &listing).await?)?;
        let exclusions: Vec<String> =
            nested.iter().map(|path| format!(":(exclude,literal){path}")).collect();
        let mut add = vec!["--all", "--", "."];
        add.extend(exclusions.iter().map(String::as_str));
        git.run("add", &add).await?;
        let mut diff = vec!["--cached", "--binary", "--full-index", "--no-renames", "--no-color"];
        diff.extend(["--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/"]);
        diff.extend([base, "--"]);
        let changes = git.run("diff", &diff).await?;
        let mut patch = preface(&nested).into_bytes();
        patch.extend(changes);
        Ok(patch)
    }
}

/// The repositories of their own among what `git ls-files --others -z` lists: git names them, with a slash behind, and
/// nothing in them.
fn nested(listed: &[u8]) -> Result<Vec<String>, PatchError> {
    let listed = listed.split(|byte| *byte == 0).filter_map(|path| path.strip_suffix(b"/"));
    let nested: Vec<String> =
        listed.map(|path| String::from_utf8(path.to_vec())).collect::<Result<_, _>>()?;
    if nested.len() > MOST_NESTED { Err(PatchError::Nested) } else { Ok(nested) }
}

/// One line for each that is left out. Names are the agent's: no control character gets through, so that no name begins
/// a line of its own.
fn preface(nested: &[String]) -> String {
    let line = |path: &String| {
        format!("# left out: {} is a Git repository of its own\n", path.escape_debug())
    };
    nested.iter().map(line).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_in_the_worktree_are_told_from_files() {
        let listed = nested(b"a\0d/n/\0b c\0m/\0").unwrap();
        assert_eq!(listed, ["d/n", "m"]);
        assert!(nested(b"").unwrap().is_empty());
        assert!(matches!(nested(b"\xff/\0"), Err(PatchError::Name(_))));
        assert!(matches!(nested(&b"x/\0".repeat(MOST_NESTED + 1)), Err(PatchError::Nested)));
    }

    #[test]
    fn no_name_of_a_repository_begins_a_line_of_the_patch() {
        let planted = "n\ndiff --git a/x b/x\r".to_owned();
        let said = preface(&[planted]);
        assert_eq!(said.lines().count(), 1);
        assert!(said.starts_with("# left out: n\\ndiff"));
    }
}
