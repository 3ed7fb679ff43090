//! A new session's HOME: a copy of the template, and an identity for git where the template has none.
//!
//! Runs before any agent has ever run here, on directories that [`empty`] has emptied, so nobody can have planted a
//! link below them.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// What git needs to commit at all (git-config(1), user.name).
const IDENTITY: &str = "[user]\n\tname = casemate agent\n\temail = agent@casemate.invalid\n";

/// Removes what a half-made start left in a directory; the directory stays.
///
/// # Errors
/// Reading and removing. Links are removed, never followed.
pub(super) fn empty(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Fills an empty HOME.
///
/// # Errors
/// Reading the template and writing the copy.
pub(super) fn fill(home: &Path, template: Option<&Path>) -> io::Result<()> {
    if let Some(template) = template {
        copy(template, home)?;
    }
    let configured = [".gitconfig", ".config/git/config"]
        .iter()
        .any(|name| fs::read_to_string(home.join(name)).is_ok_and(|text| has_user(&text)));
    if configured {
        return Ok(());
    }
    let mut file = fs::OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o644)
        .custom_flags(nix::fcntl::OFlag::O_NOFOLLOW.bits())
        .open(home.join(".gitconfig"))?;
    file.write_all(IDENTITY.as_bytes())
}

fn has_user(config: &str) -> bool {
    config.lines().any(|line| line.trim().to_ascii_lowercase().starts_with("[user]"))
}

/// Copies directories, regular files and links with their modes; nothing else belongs into a HOME.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            fs::create_dir(&target)?;
            copy(&source, &target)?;
            set_mode(&source, &target)?;
        } else if kind.is_file() {
            copy_file(&source, &target)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&source)?, &target)?;
        } else {
            tracing::warn!(path = %source.display(), "left out of HOME: not a file, directory or link");
        }
    }
    Ok(())
}

fn copy_file(source: &Path, target: &Path) -> io::Result<()> {
    let mut reader = File::open(source)?;
    let mode = reader.metadata()?.permissions().mode() & 0o777;
    let mut writer =
        fs::OpenOptions::new().write(true).create_new(true).mode(mode | 0o600).open(target)?;
    io::copy(&mut reader, &mut writer)?;
    Ok(())
}

fn set_mode(source: &Path, target: &Path) -> io::Result<()> {
    let mode = fs::metadata(source)?.permissions().mode() & 0o777;
    // The session has to be able to use its own HOME, also where the template is read-only.
    fs::set_permissions(target, fs::Permissions::from_mode(mode | 0o700))
}

#[cfg(test)]
mod tests {
    use super::*;

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
