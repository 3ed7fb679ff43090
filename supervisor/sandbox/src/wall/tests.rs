//! What a wall refuses to be, seen from the parent.

use std::path::Path;

use casemate_protocol::policy::{DEVELOPER, Policy};
use casemate_protocol::ports::PortRange;
use casemate_protocol::tier::Tier;

use super::*;

/// A session's places below a directory; made on disk.
pub(crate) fn places(root: &Path) -> Places {
    for name in ["work", "home", "scratch", "state"] {
        std::fs::create_dir_all(root.join(name)).unwrap();
    }
    let [work, home, scratch] = ["work", "home", "scratch"].map(|name| root.join(name));
    Places {
        never: vec![root.join("state")],
        ports: PortRange { first: 20_000, count: 4 },
        ..Places::new(work, home, scratch, Tier::Domain)
    }
}

const FRAME: &str = "version = 1\nname = \"t\"\n[landlock]\nabi = 6\nreason = \"r\"\n\
                     [sockets]\nerrno = \"EACCES\"\nreason = \"r\"\n";

fn policy(rules: &str) -> Policy {
    Policy::parse(&format!("{FRAME}{rules}")).unwrap()
}

fn path_rule(path: &Path) -> String {
    format!("[[path]]\npath = \"{}\"\naccess = [\"read\"]\nreason = \"r\"\n", path.display())
}

/// Builds a wall that grants one path below a session's root, with `state` closed.
fn grant(root: &Path, path: &Path) -> Result<Wall, WallError> {
    Wall::build(&policy(&path_rule(path)), &places(root))
}

fn is_refused(root: &Path, path: &Path) -> bool {
    match grant(root, path) {
        Ok(_) => false,
        Err(WallError::Never { never, line, .. }) => {
            assert_eq!((never, line), (root.join("state"), Some(FRAME.lines().count() + 1)));
            true
        }
        Err(other) => panic!("{other}"),
    }
}

fn root() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    std::fs::create_dir_all(root.join("state/deep")).unwrap();
    std::fs::create_dir_all(root.join("open/inner")).unwrap();
    (directory, root)
}

#[test]
fn the_default_policy_builds_and_says_what_it_does() {
    let (_directory, root) = root();
    let mut places = places(&root);
    places.tier = Tier::Namespace;
    let wall = Wall::build(&Policy::parse(DEVELOPER).unwrap(), &places).unwrap();
    let summary = wall.summary();
    let abi = landlock_abi().unwrap();
    assert!(summary[0].starts_with(&format!("landlock abi {abi} (required 6)")), "{summary:?}");
    assert!(summary[0].contains(&kernels_errata()), "{summary:?}");
    assert!(summary.iter().any(|line| line.contains("{skills} (none given)")), "{summary:?}");
    assert!(summary.iter().any(|line| line.starts_with("seccomp ")), "{summary:?}");
    // No rule of the default policy depends on a tier that this worker has.
    assert!(!summary.iter().any(|line| line.contains("needs tier")), "{summary:?}");
    assert_eq!(wall.rlimits()[0], Rlimit { resource: libc::RLIMIT_CORE, soft: 0, hard: 0 });
}

/// By the number that this kernel gives for `LANDLOCK_CREATE_RULESET_ERRATA` (landlock(7)); what begins the words.
fn kernels_errata() -> String {
    // SAFETY: with this flag the call takes no attributes and returns a number.
    let bits = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0_usize, 0_usize, 2_u32) };
    let fixed = (0..31).filter(|bit| bits >> bit & 1 == 1).map(|bit| format!(" {}", bit + 1));
    let fixed: String = fixed.collect();
    match bits {
        ..0 => "errata unknown".to_owned(),
        0 => "errata fixed none".to_owned(),
        _ => format!("errata fixed{fixed}"),
    }
}

#[test]
fn what_is_closed_cannot_be_granted_above_at_or_below() {
    let (_directory, root) = root();
    for path in ["", "state", "state/deep"] {
        assert!(is_refused(&root, &root.join(path)), "{path}");
    }
    assert!(is_refused(&root, root.parent().unwrap()));
    for path in ["open", "work"] {
        assert!(!is_refused(&root, &root.join(path)), "{path}");
    }
}

