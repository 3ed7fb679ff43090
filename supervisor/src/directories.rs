//! Makes the slot's directories, before anything runs in them.
//!
//! What is there keeps its contents. Its mode is mended, and of ours an access list taken away: an agent of tier `domain` has the supervisor's uid and may change
//! the mode of whatever it knows the path of, which must not shut its session for ever, nor open it to other users.
//!
//! As root on behalf of another user, everything below the slot belongs to that user: the worker itself runs as it.

use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::Path;

use casemate_protocol::sharing::SharedWorkerConfig;
use casemate_protocol::slot::paths;
use casemate_protocol::worker::{StartError, WorkerConfig};
use nix::fcntl::OFlag;
use nix::unistd::AccessFlags;

use crate::access_lists;
use crate::layout::Layout;
use crate::probe::range;
use crate::shared::floor;

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
        &config.volume.join("state").join(floor::DIRECTORY),
        &run,
    ];
    let volume = |path: &Path, what: &str, error: &io::Error| StartError::Volume {
        message: format!(
            "cannot {what} {}: {error}: check the volume's space and owner",
            path.display()
        ),
    };
    mend(&config.volume, 0o700, ANY).map_err(|error| volume(&config.volume, "mend", &error))?;
    let agents = [&layout.outside.work, &layout.outside.home, &layout.outside.scratch];
    for path in wanted {
        let keep = if agents.contains(&path) { ANY } else { OURS };
        make_one(path, config.host_uid, keep).map_err(|error| volume(path, "make", &error))?;
    }
    for own in [&layout.outside.state, &run] {
        mend_below(own).map_err(|error| volume(own, "mend", &error))?;
    }
    Ok(())
}

/// Makes what sessions that share a slot have in common there.
///
/// # Errors
/// [`StartError::Volume`].
pub fn make_shared(config: &SharedWorkerConfig) -> Result<(), StartError> {
    let volume = |path: &Path, error: &io::Error| StartError::Volume {
        message: format!(
            "cannot make or mend {}: {error}: check the volume's space and owner",
            path.display()
        ),
    };
    mend(&config.volume, 0o700, ANY).map_err(|error| volume(&config.volume, &error))?;
    for name in COMMON {
        let path = config.volume.join(name);
        make_one(&path, config.host_uid, OURS).map_err(|error| volume(&path, &error))?;
        if matches!(name, "state" | "run") {
            mend_below(&path).map_err(|error| volume(&path, &error))?;
        }
    }
    Ok(())
}

/// Looks whether the parts of a Pod's volume are mounted and can be written, and mends what is in ours. The kubelet made them: they are
/// another user's, and their modes are not ours to change.
///
/// # Errors
/// [`StartError::Volume`].
pub fn make_in_pod() -> Result<(), StartError> {
    let volume = |path: &Path, error: &io::Error| StartError::Volume {
        message: format!(
            "{}: {error}: mount that part of the session's volume there, writable for the Pod's `fsGroup`",
            path.display()
        ),
    };
    for (_, path) in paths::PARTS {
        let path = Path::new(path);
        let access = AccessFlags::R_OK | AccessFlags::W_OK | AccessFlags::X_OK;
        access_of(path, access).map_err(|error| volume(path, &error))?;
    }
    for path in [paths::STATE, paths::RUN].map(Path::new) {
        mend_below(path).map_err(|error| volume(path, &error))?;
    }
    let floors = Path::new(paths::STATE).join(floor::DIRECTORY);
    make_one(&floors, None, OURS).map_err(|error| volume(&floors, &error))
}

fn access_of(path: &Path, wanted: AccessFlags) -> io::Result<()> {
    nix::unistd::access(path, wanted)?;
    if fs::metadata(path)?.is_dir() { Ok(()) } else { Err(io::Error::other("not a directory")) }
}

/// Opens again what all sessions of a shared slot have above them: each of their agents knows these paths by its own, and
/// may close them to all. Where somebody else owns a directory none of them could.
///
/// # Errors
/// What the system calls answer.
pub fn open_again(volume: &Path) -> io::Result<()> {
    let above: Vec<&Path> = volume.ancestors().skip(1).collect();
    for path in above.into_iter().rev() {
        mend(path, 0o100, ANY)?;
    }
    mend(volume, 0o700, ANY)?;
    COMMON.iter().try_for_each(|name| mend(&volume.join(name), 0o700, OURS))
}

/// What all sessions of a shared slot have in common below its volume, from above to below.
const COMMON: [&str; 4] = ["sessions", "state", "state/floors", "run"];

/// Makes one directory of ours, or mends it with all that is in it.
///
/// # Errors
/// What the system calls answer.
pub fn own(path: &Path) -> io::Result<()> {
    make_one(path, None, OURS)?;
    mend_below(path)
}

/// What an agent's own directory may have in its mode, as it likes.
const ANY: u32 = 0o7777;
/// What ours may: a group's rights may be a volume's way (fsGroup), other users' are nobody's.
const OURS: u32 = 0o7770;

/// What a directory of ours holds; no agent can have made anything there.
fn mend_below(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        // Opened by nobody, so that nobody learns its name by watching.
        if entry.file_name().to_string_lossy().starts_with(range::PREFIX) {
            continue;
        }
        let path = entry.path();
        let kind = fs::symlink_metadata(&path)?.file_type();
        if kind.is_dir() {
            mend(&path, 0o700, OURS)?;
            mend_below(&path)?;
        } else if kind.is_file() {
            mend(&path, 0o600, OURS)?;
        }
    }
    Ok(())
}

