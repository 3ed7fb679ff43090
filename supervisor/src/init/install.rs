//! This program, copied where the containers of other images find it.

use std::fs;
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use casemate_protocol::codes::exit;

const NAME: &str = "casemate-supervisor";

/// Copies this program into a directory, whole or not at all, for everybody to run; the exit code.
#[must_use]
pub fn run(directory: &Path) -> u8 {
    match install(directory) {
        Ok(()) => exit::OK,
        Err(error) => {
            super::say(&format!("cannot install into {}: {error}", directory.display()));
            exit::CANNOT_CREATE
        }
    }
}

fn install(directory: &Path) -> io::Result<()> {
    let mut source = fs::File::open("/proc/self/exe")?;
    // One name a process: two installers at a time do not write into each other's file.
    let made = directory.join(format!(".{NAME}.{}", std::process::id()));
    let done = fs::File::options()
        .write(true)
        .create_new(true)
        .mode(0o700)
        .open(&made)
        .and_then(|mut copy| {
            io::copy(&mut source, &mut copy)?;
            copy.set_permissions(fs::Permissions::from_mode(0o755))?;
            copy.sync_all()
        })
        .and_then(|()| fs::rename(&made, directory.join(NAME)));
    if done.is_err() {
        // What was not made needs no removal.
        let _ = fs::remove_file(&made);
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_replaces_an_older_one_and_nothing_half_made_stays() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(NAME), "older").unwrap();
        assert_eq!(run(dir.path()), exit::OK);
        let copy = dir.path().join(NAME);
        assert_eq!(fs::read(&copy).unwrap(), fs::read("/proc/self/exe").unwrap());
        assert_eq!(copy.metadata().unwrap().permissions().mode() & 0o7777, 0o755);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(run(&dir.path().join("missing")), exit::CANNOT_CREATE);
    }
}