#[test]
fn links_do_not_open_what_is_closed() {
    let (_directory, root) = root();
    for (target, link) in [("state", "open/a"), ("state/deep", "open/b"), ("", "open/c")] {
        std::os::unix::fs::symlink(root.join(target), root.join(link)).unwrap();
        assert!(is_refused(&root, &root.join(link)), "{link}");
    }
    // A link within a granted directory opens nothing: the kernel judges where it leads.
    assert!(!is_refused(&root, &root.join("open")));
    // The closed path may be named by a link as well.
    std::os::unix::fs::symlink(root.join("open/inner"), root.join("alias")).unwrap();
    let closed = Places { never: vec![root.join("alias")], ..places(&root) };
    let built = Wall::build(&policy(&path_rule(&root.join("open"))), &closed);
    assert!(matches!(built, Err(WallError::Never { .. })), "{built:?}");
}

#[test]
fn a_closed_path_that_does_not_exist_yet_is_closed() {
    let (_directory, root) = root();
    let closed = Places { never: vec![root.join("open/later/key")], ..places(&root) };
    let built = |path: &str| Wall::build(&policy(&path_rule(&root.join(path))), &closed);
    assert!(matches!(built("open"), Err(WallError::Never { .. })));
    assert!(built("open/inner").is_ok());
}

#[test]
fn of_a_private_directory_only_the_sessions_own_places_are_granted() {
    let (_directory, root) = root();
    let home = root.join("casemate");
    for path in ["keys", "slots/own/work/sub", "slots/own/home", "slots/other/work"] {
        std::fs::create_dir_all(home.join(path)).unwrap();
    }
    std::os::unix::fs::symlink(home.join("slots/other"), home.join("slots/own/link")).unwrap();
    let places = Places {
        work: home.join("slots/own/work"),
        home: home.join("slots/own/home"),
        never: Vec::new(),
        private: vec![home.clone()],
        ..places(&root)
    };
    let built = |path: &str| Wall::build(&policy(&path_rule(&home.join(path))), &places);
    for path in ["slots/own/work", "slots/own/work/sub", "slots/own/home"] {
        built(path).unwrap();
    }
    for path in ["", "keys", "slots", "slots/own", "slots/other/work", "slots/own/link/work"] {
        assert!(matches!(built(path), Err(WallError::Never { .. })), "{path}");
    }
    let above = Wall::build(&policy(&path_rule(&root)), &places);
    assert!(matches!(above, Err(WallError::Never { .. })), "{above:?}");
    let elsewhere = Wall::build(&policy(&path_rule(&root.join("open"))), &places);
    elsewhere.unwrap();
}

#[test]
fn the_callers_own_list_is_checked_too() {
    let (_directory, root) = root();
    let mut places = places(&root);
    places.read = vec![root.join("state")];
    let error = Wall::build(&policy(""), &places).unwrap_err();
    assert!(error.to_string().starts_with("the caller would grant"), "{error}");
    let mut places = super::tests::places(&root);
    places.programs = vec![root.join("state/deep")];
    let error = Wall::build(&Policy::parse(DEVELOPER).unwrap(), &places).unwrap_err();
    assert!(matches!(error, WallError::Never { .. }), "{error}");
}

