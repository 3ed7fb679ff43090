//! What `casemate policy explain` says about paths and ports, against what the kernel does.

use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use casemate_protocol::policy::decide::{self, Outcome, Setting, Way};
use casemate_protocol::policy::{
    Access, BUILT_IN, PathRule, PathTemplate, Place, Policy, Port, PortRule, SocketFamily,
};
use casemate_protocol::ports::PortRange;
use casemate_protocol::tier::Tier;
use casemate_sandbox::{Places, Wall};
use proptest::prelude::*;

use super::cell::{Site, call, confined, errno, free};

/// execveat(2): only asks whether the file could be run (Linux 6.14).
const AT_EXECVE_CHECK: u64 = 0x10000;

/// What stands for a right at a path: `Some(errno)` where it is refused, `None` where it is not to be tried there.
pub(crate) fn attempt(path: &Path, access: Access) -> Option<i32> {
    use std::os::unix::ffi::OsStrExt;
    let name = CString::new(path.as_os_str().as_bytes()).ok()?;
    let open = |flags: i32| {
        let at = [
            libc::AT_FDCWD as u64,
            name.as_ptr() as u64,
            (flags | libc::O_CLOEXEC | libc::O_NOCTTY) as u64,
        ];
        let fd = call(libc::SYS_openat, [at[0], at[1], at[2], 0, 0, 0])?;
        call(libc::SYS_close, [fd as u64, 0, 0, 0, 0, 0])
    };
    let answer = match access {
        Access::Read => open(libc::O_RDONLY | libc::O_NONBLOCK),
        // An unnamed file asks for the rights of making one and leaves nothing behind.
        Access::Write if path.is_dir() => open(libc::O_WRONLY | libc::O_TMPFILE),
        Access::Write => open(libc::O_WRONLY | libc::O_NONBLOCK),
        Access::Execute if path.is_file() => {
            let arguments = [libc::AT_FDCWD as u64, name.as_ptr() as u64, 0, 0, AT_EXECVE_CHECK, 0];
            call(libc::SYS_execveat, arguments)
        }
        Access::Execute | Access::Device => return None,
    };
    Some(answer.err().unwrap_or(0))
}

fn setting(places: &Places) -> Setting {
    let text = |path: &Path| vec![path.to_str().unwrap().to_owned()];
    let filled = [
        (Place::Work, text(&places.work)),
        (Place::Home, text(&places.home)),
        (Place::Scratch, text(&places.scratch)),
        (Place::Skills, Vec::new()),
        (Place::Programs, Vec::new()),
    ];
    Setting {
        tier: places.tier,
        landlock_abi: casemate_sandbox::landlock_abi().unwrap(),
        places: HashMap::from(filled),
        ports: Some(places.ports),
        connect: Some(places.connect.clone()),
    }
}

