//! Where an agent's repository comes from: a path on this machine or an http(s) URL.
//!
//! Only file names are looked at. No Git runs here and no configuration of the repository is read: both could execute
//! what its owner planted.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use casemate_protocol::worker::Repository;

/// Why a repository is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RepositoryError {
    /// Credentials in the URL would end in the clone's configuration, where the agent reads them.
    #[error("the repository URL carries a user name or password; remove it")]
    Userinfo,
    /// Another scheme.
    #[error("`{0}` is neither an absolute path nor an http:// or https:// URL")]
    Unsupported(String),
    /// Nothing there.
    #[error("no repository at {0}: the path does not exist or cannot be entered")]
    Missing(PathBuf),
    /// Somebody else's, and closed.
    #[error("{0} cannot be read: permission denied; make it readable for this user")]
    Unreadable(PathBuf),
    /// Something else there.
    #[error("{0} is not in a Git repository; run `git init` there or name another path")]
    NotGit(PathBuf),
    /// A session's own tree.
    #[error("{0} lies inside casemate's home; a session cannot be made from another one's files")]
    Inside(PathBuf),
}

/// Finds the repository that `text` names. `casemate`: its homes, resolved.
///
/// # Errors
/// [`RepositoryError`].
pub(crate) fn resolve(text: &str, casemate: &[PathBuf]) -> Result<Repository, RepositoryError> {
    if let Some(rest) = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")) {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if authority.contains('@') {
            return Err(RepositoryError::Userinfo);
        }
        if authority.is_empty() || text.bytes().any(|b| b.is_ascii_control() || b == b' ') {
            return Err(RepositoryError::Unsupported(text.to_owned()));
        }
        return Ok(Repository::Remote(text.to_owned()));
    }
    let path = Path::new(text);
    if !path.is_absolute() {
        return Err(RepositoryError::Unsupported(text.to_owned()));
    }
    let start = path.canonicalize().map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied => RepositoryError::Unreadable(path.to_owned()),
        _ => RepositoryError::Missing(path.to_owned()),
    })?;
    if let Some(closed) = closed(&start) {
        return Err(RepositoryError::Unreadable(closed));
    }
    let git = start
        .ancestors()
        .find_map(git_dir)
        .ok_or_else(|| RepositoryError::NotGit(start.clone()))?;
    if casemate.iter().any(|home| git.starts_with(home)) {
        return Err(RepositoryError::Inside(git));
    }
    Ok(Repository::Local(git))
}

/// The Git directory that belongs to `directory`, if it has one: gitrepository-layout(5).
fn git_dir(directory: &Path) -> Option<PathBuf> {
    if is_git_dir(directory) {
        return Some(directory.to_owned());
    }
    let dot_git = directory.join(".git");
    if is_git_dir(&dot_git) {
        return dot_git.canonicalize().ok();
    }
    // A linked worktree or a submodule: `.git` is a file that names the real one.
    let text = std::fs::read_to_string(&dot_git).ok()?;
    let target = text.strip_prefix("gitdir:")?.trim();
    let target = directory.join(target).canonicalize().ok()?;
    let common = match std::fs::read_to_string(target.join("commondir")) {
        Ok(common) => target.join(common.trim()).canonicalize().ok()?,
        Err(_) => target,
    };
    is_git_dir(&common).then_some(common)
}

/// The first of the directory and the `.git` at or above it, where it may not be listed.
fn closed(start: &Path) -> Option<PathBuf> {
    let git = start.ancestors().map(|path| path.join(".git")).find(|git| git.is_dir());
    std::iter::once(start.to_owned()).chain(git).find(|path| {
        std::fs::read_dir(path).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    })
}

/// As Git's own test: `HEAD`, `objects/` and `refs/`.
fn is_git_dir(path: &Path) -> bool {
    path.join("HEAD").symlink_metadata().is_ok()
        && path.join("objects").is_dir()
        && path.join("refs").is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git_at(path: &Path) {
        for dir in ["objects", "refs"] {
            std::fs::create_dir_all(path.join(dir)).unwrap();
        }
        std::fs::write(path.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    }

    #[test]
    fn urls_are_taken_without_credentials_only() {
        let home = &[PathBuf::from("/nowhere")];
        assert_eq!(
            resolve("https://example.org/a.git", home),
            Ok(Repository::Remote("https://example.org/a.git".into()))
        );
        for url in ["https://me:secret@example.org/a", "http://token@example.org"] {
            let error = resolve(url, home).unwrap_err();
            assert_eq!(error, RepositoryError::Userinfo);
            assert!(!error.to_string().contains("secret"));
        }
        // An `@` in the path is no credential.
        assert!(resolve("https://example.org/@scope/a", home).is_ok());
        for url in ["ssh://example.org/a", "git@example.org:a", "file:///a", "a/b", "", "https://"]
        {
            assert!(matches!(resolve(url, home), Err(RepositoryError::Unsupported(_))), "{url}");
        }
    }

    #[test]
    fn worktrees_bare_repositories_and_subdirectories_lead_to_the_common_directory() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let home = root.join("home");
        let closed = [root.join("another"), home.clone()];
        let main = root.join("main/.git");
        git_at(&main);
        std::fs::create_dir_all(root.join("main/src/deep")).unwrap();
        let private = main.join("worktrees/w");
        std::fs::create_dir_all(&private).unwrap();
        std::fs::write(private.join("commondir"), "../..\n").unwrap();
        std::fs::create_dir_all(root.join("w")).unwrap();
        std::fs::write(root.join("w/.git"), format!("gitdir: {}\n", private.display())).unwrap();
        let bare = root.join("bare.git");
        git_at(&bare);
        for (path, expected) in
            [("main", &main), ("main/src/deep", &main), ("w", &main), ("bare.git", &bare)]
        {
            let text = root.join(path).to_str().unwrap().to_owned();
            assert_eq!(resolve(&text, &closed), Ok(Repository::Local(expected.clone())), "{path}");
        }
        let missing = root.join("missing").to_str().unwrap().to_owned();
        assert!(matches!(resolve(&missing, &closed), Err(RepositoryError::Missing(_))));
        git_at(&home.join("slots/x/.git"));
        let inside = home.join("slots/x").to_str().unwrap().to_owned();
        assert!(matches!(resolve(&inside, &closed), Err(RepositoryError::Inside(_))));
        // A link from outside leads to the same refusal.
        std::os::unix::fs::symlink(home.join("slots/x"), root.join("link")).unwrap();
        let link = root.join("link").to_str().unwrap().to_owned();
        assert!(matches!(resolve(&link, &closed), Err(RepositoryError::Inside(_))));
    }
}
