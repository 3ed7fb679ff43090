//! The content revision of the skills: what two sessions compare to know that they read the same.
//!
//! A kubelet lays a ConfigMap out as links (`pkg/volume/util/atomic_writer.go`): `x` leads to `..data/x`, `..data` to a directory that is named after
//! the moment, and an update turns `..data` to the next one. So the same content has other names in each Pod, and changes under a
//! session's hands. Hashed is what is read by the names without two dots; [`Skills`] tells of it as it is now.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::relay::journal::hex;

/// A kubelet's link to the content in force.
const DATA: &str = "..data";
/// How often content is read again that was turned to another meanwhile: a kubelet does so once a minute at most.
const TRIES: usize = 3;

/// The skills of a session.
#[derive(Debug)]
pub struct Skills {
    root: PathBuf,
    known: RefCell<Known>,
}

#[derive(Debug, Clone)]
struct Known {
    /// Where [`DATA`] led.
    data: Option<PathBuf>,
    revision: String,
}

// === impl Skills ===

impl Skills {
    /// Reads them.
    ///
    /// # Errors
    /// Reading the tree.
    pub fn read(root: &Path) -> io::Result<Self> {
        Ok(Self { root: root.to_owned(), known: RefCell::new(known(root)?) })
    }

    /// The revision of what is there now; read again where a kubelet has turned it. `None` where that cannot be read. `changed` hears of
    /// another than before.
    pub fn revision(&self, changed: impl FnOnce(&str)) -> Option<String> {
        let mut last = self.known.borrow_mut();
        if data(&self.root) != last.data {
            let now = known(&self.root).ok()?;
            if now.revision != last.revision {
                changed(&now.revision);
            }
            *last = now;
        }
        Some(last.revision.clone())
    }
}

fn known(root: &Path) -> io::Result<Known> {
    for _ in 1..TRIES {
        let before = data(root);
        let read = revision(root);
        if data(root) == before {
            return Ok(Known { data: before, revision: read? });
        }
    }
    Ok(Known { data: data(root), revision: revision(root)? })
}

/// SHA-256 in hex over sorted relative paths, modes and contents. Symbolic links count by their target's text and are
/// not followed, so nothing outside of the tree is read; but for a kubelet's, which lead to what is beside them.
///
/// # Errors
/// Reading the tree.
pub fn revision(root: &Path) -> io::Result<String> {
    let mut found = Vec::new();
    match data(root) {
        None => collect(root, Path::new(""), &mut found)?,
        Some(data) => collect_linked(root, &data, &mut found)?,
    }
    found.sort();
    let mut hash = Sha256::new();
    for (path, whole) in found {
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

/// The directory beside it that a kubelet's link names.
fn data(root: &Path) -> Option<PathBuf> {
    let target = fs::read_link(root.join(DATA)).ok()?;
    let mut parts = target.components();
    let (Some(Component::Normal(name)), None) = (parts.next(), parts.next()) else { return None };
    has_two_dots(name).then_some(target)
}

fn has_two_dots(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b"..")
}

/// Length first, so that no two trees share one text.
fn field(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_be_bytes());
    hash.update(bytes);
}

/// All below a directory: the path in it, and the whole path.
fn collect(root: &Path, below: &Path, found: &mut Vec<(PathBuf, PathBuf)>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            collect(root, &path, found)?;
        }
        found.push((path, entry.path()));
    }
    Ok(())
}

/// What a kubelet has laid out: each name that leads into `data` counts as what it leads to.
fn collect_linked(root: &Path, data: &Path, found: &mut Vec<(PathBuf, PathBuf)>) -> io::Result<()> {
    for entry in fs::read_dir(root)? {
        let (entry, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        if has_two_dots(&name) {
            continue;
        }
        let leads_there = fs::read_link(&entry).is_ok_and(|to| to == Path::new(DATA).join(&name));
        let (base, whole) = match leads_there {
            true => (root.join(data), root.join(data).join(&name)),
            false => (root.to_owned(), entry),
        };
        if fs::symlink_metadata(&whole)?.is_dir() {
            collect(&base, Path::new(&name), found)?;
        }
        found.push((name.into(), whole));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

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
    /// As a kubelet lays a ConfigMap out, at some moment.
    fn turned(root: &Path, moment: &str, files: &[(&str, &str)]) {
        let dir = root.join(moment);
        for (path, text) in files {
            let path = dir.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        symlink(moment, root.join("..data_tmp")).unwrap();
        fs::rename(root.join("..data_tmp"), root.join(DATA)).unwrap();
        for entry in fs::read_dir(&dir).unwrap() {
            let name = entry.unwrap().file_name();
            let link = root.join(&name);
            if fs::symlink_metadata(&link).is_err() {
                symlink(Path::new(DATA).join(name), link).unwrap();
            }
        }
    }

    #[test]
    fn a_config_map_is_its_content_whatever_the_moment() {
        let files = [("a.md", "1"), ("deep/b.md", "2")];
        let plain = tree(&files).1;
        for moment in ["..2026_02_01_15_04_05.123", "..2027_12_31_00_00_00.9"] {
            let dir = tempfile::tempdir().unwrap();
            turned(dir.path(), moment, &files);
            assert_eq!(revision(dir.path()).unwrap(), plain, "{moment}");
            // The one before is left for a moment.
            fs::create_dir(dir.path().join("..2025_01_01_00_00_00.1")).unwrap();
            assert_eq!(revision(dir.path()).unwrap(), plain, "{moment}");
            fs::write(dir.path().join(moment).join("deep/b.md"), "3").unwrap();
            assert_ne!(revision(dir.path()).unwrap(), plain, "{moment}");
        }
    }

    #[test]
    fn no_link_out_of_the_tree_is_followed_whatever_it_is_called() {
        let secret = tempfile::tempdir().unwrap();
        fs::write(secret.path().join("x"), "1").unwrap();
        let read = |data: &Path| {
            let dir = tempfile::tempdir().unwrap();
            symlink(data, dir.path().join(DATA)).unwrap();
            symlink("..data/x", dir.path().join("x")).unwrap();
            revision(dir.path()).unwrap()
        };
        let before = [read(secret.path()), read(Path::new(".."))];
        fs::write(secret.path().join("x"), "2").unwrap();
        assert_eq!([read(secret.path()), read(Path::new(".."))], before);
    }

    #[test]
    fn what_is_turned_meanwhile_is_told_as_it_is_now() {
        let dir = tempfile::tempdir().unwrap();
        turned(dir.path(), "..1", &[("a", "1")]);
        let skills = Skills::read(dir.path()).unwrap();
        let first = skills.revision(|_| panic!("nothing changed")).unwrap();
        turned(dir.path(), "..2", &[("a", "1")]);
        assert_eq!(skills.revision(|_| panic!("the same content")).unwrap(), first);
        turned(dir.path(), "..3", &[("a", "2")]);
        let mut told = None;
        let second = skills.revision(|now| told = Some(now.to_owned())).unwrap();
        assert_eq!(told.as_ref(), Some(&second));
        assert_eq!((second != first, second), (true, revision(dir.path()).unwrap()));
        fs::remove_dir_all(dir.path().join("..3")).unwrap();
        fs::remove_file(dir.path().join(DATA)).unwrap();
        symlink("..4", dir.path().join(DATA)).unwrap();
        assert_eq!(skills.revision(|_| ()), None);
    }
}