fn real(path: &str) -> String {
    let path = Path::new(path);
    path.canonicalize().unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// Tries each right at each path behind a wall, and compares. Where an attempt fails without a wall as well it proves
/// nothing. Returns the answers.
fn compare(policy: &Policy, places: &Places, paths: &[String]) -> Vec<(String, Access, bool)> {
    let attempts: Vec<(&String, Access)> =
        paths.iter().flat_map(|path| Access::ALL.map(|access| (path, access))).collect();
    let try_all = || -> Vec<_> {
        attempts.iter().map(|(path, access)| attempt(Path::new(path), *access)).collect()
    };
    let without = free(try_all);
    let wall = Wall::build(policy, places).unwrap();
    let within = confined(&wall, try_all);
    let (setting, mut answers) = (setting(places), Vec::new());
    for (((path, access), without), within) in attempts.iter().zip(without).zip(within) {
        if without != Some(0) {
            continue;
        }
        let asked = PathTemplate::parse(path).unwrap();
        let explained = decide::path(policy, &setting, &asked, &real);
        let one = explained.access.iter().find(|one| one.access == *access).unwrap();
        let expected = match one.decision.outcome {
            Outcome::Allowed => 0,
            _ => i32::from(one.decision.errno.unwrap().number()),
        };
        assert_eq!(within, Some(expected), "{access} {path}: {:?}", one.decision);
        answers.push(((*path).clone(), *access, expected == 0));
    }
    answers
}

/// A path at which to see whether a rule grants something.
fn specimen(template: &PathTemplate, places: &Places) -> Vec<String> {
    let root =
        decide::path(&Policy::parse(BUILT_IN[0].1).unwrap(), &setting(places), template, &real);
    let mut found = vec![root.path.clone()];
    // A file in it that could be run: a directory cannot.
    let program = std::fs::read_dir(&root.path).into_iter().flatten().flatten().find(|entry| {
        use std::os::unix::fs::PermissionsExt;
        entry.metadata().is_ok_and(|at| at.is_file() && at.permissions().mode() & 0o111 != 0)
    });
    found.extend(program.and_then(|entry| entry.path().to_str().map(str::to_owned)));
    found
}

#[test]
fn each_path_rule_of_a_built_in_policy_is_explained_as_the_kernel_decides() {
    let mut site = Site::new();
    // Rules of every tier take part; the namespace itself makes no difference to Landlock.
    site.places.tier = Tier::Namespace;
    for place in ["home", "scratch"] {
        std::fs::copy(site.path("work/program"), site.path(place).join("program")).unwrap();
    }
    for (name, text) in BUILT_IN {
        let policy = Policy::parse(text).unwrap();
        let mut paths = vec![
            "/".to_owned(),
            "/root".to_owned(),
            // Another's: `depends`, and refused by the kernel whatever a rule for /proc grants.
            "/proc/1/environ".to_owned(),
            "/proc/1/maps".to_owned(),
            real("/var"),
            site.path("other/secret").display().to_string(),
            site.path("other/program").display().to_string(),
        ];
        paths.extend(policy.paths.iter().flat_map(|rule| specimen(&rule.path, &site.places)));
        paths.retain(|path| Path::new(path).exists());
        paths.sort_unstable();
        paths.dedup();
        let whole = compare(&policy, &site.places, &paths);
        assert!(whole.iter().any(|(.., allowed)| !allowed) && whole.len() > 40, "{name} {whole:?}");
    }
}

fn a_path_rule() -> impl Strategy<Value = (usize, Vec<Access>, bool)> {
    let access = proptest::sample::subsequence(&Access::ALL[..3], 1..=3);
    (0..NODES.len(), access, any::<bool>())
}

/// Directories, then files; `link` leads to `a/b`.
const NODES: [&str; 8] = ["a", "a/b", "a/b/c", "d", "a/f", "a/b/f", "d/f", "link"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_policys_paths_are_explained_as_the_kernel_decides(
        rules in proptest::collection::vec(a_path_rule(), 0..6),
    ) {
        let site = Site::new();
        for node in &NODES[..4] {
            std::fs::create_dir_all(site.path("other").join(node)).unwrap();
        }
        for node in &NODES[4..7] {
            std::fs::copy(site.path("work/program"), site.path("other").join(node)).unwrap();
        }
        std::os::unix::fs::symlink("a/b", site.path("other/link")).unwrap();
        super::cell::give(&site.path("other"));
        let at = |node: &str| site.path("other").join(node).display().to_string();
        let mut policy = Policy::parse(BUILT_IN[0].1).unwrap();
        policy.paths = rules
            .into_iter()
            .map(|(node, access, is_later)| PathRule {
                path: PathTemplate::parse(&at(NODES[node])).unwrap(),
                access,
                required: true,
                tier: if is_later { Tier::Namespace } else { Tier::Domain },
                reason: "r".to_owned(),
                line: 1,
            })
            .collect();
        let paths: Vec<String> = NODES.iter().map(|node| at(node)).chain([at("link/f")]).collect();
        compare(&policy, &site.places, &paths);
    }

    #[test]
    fn any_policys_ports_are_explained_as_the_kernel_decides(
        rules in proptest::collection::vec((any::<bool>(), 0..6_u16, 0..3_u8), 0..5),
        first in 30_000..30_004_u16,
        count in 0..3_u16,
        connect in proptest::collection::vec(30_000..30_006_u16, 0..2),
    ) {
        let mut site = Site::new();
        site.places.ports = PortRange { first, count };
        site.places.connect = connect;
        let mut policy = Policy::parse(BUILT_IN[0].1).unwrap();
        policy.tcp = rules
            .into_iter()
            .map(|(is_connect, number, kind)| {
                let port = match kind {
                    0 => Port::Number(if number == 5 { 0 } else { 30_000 + number }),
                    1 => Port::Own,
                    _ => Port::Connect,
                };
                let (connect, bind) = if is_connect { (vec![port], vec![]) } else { (vec![], vec![port]) };
                PortRule { connect, bind, reason: "r".to_owned(), line: 1 }
            })
            .collect();
        let ports: Vec<u16> = (30_000..30_007).chain([0]).collect();
        let wall = Wall::build(&policy, &site.places).unwrap();
        let refused = |done: io::Result<()>| done.err().filter(|e| errno(e) == libc::EACCES).is_some();
        let answers = confined(&wall, || {
            let one = |port: u16| {
                [
                    (Way::Connect, refused(TcpStream::connect(("127.0.0.1", port)).map(drop))),
                    (Way::Bind, refused(TcpListener::bind(("127.0.0.1", port)).map(drop))),
                ]
            };
            ports.iter().map(|port| (*port, one(*port))).collect::<Vec<_>>()
        });
        let setting = setting(&site.places);
        for (port, ways) in answers {
            for (way, refused) in ways {
                let decision = decide::tcp(&policy, &setting, way, SocketFamily::Inet, port);
                prop_assert_eq!(decision.outcome == Outcome::Refused, refused, "{:?} {} {:?}", way, port, decision);
            }
        }
    }
}

/// Strict keeps what was written from being run, by its path and without one.
#[test]
fn strict_runs_nothing_that_the_agent_wrote() {
    let site = Site::new();
    let program = site.path("work/program").display().to_string();
    let run = || std::process::Command::new(&program).status().map(|status| status.success());
    // By the descriptor's path, which needs no AT_EMPTY_PATH: the refusal has to be memfd_create's.
    let in_memory = |flags: u64| {
        let name = c"program";
        let fd = call(libc::SYS_memfd_create, [name.as_ptr() as u64, flags, 0, 0, 0, 0])?;
        let path = CString::new(format!("/proc/thread-self/fd/{fd}")).unwrap();
        let at = [libc::AT_FDCWD as u64, path.as_ptr() as u64];
        let run = call(libc::SYS_execveat, [at[0], at[1], 0, 0, AT_EXECVE_CHECK, 0]);
        call(libc::SYS_close, [fd as u64, 0, 0, 0, 0, 0])?;
        run
    };
    assert!(free(run).unwrap());
    assert_eq!(free(|| in_memory(u64::from(libc::MFD_EXEC))), Ok(0));
    let strict =
        Wall::build(&Policy::parse(casemate_protocol::policy::STRICT).unwrap(), &site.places)
            .unwrap();
    assert_eq!(errno(&confined(&strict, run).unwrap_err()), libc::EACCES);
    for flags in [u64::from(libc::MFD_EXEC), 0] {
        assert_eq!(confined(&strict, || in_memory(flags)), Err(libc::EPERM));
    }
    let sealed = u64::from(libc::MFD_NOEXEC_SEAL);
    assert_ne!(confined(&strict, || in_memory(sealed)), Ok(0));
    let shell = || std::process::Command::new("/bin/sh").args(["-c", "git --version"]).status();
    assert!(confined(&strict, shell).unwrap().success());
}
