//! Makes the slot's directories, before anything runs in them.
//!
//! As root on behalf of another user, everything below the slot belongs to that user: the worker itself runs as it.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;

use casemate_protocol::worker::{StartError, WorkerConfig};

use crate::layout::Layout;

/// Makes what is missing below the slot; what is there keeps its contents.
///
/// # Errors
/// [`StartError::Volume`].
pub fn make(config: &WorkerConfig, layout: &Layout) -> Result<(), StartError> {
    let session = layout.outside.work.parent().unwrap_or(&config.volume).to_owned();
    let run = config.volume.join("run");
    let wanted = [
        &config.volume.join("sessions"),
        &session,
        &layout.outside.work,
        &layout.outside.home,
        &layout.outside.scratch,
        &layout.outside.state,
        &run,
    ];
    for path in wanted {
        make_one(path, config.host_uid).map_err(|error| StartError::Volume {
            message: format!(
                "cannot make {}: {error}: check the volume's space and owner",
                path.display()
            ),
        })?;
    }
    Ok(())
}

fn make_one(path: &Path, owner: Option<u32>) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let meta = fs::symlink_metadata(path)?;
            if !meta.is_dir() {
                return Err(io::Error::other("something else than a directory is there"));
            }
            if owner.is_none_or(|owner| owner == meta.uid()) {
                return Ok(());
            }
        }
        Err(error) => return Err(error),
    }
    match owner {
        // lchown(2): a link that was put here in the meantime is not followed.
        Some(owner) => std::os::unix::fs::lchown(path, Some(owner), Some(owner)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::config;

    #[test]
    fn every_directory_is_private_and_a_second_start_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        let layout = Layout::of(&config);
        make(&config, &layout).unwrap();
        fs::write(layout.outside.work.join("kept"), "x").unwrap();
        make(&config, &layout).unwrap();
        assert!(layout.outside.work.join("kept").exists());
        for path in [&layout.outside.work, &layout.outside.state, &dir.path().join("run")] {
            assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o700);
        }
    }

    #[test]
    fn a_link_in_the_place_of_a_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        std::os::unix::fs::symlink("/tmp", dir.path().join("state")).unwrap();
        let made = make(&config, &Layout::of(&config));
        assert!(matches!(made, Err(StartError::Volume { .. })));
    }
}
