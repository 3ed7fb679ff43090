//! A new session's HOME: a copy of the template, and an identity for git where the template has none.
//!
//! Runs before any agent has run here. All the same it goes through [`Dir`], so that nothing below an agent's directory
//! can lead a write of ours elsewhere, whoever left it there.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use casemate_sandbox::beneath::{BeneathError, Dir};

/// What git needs to commit at all (git-config(1), user.name).
const IDENTITY: &str = "[user]\n\tname = casemate agent\n\temail = agent@casemate.invalid\n";
/// Where git looks for a user's configuration (git-config(1), FILES).
const CONFIGURATION: [&str; 2] = [".gitconfig", ".config/git/config"];
/// A configuration of git is not longer, in bytes.
const LONGEST: u64 = 1024 * 1024;

/// Removes what a half-made start left in a directory; the directory stays.
///
/// # Errors
/// Reading and removing. Links are removed, never followed.
pub(super) fn empty(directory: &Path) -> Result<(), BeneathError> {
    let dir = Dir::open(directory)?;
    let listed = fs::read_dir(directory).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let entries = listed.map_err(|source| BeneathError {
        what: "list",
        path: directory.to_owned(),
        source,
    })?;
    entries.into_iter().try_for_each(|entry| dir.remove_tree(entry.file_name()))
}

/// Fills an empty HOME.
///
/// # Errors
/// Reading the template and writing the copy.
pub(super) fn fill(home: &Path, template: Option<&Path>) -> Result<(), BeneathError> {
    let dir = Dir::open(home)?;
    if let Some(template) = template {
        dir.copy_tree_into(template, ".")?;
    }
    for name in CONFIGURATION {
        if dir.exists(name).unwrap_or(false) && has_user(&dir.read_file(name, LONGEST)?) {
            return Ok(());
        }
    }
    let written = dir.open_append(CONFIGURATION[0], 0o644)?.write_all(IDENTITY.as_bytes());
    written.map_err(|source| BeneathError {
        what: "write",
        path: home.join(CONFIGURATION[0]),
        source,
    })
}

fn has_user(config: &[u8]) -> bool {
    String::from_utf8_lossy(config)
        .lines()
        .any(|line| line.trim().to_ascii_lowercase().starts_with("[user]"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_template_is_copied_with_modes_and_its_identity_is_kept() {
        let template = tempfile::tempdir().unwrap();
        let home = tempfile::tempdir().unwrap();
        let script = template.path().join("bin/x");
        fs::create_dir(template.path().join("bin")).unwrap();
        fs::write(&script, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o555)).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", template.path().join("link")).unwrap();
        fs::write(template.path().join(".gitconfig"), "[User]\n name = T\n").unwrap();
        fill(home.path(), Some(template.path())).unwrap();
        let mode = fs::metadata(home.path().join("bin/x")).unwrap().permissions().mode();
        assert_eq!(mode & 0o111, 0o111);
        assert!(fs::symlink_metadata(home.path().join("link")).unwrap().is_symlink());
        let config = fs::read_to_string(home.path().join(".gitconfig")).unwrap();
        assert_eq!(config, "[User]\n name = T\n");
    }

    #[test]
    fn a_home_without_a_template_can_commit_and_a_half_made_one_is_emptied() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir_all(home.path().join("half/made")).unwrap();
        std::os::unix::fs::symlink("/", home.path().join("root")).unwrap();
        empty(home.path()).unwrap();
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
        fill(home.path(), None).unwrap();
        assert!(fs::read_to_string(home.path().join(".gitconfig")).unwrap().contains("[user]"));
    }
}