/// A rule below what a session may write, which it turns into a link between two starts.
#[test]
fn no_link_that_a_session_could_have_made_is_followed() {
    use std::os::unix::fs::symlink;
    let (_directory, root) = root();
    std::fs::create_dir_all(root.join("secret")).unwrap();
    std::fs::write(root.join("secret/key"), "sentinel").unwrap();
    std::fs::create_dir_all(root.join("open/sub")).unwrap();
    let (secret, writable) = (root.join("secret"), root.join("open"));
    // By a rule of the policy; and the session's own places, whatever the policy says of them.
    let write = format!(
        "[[path]]\npath = \"{}\"\naccess = [\"write\"]\nreason = \"r\"\n",
        writable.display()
    );
    let built =
        |path: &Path| Wall::build(&policy(&format!("{write}{}", path_rule(path))), &places(&root));
    let moved = |path: &Path, at: &Path| match built(path) {
        Err(error @ WallError::Moved { .. }) => {
            assert!(error.to_string().contains("remove the link"), "{error}");
            let WallError::Moved { link, line, .. } = error else { unreachable!() };
            assert_eq!((link.as_path(), line), (at, Some(FRAME.lines().count() + 5)));
        }
        other => panic!("{}: {other:?}", path.display()),
    };
    built(&writable.join("missing")).unwrap();
    built(&writable.join("sub")).unwrap();
    symlink(secret.join("key"), writable.join("file")).unwrap();
    symlink(&secret, writable.join("folder")).unwrap();
    symlink("../../secret", writable.join("sub/relative")).unwrap();
    symlink("sub", writable.join("within")).unwrap();
    for (path, link) in [
        ("file", "file"),
        ("folder", "folder"),
        ("folder/key", "folder"),
        ("sub/relative", "sub/relative"),
        ("within/relative", "within"),
    ] {
        moved(&writable.join(path), &writable.join(link));
    }
    let places = places(&root);
    for own in [&places.work, &places.home, &places.scratch] {
        symlink(&secret, own.join("link")).unwrap();
        moved(&own.join("link/key"), &own.join("link"));
    }
    // A person's links, where no session may write: one to what it may, one that goes on by a session's link, one out of it.
    for (name, target) in
        [("fine", "open/sub"), ("onwards", "open/folder"), ("outwards", "open/sub/../../secret")]
    {
        symlink(target, root.join(name)).unwrap();
    }
    built(&root.join("fine")).unwrap();
    moved(&root.join("onwards"), &writable.join("folder"));
    moved(&root.join("outwards"), &writable.join("sub/.."));
    symlink("loop", root.join("loop")).unwrap();
    assert!(matches!(built(&root.join("loop")), Err(WallError::Path { .. })));
    // Its own rule included: below another that may be written, it is a session's to turn.
    let nested = format!(
        "{write}[[path]]\npath = \"{}\"\naccess = [\"write\"]\nreason = \"r\"\n",
        writable.join("folder").display()
    );
    let nested = Wall::build(&policy(&nested), &places);
    assert!(matches!(nested, Err(WallError::Moved { .. })), "{nested:?}");
    // Without what makes it writable, it is a link like another.
    grant(&root, &writable.join("folder")).unwrap();
}

/// What may be written under one name is by another.
#[test]
fn a_link_that_a_session_made_is_known_through_a_bind_mount() {
    let (_directory, root) = root();
    for name in ["secret", "elsewhere"] {
        std::fs::create_dir_all(root.join(name)).unwrap();
    }
    std::os::unix::fs::symlink(root.join("secret"), root.join("open/inner/link")).unwrap();
    let rules = format!(
        "[[path]]\npath = \"{}\"\naccess = [\"write\"]\nreason = \"r\"\n{}",
        root.join("open").display(),
        path_rule(&root.join("elsewhere/link"))
    );
    let is_moved = in_a_mount_namespace(|| {
        bind(&root.join("open/inner"), &root.join("elsewhere"));
        let built = Wall::build(&policy(&rules), &places(&root));
        matches!(built, Err(WallError::Moved { .. }))
    });
    assert_eq!(is_moved, Some(true));
    // The other way round: what lies elsewhere is mounted below what may be written, where it is nobody's but the session's.
    std::os::unix::fs::symlink(root.join("secret"), root.join("elsewhere/link")).unwrap();
    let mounted = |read_only: bool| {
        in_a_mount_namespace(|| {
            let (from, at) = (root.join("elsewhere"), root.join("open/inner"));
            bind(&from, &at);
            if read_only {
                use nix::mount::MsFlags;
                let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
                let none = None::<&str>;
                nix::mount::mount(none, &at, none, flags, none).unwrap();
            }
            let built = Wall::build(&policy(&rules), &places(&root));
            matches!(built, Err(WallError::Moved { .. }))
        })
    };
    assert_eq!((mounted(false), mounted(true)), (Some(true), Some(false)));
}

