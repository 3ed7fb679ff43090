//! What a person may expect of the agent's repository and does not get, said in one line each before the start.
//!
//! Only names and a few small files are looked at. git is not asked: even `git status` runs what the repository's
//! configuration names (fsmonitor, clean filters), here outside of every wall. So changes are not counted.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use casemate_protocol::api::Intent;

/// Says them on stderr.
pub(crate) fn say(intent: &Intent) {
    let here = std::env::current_dir().ok();
    for line in lines(intent.repository.as_deref(), here.as_deref()) {
        // They are advice: no reason to stop where nobody listens.
        let _ = writeln!(std::io::stderr(), "casemate: {line}");
    }
}

/// `repository` as the caller named it, `here` where the caller is.
fn lines(repository: Option<&str>, here: Option<&Path>) -> Vec<String> {
    let Some(text) = repository else {
        let Some((top, _)) = here.and_then(around) else { return Vec::new() };
        return vec![format!(
            "without --repo the agent does not get {} but the profile's repository, or else an empty one; \
             `--repo .` gives it a private clone of this one",
            top.display()
        )];
    };
    if text.contains("://") {
        return Vec::new();
    }
    let Some((top, git)) = around(Path::new(text)) else { return Vec::new() };
    if is_unborn(&git) {
        return vec![format!(
            "{} has no commit on its current branch, so the agent gets an empty repository; commit first",
            top.display()
        )];
    }
    let mut lines = vec![
        "the agent gets a clone of what is committed: changes that are not, if there are any, are not part of it"
            .into(),
    ];
    if top != Path::new(text) {
        lines.push(format!("the clone is of all of {}", top.display()));
    }
    if top.join(".gitmodules").symlink_metadata().is_ok() {
        lines.push("the repository's submodules are not checked out in the clone".into());
    }
    lines
}

/// The worktree around a directory, and its `.git` (gitrepository-layout(5)).
fn around(directory: &Path) -> Option<(PathBuf, PathBuf)> {
    directory.ancestors().find_map(|top| {
        let git = top.join(".git");
        git.symlink_metadata().is_ok().then(|| (top.to_owned(), git))
    })
}

/// True where the current branch certainly has no commit. Linked worktrees and the reftable format are not looked into.
fn is_unborn(git: &Path) -> bool {
    if !git.join("refs").is_dir() || git.join("reftable").exists() {
        return false;
    }
    let Ok(head) = fs::read_to_string(git.join("HEAD")) else { return false };
    let Some(branch) = head.strip_prefix("ref: ").map(str::trim) else { return false };
    let loose = git.join(branch).symlink_metadata().is_ok();
    let packed = fs::read_to_string(git.join("packed-refs")).unwrap_or_default();
    !loose && !packed.lines().any(|line| line.split(' ').nth(1) == Some(branch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_surprise_has_its_line() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path();
        assert!(lines(None, Some(top)).is_empty());
        assert!(lines(Some(top.to_str().unwrap()), None).is_empty());
        fs::create_dir_all(top.join(".git/refs/heads")).unwrap();
        fs::create_dir_all(top.join("src")).unwrap();
        fs::write(top.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        assert!(lines(None, Some(&top.join("src")))[0].contains("`--repo .`"));
        assert!(lines(Some(top.to_str().unwrap()), None)[0].contains("no commit"));
        fs::write(top.join(".git/packed-refs"), "# pack-refs\n0123 refs/heads/main\n").unwrap();
        assert!(lines(Some(top.to_str().unwrap()), None)[0].contains("if there are any"));
        fs::write(top.join(".gitmodules"), "").unwrap();
        let said = lines(Some(top.join("src").to_str().unwrap()), None).join("\n");
        assert!(said.contains("submodules") && said.contains("all of"), "{said}");
        assert!(lines(Some("https://example.org/a"), Some(top)).is_empty());
    }
}
