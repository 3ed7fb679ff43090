//! The home on disk: whose it is, its modes, its lock and its key.

use super::*;

#[test]
fn a_home_that_others_may_enter_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("home");
    drop(Home::open(&path).unwrap());
    std::fs::set_permissions(&path, Permissions::from_mode(0o750)).unwrap();
    assert!(matches!(Home::open(&path), Err(HomeError::Open { mode: 0o750, .. })));
}

#[test]
fn only_the_way_to_the_slots_may_be_searched_and_only_where_root_gives_them_away() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::open(&dir.path().join("home")).unwrap();
    let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
    assert_eq!(mode(home.path()), above_slots());
    assert_eq!(mode(&home.slots()), above_slots());
    assert_eq!(above_slots() == 0o711, nix::unistd::geteuid().is_root());
    for private in ["run", "keys", "profiles", "values"] {
        assert_eq!(mode(&home.path().join(private)), 0o700);
    }
}

#[test]
fn a_closed_directory_above_the_home_is_named() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let set = |mode| std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode));
    set(0o711).unwrap();
    let home = Home::open(&dir.path().join("home")).unwrap();
    home.check_the_way().unwrap();
    set(0o710).unwrap();
    let error = home.check_the_way().unwrap_err();
    assert!(error.to_string().contains("--home"), "{error}");
    let HomeError::Unreachable { closed, mode: 0o710, .. } = error else { panic!("{error}") };
    assert_eq!(closed, dir.path().canonicalize().unwrap());
}

#[test]
fn the_second_lock_names_the_first_ones_pid() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::open(&dir.path().join("home")).unwrap();
    let held = home.lock().unwrap();
    let error = home.lock().unwrap_err();
    assert!(matches!(error, HomeError::AlreadyRunning { pid, .. } if pid == std::process::id()));
    drop(held);
    home.lock().unwrap();
}

#[test]
fn the_signing_key_stays_and_is_private() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::open(&dir.path().join("home")).unwrap();
    let first = home.signing_secret().unwrap();
    assert_eq!(first.seed(), home.signing_secret().unwrap().seed());
    let path = home.path().join("keys/signing.seed");
    assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
}

/// In tier `domain` an agent can do that much to a path that it knows.
#[test]
fn a_signing_keys_mode_is_set_right_and_its_content_is_not_doubted() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::open(&dir.path().join("home")).unwrap();
    let first = home.signing_secret().unwrap();
    let path = home.path().join("keys/signing.seed");
    for mode in [0o644, 0o000, 0o200, 0o4755, 0o400] {
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        assert_eq!(first.seed(), home.signing_secret().unwrap().seed(), "{mode:o}");
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o600, "{mode:o}");
    }
}

#[test]
fn no_mode_of_what_lies_in_it_keeps_a_home_from_opening() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::open(&dir.path().join("home")).unwrap();
    drop(home.lock().unwrap());
    let seed = home.signing_secret().unwrap().seed();
    std::fs::write(home.store(), "").unwrap();
    let modes = |mode: Option<u32>| {
        ["keys/signing.seed", "run/up.lock", "store.redb", "keys", "run", "profiles", "slots", ""]
            .map(|name| {
                let path = home.path().join(name);
                if let Some(mode) = mode {
                    std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
                    return 0;
                }
                path.metadata().unwrap().mode() & 0o7777
            })
    };
    modes(Some(0o000));
    let again = Home::open(home.path()).unwrap();
    drop(again.lock().unwrap());
    assert_eq!(again.signing_secret().unwrap().seed(), seed);
    let above = above_slots();
    assert_eq!(modes(None), [0o600, 0o600, 0o600, 0o700, 0o700, 0o700, above, above]);
}

#[test]
fn what_is_no_key_of_this_users_is_refused_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::open(&dir.path().join("home")).unwrap();
    let path = home.path().join("keys/signing.seed");
    let refused = || matches!(home.signing_secret(), Err(HomeError::Key { .. }));
    for content in [&[7_u8; 31][..], &[7; 33], &[]] {
        std::fs::write(&path, content).unwrap();
        assert!(refused(), "{} bytes", content.len());
        assert_eq!(std::fs::read(&path).unwrap(), content);
    }
    std::fs::remove_file(&path).unwrap();
    let elsewhere = dir.path().join("elsewhere");
    std::fs::write(&elsewhere, [7; 32]).unwrap();
    std::fs::set_permissions(&elsewhere, Permissions::from_mode(0o644)).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
    assert!(refused(), "a link");
    assert_eq!(elsewhere.metadata().unwrap().mode() & 0o777, 0o644);
    if nix::unistd::geteuid().is_root() {
        std::fs::remove_file(&path).unwrap();
        std::fs::rename(&elsewhere, &path).unwrap();
        std::os::unix::fs::chown(&path, Some(1000), Some(1000)).unwrap();
        assert!(refused(), "somebody else's");
    }
}