/// Bind mounts are made in a mount namespace of a child's own.
#[test]
fn bind_mounts_do_not_open_what_is_closed() {
    let (_directory, root) = root();
    for name in ["at", "below", "above", "other", "open/inner"] {
        std::fs::create_dir_all(root.join(name)).unwrap();
    }
    // (what is mounted, where, what is granted)
    let cases = [
        ("state", "at", "at"),
        ("state/deep", "below", "below"),
        ("", "above", "above"),
        ("", "above", "above/state"),
        ("state", "open/inner", "open"),
        ("state/deep", "open/inner", "open"),
        ("", "open/inner", "open"),
    ];
    for (source, point, granted) in cases {
        let ended = in_a_mount_namespace(|| {
            bind(&root.join(source), &root.join(point));
            is_refused(&root, &root.join(granted))
        });
        assert_eq!(ended, Some(true), "{source} at {point}, {granted} granted");
    }
    let harmless = in_a_mount_namespace(|| {
        bind(&root.join("other"), &root.join("open/inner"));
        is_refused(&root, &root.join("open"))
    });
    assert_eq!(harmless, Some(false));
    // The closed path's own name may be the mounted one.
    let hidden = in_a_mount_namespace(|| {
        bind(&root.join("open"), &root.join("state"));
        is_refused(&root, &root.join("open"))
    });
    assert_eq!(hidden, Some(true));
}

pub(crate) fn bind(source: &Path, point: &Path) {
    let none = None::<&str>;
    nix::mount::mount(Some(source), point, none, nix::mount::MsFlags::MS_BIND, none).unwrap();
}

/// Runs a question in a child with mounts of its own; `None` where the child panicked.
pub(crate) fn in_a_mount_namespace(question: impl FnOnce() -> bool) -> Option<bool> {
    use nix::sched::{CloneFlags, unshare};
    use nix::sys::wait::{WaitStatus, waitpid};
    // SAFETY: glibc makes its allocator usable in a forked child, and the child leaves by _exit.
    match unsafe { nix::unistd::fork() }.unwrap() {
        nix::unistd::ForkResult::Child => {
            let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let user = if nix::unistd::geteuid().is_root() {
                    CloneFlags::empty()
                } else {
                    CloneFlags::CLONE_NEWUSER
                };
                unshare(user | CloneFlags::CLONE_NEWNS).unwrap();
                let (none, private) = (None::<&str>, nix::mount::MsFlags::MS_PRIVATE);
                nix::mount::mount(none, "/", none, private | nix::mount::MsFlags::MS_REC, none)
                    .unwrap();
                question()
            }));
            // SAFETY: ends the child without running the test harness.
            unsafe { libc::_exit(answer.map_or(2, i32::from)) }
        }
        nix::unistd::ForkResult::Parent { child } => match waitpid(child, None).unwrap() {
            WaitStatus::Exited(_, 0) => Some(false),
            WaitStatus::Exited(_, 1) => Some(true),
            _ => None,
        },
    }
}

#[test]
fn a_missing_path_is_skipped_unless_required() {
    let (_directory, root) = root();
    let missing = root.join("missing");
    let wall = grant(&root, &missing).unwrap();
    assert!(
        wall.summary()
            .iter()
            .any(|line| line.contains(&format!("{} (missing)", missing.display())))
    );
    let rule = format!("{}required = true\n", path_rule(&missing));
    let error = Wall::build(&policy(&rule), &places(&root)).unwrap_err();
    let expected = format!(
        "policy line {}: required path {} does not exist: create it, or set required = false",
        FRAME.lines().count() + 1,
        missing.display()
    );
    assert_eq!(error.to_string(), expected);
    assert!(!error.is_kernel());
    let rule =
        "[[path]]\npath = \"{skills}\"\naccess = [\"read\"]\nrequired = true\nreason = \"r\"\n";
    let error = Wall::build(&policy(rule), &places(&root)).unwrap_err();
    assert!(matches!(error, WallError::MissingPlace { .. }), "{error}");
}

