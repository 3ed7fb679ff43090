//! The content revision of the skills: what two sessions compare to know that they read the same.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::relay::journal::hex;

/// SHA-256 in hex over sorted relative paths, modes and contents. Symbolic links count by their target's text and are
/// not followed, so nothing outside of the tree is read.
///
/// # Errors
/// Reading the tree.
pub fn revision(root: &Path) -> io::Result<String> {
    let mut paths = Vec::new();
    collect(root, Path::new(""), &mut paths)?;
    paths.sort();
    let mut hash = Sha256::new();
    for path in paths {
        let whole = root.join(&path);
        let meta = fs::symlink_metadata(&whole)?;
        field(&mut hash, path.as_os_str().as_bytes());
        field(&mut hash, &meta.permissions().mode().to_be_bytes());
        if meta.is_symlink() {
            field(&mut hash, fs::read_link(&whole)?.as_os_str().as_bytes());
        } else if meta.is_file() {
            field(&mut hash, &fs::read(&whole)?);
        }
    }
    Ok(hex(&hash.finalize()))
}

/// Length first, so that no two trees share one text.
fn field(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_be_bytes());
    hash.update(bytes);
}

fn collect(root: &Path, below: &Path, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            collect(root, &path, paths)?;
        }
        paths.push(path);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, String) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let revision = revision(dir.path()).unwrap();
        (dir, revision)
    }

    #[test]
    fn equal_trees_agree_and_path_content_and_mode_each_count() {
        let (dir, one) = tree(&[("a/x", "1"), ("b", "2")]);
        assert_eq!(tree(&[("b", "2"), ("a/x", "1")]).1, one);
        assert_ne!(tree(&[("a/y", "1"), ("b", "2")]).1, one);
        assert_ne!(tree(&[("a/x", "12"), ("b", "")]).1, one);
        fs::set_permissions(dir.path().join("b"), fs::Permissions::from_mode(0o755)).unwrap();
        assert_ne!(revision(dir.path()).unwrap(), one);
    }
}
