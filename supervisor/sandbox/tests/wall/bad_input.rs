//! Policies that name what is missing, moving, unreadable or odd, and many of it: an error, or a wall without a hole.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use casemate_protocol::policy::{Access, PathRule, PathTemplate, Policy};
use casemate_protocol::tier::Tier;
use casemate_sandbox::{Places, Wall, WallError, environment};

use super::cell::{Site, call, confined, enforce, errno, free, give};

const FRAME: &str = "version = 1\nname = \"t\"\n[landlock]\nabi = 6\nreason = \"r\"\n\
                     [sockets]\nerrno = \"EACCES\"\nreason = \"r\"\n";

/// A policy of these paths alone, each with its rights.
fn policy(paths: &[(&Path, &[Access])]) -> Policy {
    let mut policy = Policy::parse(FRAME).unwrap();
    policy.paths = paths
        .iter()
        .map(|(path, access)| PathRule {
            path: PathTemplate::parse(path.to_str().unwrap()).unwrap(),
            access: access.to_vec(),
            required: false,
            tier: Tier::Domain,
            reason: "r".to_owned(),
            line: 1,
        })
        .collect();
    policy
}

fn read(path: &Path) -> Result<(), i32> {
    File::open(path).map(drop).map_err(|error| errno(&error))
}

fn is_closed(path: &Path) -> bool {
    read(path) == Err(libc::EACCES)
}

#[test]
fn what_was_missing_stays_closed_when_it_is_made() {
    let site = Site::new();
    let missing = site.path("other/dir/later");
    let wall = Wall::build(&policy(&[(&missing, &[Access::Read])]), &site.places).unwrap();
    let said = format!("{} (missing)", missing.display());
    assert!(wall.summary().iter().any(|line| line.contains(&said)), "{:?}", wall.summary());
    fs::create_dir(&missing).unwrap();
    fs::write(missing.join("file"), "x").unwrap();
    give(&site.root);
    free(|| read(&missing.join("file"))).unwrap();
    assert!(confined(&wall, || is_closed(&missing) && is_closed(&missing.join("file"))));
    // So does what takes the place of something that was granted.
    let own = site.path("other/dir");
    let wall = Wall::build(&policy(&[(&own, &[Access::Read])]), &site.places).unwrap();
    fs::rename(&own, site.path("other/moved")).unwrap();
    fs::create_dir(&own).unwrap();
    fs::write(own.join("new"), "x").unwrap();
    give(&own);
    assert!(confined(&wall, || is_closed(&own.join("new"))));
    confined(&wall, || read(&site.path("other/moved/deep"))).unwrap();
}

#[test]
fn a_link_is_followed_once() {
    let site = Site::new();
    let link = site.path("other/link");
    symlink("dir", &link).unwrap();
    let wall = Wall::build(&policy(&[(&link, &[Access::Read])]), &site.places).unwrap();
    confined(&wall, || read(&site.path("other/dir/deep"))).unwrap();
    for target in [site.path("state"), site.path("other"), PathBuf::from("/etc")] {
        fs::remove_file(&link).unwrap();
        symlink(&target, &link).unwrap();
        free(|| fs::read_dir(&link).map(drop)).unwrap();
        assert!(confined(&wall, || is_closed(&link)), "{}", target.display());
    }
    // One that leads to itself is no path at all.
    fs::remove_file(&link).unwrap();
    symlink(&link, &link).unwrap();
    let built = Wall::build(&policy(&[(&link, &[Access::Read])]), &site.places);
    assert!(matches!(built, Err(WallError::Path { .. })), "{built:?}");
}

#[test]
fn a_rule_inside_a_closed_parent_opens_nothing_beside_it() {
    let site = Site::new();
    let inner = site.path("other/dir");
    let wall = Wall::build(&policy(&[(&inner, &[Access::Read])]), &site.places).unwrap();
    confined(&wall, || {
        read(&inner.join("deep")).unwrap();
        for closed in ["other", "other/secret", "other/dir/../secret", "state/key", ""] {
            assert!(is_closed(&site.path(closed)), "{closed}");
        }
        assert_eq!(errno(&fs::write(inner.join("new"), "x").unwrap_err()), libc::EACCES);
    });
    // Inside what no policy may grant there is no such thing.
    fs::create_dir(site.path("state/inner")).unwrap();
    let built = Wall::build(&policy(&[(&site.path("state/inner"), &[Access::Read])]), &site.places);
    assert!(matches!(built, Err(WallError::Never { .. })), "{built:?}");
}

/// As the supervisor's own user, whom modes bind; root would not notice.
#[test]
fn what_the_supervisor_cannot_look_at_is_an_error_and_not_a_gap() {
    let site = Site::new();
    let closed = site.path("other/closed");
    fs::create_dir(&closed).unwrap();
    fs::write(closed.join("file"), "x").unwrap();
    give(&closed);
    let mode = |mode| fs::set_permissions(&closed, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o000);
    let refused = |built: Result<Wall, WallError>| match built {
        Err(WallError::Path { source, .. }) => errno(&source) == libc::EACCES,
        other => panic!("{other:?}"),
    };
    let below = policy(&[(&closed.join("file"), &[Access::Read])]);
    assert!(refused(free(|| Wall::build(&below, &site.places))));
    // What is to stay closed may be there without one's seeing it.
    let never = Places { never: vec![closed.join("file")], ..site.places.clone() };
    let other = policy(&[(&site.path("other/dir"), &[Access::Read])]);
    assert!(refused(free(|| Wall::build(&other, &never))));
    let private = Places { private: vec![closed.join("file")], ..site.places.clone() };
    assert!(refused(free(|| Wall::build(&other, &private))));
    // The path itself: the rule stands, and the file system refuses until its owner opens it.
    let itself = policy(&[(&closed, &[Access::Read])]);
    let wall = free(|| Wall::build(&itself, &site.places)).unwrap();
    assert!(confined(&wall, || is_closed(&closed.join("file"))));
    mode(0o755);
    confined(&wall, || read(&closed.join("file"))).unwrap();
    assert!(confined(&wall, || is_closed(&site.path("other/secret"))));
}

