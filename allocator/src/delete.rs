//! Deletes a slot's directory after its worker is proven gone: nobody changes the tree meanwhile.
//!
//! The tree is the agent's work, so nothing is taken for granted: permissions that it took away from its own directories
//! are given back, symbolic links are removed and never followed, and depth costs neither stack nor descriptors nor long
//! paths, because each directory is moved up to the top before it is emptied.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Removes the tree; one that does not exist is removed already. Cut off at any point, it can be called again.
pub(crate) fn tree(top: &Path) -> io::Result<()> {
    match top.symlink_metadata() {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    make_writable(top)?;
    let mut name = 0u64;
    loop {
        let mut empty = true;
        for entry in std::fs::read_dir(top)? {
            empty = false;
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                flatten(&entry.path(), top, &mut name)?;
            } else {
                std::fs::remove_file(entry.path())?;
            }
        }
        if empty {
            return std::fs::remove_dir(top);
        }
    }
}

/// Empties `directory`, a child of `top`, by moving its directories to `top`, and removes it.
fn flatten(directory: &Path, top: &Path, name: &mut u64) -> io::Result<()> {
    make_writable(directory)?;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            std::fs::remove_file(entry.path())?;
            continue;
        }
        // A directory that moves must be writable itself: its `..` changes.
        make_writable(&entry.path())?;
        loop {
            *name += 1;
            // Never onto one of an earlier, cut-off call: rename(2) would replace it if it is empty only.
            let target = top.join(format!(".gone-{name}"));
            if target.symlink_metadata().is_err() {
                std::fs::rename(entry.path(), target)?;
                break;
            }
        }
    }
    std::fs::remove_dir(directory)
}

fn make_writable(directory: &Path) -> io::Result<()> {
    let mode = directory.symlink_metadata()?.permissions().mode();
    if mode & 0o700 != 0o700 {
        std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_removed_and_not_followed_and_permissions_do_not_matter() {
        let dir = tempfile::tempdir().unwrap();
        let kept = dir.path().join("kept");
        std::fs::create_dir_all(kept.join("inner")).unwrap();
        let slot = dir.path().join("slot");
        std::fs::create_dir_all(slot.join("a/b")).unwrap();
        std::fs::write(slot.join("a/b/file"), "x").unwrap();
        std::os::unix::fs::symlink(&kept, slot.join("a/link")).unwrap();
        std::os::unix::fs::symlink(&kept, slot.join("link")).unwrap();
        std::fs::set_permissions(slot.join("a/b"), std::fs::Permissions::from_mode(0o0)).unwrap();
        tree(&slot).unwrap();
        assert!(!slot.exists() && kept.join("inner").exists());
        tree(&slot).unwrap();
    }

    #[test]
    fn depth_beyond_descriptors_and_path_length_is_no_obstacle() {
        let dir = tempfile::tempdir().unwrap();
        let slot = dir.path().join("slot");
        // Built from the inside out, so that no long path is needed: 3000 levels, 1024 descriptors, 4096 bytes.
        let (mut inner, mut outer) = (dir.path().join("x"), dir.path().join("y"));
        std::fs::create_dir(&inner).unwrap();
        for _ in 0..3000 {
            std::fs::create_dir(&outer).unwrap();
            std::fs::rename(&inner, outer.join("deep")).unwrap();
            std::mem::swap(&mut inner, &mut outer);
        }
        std::fs::rename(&inner, &slot).unwrap();
        tree(&slot).unwrap();
        assert!(!slot.exists());
    }
}