#[test]
fn a_rule_for_a_stronger_tier_is_left_out() {
    let (_directory, root) = root();
    // Even what is required: it is not there to be required.
    let rule =
        format!("{}required = true\ntier = \"namespace\"\n", path_rule(&root.join("missing")));
    let wall = Wall::build(&policy(&rule), &places(&root)).unwrap();
    assert!(wall.summary().iter().any(|line| line.contains("(needs tier namespace)")));
    let namespaced = Places { tier: Tier::Namespace, ..places(&root) };
    assert!(matches!(Wall::build(&policy(&rule), &namespaced), Err(WallError::MissingPath { .. })));
}

#[test]
fn a_kernel_below_the_policy_is_refused() {
    let (_directory, root) = root();
    let text = FRAME.replace("abi = 6", "abi = 99");
    let error = Wall::build(&Policy::parse(&text).unwrap(), &places(&root)).unwrap_err();
    match &error {
        WallError::Kernel { required: 99, found } => assert_eq!(*found, landlock_abi().unwrap()),
        other => panic!("{other}"),
    }
    assert!(error.is_kernel());
    assert!(error.to_string().contains("requires landlock abi 99"), "{error}");
}

#[test]
fn an_unknown_system_call_is_named() {
    let (_directory, root) = root();
    let rule =
        "[[syscall]]\nnames = [\"bpf\", \"frobnicate\"]\nerrno = \"EPERM\"\nreason = \"r\"\n";
    let error = Wall::build(&policy(rule), &places(&root)).unwrap_err();
    assert!(
        matches!(&error, WallError::UnknownSyscall { name, .. } if name == "frobnicate"),
        "{error}"
    );
}

#[test]
fn too_many_rules_for_a_filter_are_an_error() {
    let (_directory, root) = root();
    let rules: String = (0..10_000)
        .map(|n| {
            format!(
                "[[syscall]]\nnames = [\"ioctl\"]\nerrno = \"EPERM\"\n\
                 when = [{{ arg = 1, bits = 32, op = \"equal\", value = {n} }}]\nreason = \"r\"\n"
            )
        })
        .collect();
    let error = Wall::build(&policy(&rules), &places(&root)).unwrap_err();
    assert!(matches!(error, WallError::FilterTooLong { .. }), "{error}");
    let bits = "{ arg = 0, bits = 64, op = \"any-bits\", value = -1 }";
    let rule = format!(
        "[[syscall]]\nnames = [\"ioctl\"]\nerrno = \"EPERM\"\nwhen = [{bits}, {bits}, {bits}]\nreason = \"r\"\n"
    );
    let error = Wall::build(&policy(&rule), &places(&root)).unwrap_err();
    assert!(matches!(error, WallError::TooManyAlternatives { .. }), "{error}");
}

#[test]
fn the_default_filter_is_short() {
    let (_directory, root) = root();
    let wall = Wall::build(&Policy::parse(DEVELOPER).unwrap(), &places(&root)).unwrap();
    // Installing costs every start of an agent; a program for each errno had 1571 instructions.
    let length: usize = wall.programs().iter().map(|program| program.instructions().len()).sum();
    assert!(length < 600, "{length}");
}

#[test]
fn limits_are_lowered_to_what_may_be_set() {
    let (_directory, root) = root();
    let rule =
        "[[rlimit]]\nresource = \"nofile\"\nsoft = 10\nhard = \"unlimited\"\nreason = \"r\"\n";
    let wall = Wall::build(&policy(rule), &places(&root)).unwrap();
    let (_, own) =
        nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap();
    assert_eq!(wall.rlimits(), [Rlimit { resource: libc::RLIMIT_NOFILE, soft: 10, hard: own }]);
    assert!(
        wall.summary().iter().any(|line| line.starts_with("rlimit nofile")),
        "{:?}",
        wall.summary()
    );
}