/// Gives a file or directory its owner's rights back and takes away what is not in `keep`, from ours whoever an access list names too. `O_PATH` opens what has no right left, and the link of proc leads from
/// the descriptor to just that (proc_pid_fd(5)).
fn mend(path: &Path, owner: u32, keep: u32) -> io::Result<()> {
    let flags = (OFlag::O_PATH | OFlag::O_NOFOLLOW).bits();
    let held = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let meta = held.metadata()?;
    // Another owner's is not ours to change (chmod(2)).
    let (user, owned_by) = (nix::unistd::geteuid(), meta.uid());
    if !(user.is_root() || user.as_raw() == owned_by) {
        return Ok(());
    }
    let link = format!("/proc/self/fd/{}", held.as_raw_fd());
    let lists = if keep == OURS { access_lists::of(&link)? } else { None };
    let found = meta.mode() & 0o7777;
    // With a list the mode's rights of the group are its mask.
    let group = lists.and_then(|lists| lists.group).map_or(0o070, |group| group << 3);
    let mode = found & (!0o070 | group) & keep | owner;
    let set = |mode| fs::set_permissions(&link, Permissions::from_mode(mode));
    if lists.is_some() {
        // Whom the list names is out before the mask becomes the group's rights.
        set(mode & !0o070)?;
        access_lists::remove(&link)?;
        set(mode)?;
        tracing::warn!(path = %path.display(), now = %format!("{mode:o}"), "access list taken away");
        return Ok(());
    }
    if found == mode {
        return Ok(());
    }
    set(mode)?;
    tracing::warn!(path = %path.display(), found = %format!("{found:o}"), now = %format!("{mode:o}"), "mode mended");
    Ok(())
}

fn make_one(path: &Path, owner: Option<u32>, keep: u32) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let meta = fs::symlink_metadata(path)?;
            if !meta.is_dir() {
                return Err(io::Error::other("something else than a directory is there"));
            }
            mend(path, 0o700, keep)?;
            if owner.is_none_or(|owner| owner == meta.uid()) {
                return Ok(());
            }
        }
        Err(error) => return Err(error),
    }
    match owner {
        // lchown(2): a link that was put here in the meantime is not followed.
        Some(owner) if owner != nix::unistd::geteuid().as_raw() => {
            std::os::unix::fs::lchown(path, Some(owner), Some(owner))
        }
        // Whoever makes a directory owns it.
        _ => Ok(()),
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
    fn modes_that_shut_a_session_or_open_it_to_others_are_mended() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        let layout = Layout::of(&config);
        make(&config, &layout).unwrap();
        let state = &layout.outside.state;
        let journal = state.join("journal");
        fs::create_dir(&journal).unwrap();
        fs::write(journal.join("x"), "kept").unwrap();
        fs::write(state.join("saved.json"), "kept").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", state.join("link")).unwrap();
        let set = |path: &Path, mode| {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        set(&journal.join("x"), 0);
        set(&journal, 0);
        set(&state.join("saved.json"), 0o666);
        set(state, 0);
        set(&layout.outside.work, 0o055);
        set(&layout.outside.home, 0o755);
        set(dir.path(), 0);
        make(&config, &layout).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(dir.path()), mode(state), mode(&journal)), (0o700, 0o700, 0o700));
        assert_eq!((mode(&journal.join("x")), mode(&state.join("saved.json"))), (0o600, 0o660));
        // An agent's own may be as open as it likes.
        assert_eq!((mode(&layout.outside.work), mode(&layout.outside.home)), (0o755, 0o755));
        assert_eq!(fs::read(journal.join("x")).unwrap(), b"kept");
    }

    #[test]
    fn what_sessions_have_in_common_above_them_is_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("slots/one");
        let sessions = volume.join("sessions");
        fs::create_dir_all(sessions.join("place/work")).unwrap();
        let (state, run) = (volume.join("state"), volume.join("run"));
        let floors = state.join("floors");
        fs::create_dir_all(&floors).unwrap();
        fs::create_dir(&run).unwrap();
        let slots = dir.path().join("slots");
        let all = [&floors, &state, &run, &sessions, &volume, &slots, &dir.path().to_owned()];
        for path in all {
            fs::set_permissions(path, Permissions::from_mode(0o000)).unwrap();
        }
        open_again(&volume).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        let ours = [0o700; 5];
        assert_eq!(all.map(|path| mode(path)), [&ours[..], &[0o100, 0o100]].concat()[..]);
        for path in all.into_iter().rev() {
            fs::set_permissions(path, Permissions::from_mode(0o700)).unwrap();
        }
    }

    #[test]
    fn an_access_list_on_ours_lets_nobody_in_and_the_owner_not_out() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        let layout = Layout::of(&config);
        make(&config, &layout).unwrap();
        let (state, work) = (&layout.outside.state, &layout.outside.work);
        let below = state.join("journal");
        fs::create_dir(&below).unwrap();
        // The owner's rights gone, the group's some, and all for somebody else.
        let list = access_lists::tests::list(0, 5);
        for path in [&below, state, work] {
            if !access_lists::tests::put(path.to_str().unwrap(), &list) {
                println!("SKIP: no access lists on the file system of temporary files");
                return;
            }
            assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o070);
        }
        make(&config, &layout).unwrap();
        for path in [&below, state] {
            assert_eq!(access_lists::of(path.to_str().unwrap()).unwrap(), None);
            assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o750);
        }
        // An agent's own is as it likes, and the owner's again.
        assert!(access_lists::of(work.to_str().unwrap()).unwrap().is_some());
        assert_eq!(fs::metadata(work).unwrap().mode() & 0o777, 0o770);
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