#[test]
fn places_that_are_not_utf8_have_the_same_walls() {
    let site = Site::new();
    let odd = |name: &[u8]| site.root.join(OsStr::from_bytes(name));
    let (own, other, state) = (odd(b"w\xff"), odd(b"w\xfe"), odd(b"state\xff"));
    for place in [&own, &other, &state] {
        fs::create_dir(place).unwrap();
        fs::write(place.join(OsStr::from_bytes(b"f\xc3")), "x").unwrap();
        give(place);
    }
    let places = Places { work: own.clone(), never: vec![state.clone()], ..site.places.clone() };
    let developer = Policy::parse(casemate_protocol::policy::DEVELOPER).unwrap();
    let wall = Wall::build(&developer, &places).unwrap();
    let file = |place: &Path| place.join(OsStr::from_bytes(b"f\xc3"));
    free(|| read(&file(&other)).and(read(&file(&state)))).unwrap();
    confined(&wall, || {
        read(&file(&own)).unwrap();
        assert!(is_closed(&file(&other)) && is_closed(&file(&state)) && is_closed(&site.root));
    });
    // Named by a link, by the directory above, and by the caller.
    symlink(&state, site.path("other/link")).unwrap();
    for path in [site.path("other/link"), site.root.clone()] {
        let built = Wall::build(&policy(&[(&path, &[Access::Read])]), &places);
        assert!(matches!(built, Err(WallError::Never { .. })), "{}", path.display());
    }
    let asked = Places { read: vec![state.clone()], ..places.clone() };
    assert!(matches!(Wall::build(&policy(&[]), &asked), Err(WallError::Never { .. })));
    // A variable cannot hold such a name, and half of one would lead elsewhere.
    let odd_home = Places { home: own, ..places };
    assert!(environment(&developer, &odd_home).iter().all(|(name, _)| name != "HOME"));
}

#[test]
fn ten_thousand_rules_make_a_wall_without_a_gap() {
    // In memory where that is to be had: the disk is not what is tested.
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let root = directory.path().canonicalize().unwrap();
    let paths: Vec<PathBuf> = (0..10_001).map(|n| root.join(n.to_string())).collect();
    for path in &paths {
        fs::write(path, "x").unwrap();
    }
    give(&root);
    let site = Site::new();
    let (last, granted) = paths.split_last().unwrap();
    let rules: Vec<(&Path, &[Access])> =
        granted.iter().map(|path| (path.as_path(), &[Access::Read][..])).collect();
    let wall = Wall::build(&policy(&rules), &site.places).unwrap();
    assert!(wall.summary()[0].contains(" 10000 paths"), "{:?}", wall.summary());
    free(|| read(last)).unwrap();
    confined(&wall, || {
        granted.iter().for_each(|path| read(path).unwrap());
        assert!(is_closed(last) && is_closed(&root) && is_closed(&site.path("state/key")));
        let write = File::options().write(true).open(&granted[9_999]).unwrap_err();
        assert_eq!(errno(&write), libc::EACCES);
    });
    // One of them closed, wherever it stands: no wall.
    let closed = Places { never: vec![granted[7_777].clone()], ..site.places.clone() };
    let built = Wall::build(&policy(&rules), &closed);
    assert!(matches!(built, Err(WallError::Never { .. })), "{built:?}");
}

#[test]
fn two_rules_for_one_place_add_up_and_for_one_call_the_first_decides() {
    let site = Site::new();
    let (dir, link) = (site.path("other/dir"), site.path("other/link"));
    symlink("dir", &link).unwrap();
    let rules = policy(&[(&dir, &[Access::Read]), (&link, &[Access::Write])]);
    let wall = Wall::build(&rules, &site.places).unwrap();
    confined(&wall, || {
        read(&dir.join("deep")).unwrap();
        fs::write(link.join("new"), "x").unwrap();
        assert!(is_closed(&site.path("other/secret")));
    });
    let rule = |errno: &str| {
        format!("[[syscall]]\nnames = [\"getpriority\"]\nerrno = \"{errno}\"\nreason = \"r\"\n")
    };
    for (first, second, seen) in [("ENOSYS", "EPERM", 38), ("EPERM", "ENOSYS", 1)] {
        let text = format!("{FRAME}{}{}", rule(first), rule(second));
        let wall = Wall::build(&Policy::parse(&text).unwrap(), &site.places).unwrap();
        let answer = confined(&wall, || call(libc::SYS_getpriority, [0; 6]));
        assert_eq!(answer, Err(seen));
    }
}

/// A confined process that confines another by a policy of its own (a supervisor in a supervisor).
#[test]
fn a_policy_within_a_policy_only_takes_away() {
    let site = Site::new();
    let (dir, secret) = (site.path("other/dir"), site.path("other/secret"));
    let all = [Access::Read, Access::Write];
    let outer = Wall::build(&policy(&[(&dir, &all)]), &site.places).unwrap();
    let inner =
        Wall::build(&policy(&[(&site.path("other"), &[Access::Read])]), &site.places).unwrap();
    for (first, second) in [(&outer, &inner), (&inner, &outer)] {
        confined(first, || {
            enforce(second);
            read(&dir.join("deep")).unwrap();
            assert!(is_closed(&secret));
            let made: io::Result<()> = fs::write(dir.join("new"), "x");
            assert_eq!(errno(&made.unwrap_err()), libc::EACCES);
        });
    }
}
