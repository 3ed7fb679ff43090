//! What of a policy only shows in a process that the spawner started: limits and the kernel's log. Derived from the
//! built-in policies themselves: each rule is taken out once, and something has to change.
#![allow(
    clippy::unwrap_used,
    clippy::exit,
    reason = "a test that cannot go on fails there; a role ends its process"
)]

mod audit;
mod support;

use std::fs;
use std::path::{Path, PathBuf};

use casemate_protocol::policy::decide::Setting;
use casemate_protocol::policy::learn::{Denials, Learned, propose};
use casemate_protocol::policy::{AUDIT, BUILT_IN, DEVELOPER, Policy, Resource};
use casemate_protocol::tier::Tier;
use casemate_sandbox::{Exit, Logging, Places, Step, Wall};
use nix::errno::Errno;
use nix::sys::resource::{Resource as Kernel, getrlimit, setrlimit};

use support::{Session, command, inside, run, temp_dir, this_program, wait_for};

const TESTS: &[support::Test] = &[
    ("no_limit_of_a_built_in_policy_is_idle", limits),
    ("the_flags_for_the_log_reach_the_kernel", flags),
    ("what_a_policy_with_a_log_refuses_is_recorded_and_nothing_else", records),
    ("a_policy_that_is_learned_from_a_run_lets_it_pass_and_no_rule_of_it_is_idle", learned),
];

fn main() {
    support::main(TESTS, agent);
}

/// A session's places below a directory, with this test program as the agent's installation.
fn places(root: &Path) -> Places {
    let places = support::places(root, Tier::Namespace);
    fs::write(root.join("state/key"), "secret").unwrap();
    Places { programs: vec![this_program()], ..places }
}

fn kernel(resource: Resource) -> Kernel {
    match resource {
        Resource::Core => Kernel::RLIMIT_CORE,
        Resource::Nofile => Kernel::RLIMIT_NOFILE,
        other => panic!("a built-in policy limits {other}: add it here"),
    }
}

fn limits() {
    // As an agent would find it without the rule.
    for kind in [Kernel::RLIMIT_CORE, Kernel::RLIMIT_NOFILE] {
        let (_, hard) = getrlimit(kind).unwrap();
        setrlimit(kind, hard, hard).unwrap();
    }
    let s = Session::new();
    let directory = temp_dir();
    let places = places(directory.path());
    for (name, text) in BUILT_IN {
        let policy = Policy::parse(text).unwrap();
        assert!(!policy.rlimits.is_empty(), "{name}");
        for index in 0..policy.rlimits.len() {
            let rule = &policy.rlimits[index];
            let kind = kernel(rule.resource);
            let (_, own) = getrlimit(kind).unwrap();
            if own <= rule.hard.unwrap_or(u64::MAX) && own <= rule.soft.unwrap_or(u64::MAX) {
                println!("SKIP: this machine limits {} to {own} already", rule.resource);
                continue;
            }
            let with = Wall::build(&policy, &places).unwrap();
            let mut without = policy.clone();
            without.rlimits.remove(index);
            let without = Wall::build(&without, &places).unwrap();
            let ask = |wall| run(&s.session, wall, "limit", &[&rule.resource.to_string()]).1;
            let fitted = |limit: Option<u64>| limit.unwrap_or(u64::MAX).min(own);
            let expected = format!("{} {}\n", fitted(rule.soft), fitted(rule.hard));
            assert_eq!(ask(&with), expected, "{name}, line {}", rule.line);
            assert_eq!(ask(&without), format!("{own} {own}\n"), "{name}, line {}", rule.line);
            if rule.resource == Resource::Nofile {
                let open = |wall| run(&s.session, wall, "open-files", &["1100"]).1;
                assert_eq!(open(&with), "EMFILE\n");
                assert_eq!(open(&without), "1100\n");
            }
        }
    }
}

/// A filter around the supervisor answers EDOM to a call with exactly the flags that are expected.
fn flags() {
    for (policy, seen) in [(AUDIT, "audit"), (DEVELOPER, "developer")] {
        for call in ["landlock", "seccomp"] {
            let (program, directory) = (this_program(), temp_dir());
            let root = directory.path().to_str().unwrap().to_owned();
            let output = std::process::Command::new(program)
                .args(["inside", "filtered", seen, call, &root])
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{said} {}", String::from_utf8_lossy(&output.stderr));
            let logging = logging(policy, directory.path());
            // Without `[log]` seccomp(2) gets no flag, and a filter that waits for the flag meets nothing.
            let expected = match (call, logging.filter) {
                ("landlock", _) => "Landlock EDOM",
                (_, 0) => "started",
                _ => "Seccomp EDOM",
            };
            assert_eq!(said.trim(), expected, "{seen} {call}");
        }
    }
}

fn logging(policy: &str, root: &Path) -> Logging {
    let wall = Wall::build(&Policy::parse(policy).unwrap(), &places(root)).unwrap();
    wall.logging()
}

/// A supervisor that starts the policy's agent behind a filter on one call; says at which step it failed.
fn filtered(policy: &str, call: &str, root: &str) {
    let text = if policy == "audit" { AUDIT } else { DEVELOPER };
    let flags = logging(text, Path::new(root));
    let (number, flags) = match call {
        "landlock" => (libc::SYS_landlock_restrict_self, flags.restrict_self),
        _ => (libc::SYS_seccomp, 2),
    };
    casemate_sandbox::reap::adopt_orphans().unwrap();
    refuse(number, flags);
    let spawner = casemate_sandbox::Spawner::start(&[]).unwrap();
    let session = spawner.session().unwrap();
    let wall = Wall::build(&Policy::parse(text).unwrap(), &places(Path::new(root))).unwrap();
    let (command, _output) = inside("nothing", &[]);
    match session.spawn(command, &wall) {
        Ok(pid) => {
            assert_eq!(wait_for(pid), Exit::Code(0));
            println!("started");
        }
        Err(error) => {
            assert!(matches!(error.step, Step::Landlock | Step::Seccomp), "{error}");
            println!("{:?} {:?}", error.step, Errno::from_raw(error.errno()));
        }
    }
    drop(session);
    spawner.end();
}

/// EDOM for a call whose second argument is `flags`.
fn refuse(number: i64, flags: u32) {
    nix::sys::prctl::set_no_new_privs().unwrap();
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let answer = libc::SECCOMP_RET_ERRNO | (Errno::EDOM as i32).cast_unsigned();
    let steps = [
        step(0x20, 0, 0, 0),
        step(0x15, 0, 3, u32::try_from(number).unwrap()),
        // The low half of argument 1.
        step(0x20, 0, 0, 24),
        step(0x15, 0, 1, flags),
        step(0x06, 0, 0, answer),
        step(0x06, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 6, filter: steps.as_ptr().cast_mut() };
    // SAFETY: the header describes a live array of six instructions; the kernel copies them.
    let installed = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
    };
    Errno::result(installed).unwrap();
}

/// Needs the audit socket, so root in the machine's own namespaces; a skip is told.
fn log() -> Option<audit::Log> {
    let log = audit::Log::open();
    if log.is_none() && !support::is_second_run() {
        println!(
            "SKIP: CAP_AUDIT_CONTROL in the machine's own namespaces, for the kernel's audit log"
        );
    }
    log
}

fn records() {
    let Some(mut log) = log() else { return };
    let s = Session::new();
    let directory = temp_dir();
    let places = places(directory.path());
    let key = places.never[0].join("key");
    for (name, text, is_logged) in [("audit", AUDIT, true), ("developer", DEVELOPER, false)] {
        let wall = Wall::build(&Policy::parse(text).unwrap(), &places).unwrap();
        log.drain();
        let (command, _output) = command(
            &this_program(),
            &["agent", "inside", "refused", key.to_str().unwrap()],
            &["PATH=/usr/bin:/bin"],
        );
        let pid = s.session.spawn(command, &wall).unwrap();
        assert_eq!(wait_for(pid), Exit::Code(0));
        let path = format!("path=\"{}\"", key.display());
        let pid = format!("pid={pid} ");
        let is_landlock = |(kind, text): &(u16, String)| {
            *kind == audit::LANDLOCK_ACCESS
                && text.contains("blockers=fs.read_file")
                && text.contains(&path)
        };
        let is_seccomp = |(kind, text): &(u16, String)| {
            *kind == audit::SECCOMP && text.contains(&pid) && text.contains("syscall=")
        };
        let found = log
            .records(|records| (records.iter().any(is_landlock), records.iter().any(is_seccomp)));
        assert_eq!(found, (is_logged, is_logged), "{name}");
        // Between wall and program, as the probe at every start of a worker.
        let answers = s.session.probe(&[PathBuf::from(&key)], &wall).unwrap();
        assert_eq!(answers[0].read_errno, libc::EACCES);
        let probed = log.records(|records| (records.iter().any(is_landlock), true)).0;
        assert_eq!(probed, is_logged, "{name}");
    }
}

/// Runs a job that reads, writes and connects: the errno of each.
fn job(s: &Session, places: &Places, text: &str, arguments: &[String]) -> String {
    let wall = Wall::build(&Policy::parse(text).unwrap(), places).unwrap();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (exit, said) = run(&s.session, &wall, "job", &arguments);
    assert_eq!(exit, Exit::Code(0), "{said}");
    said.trim().to_owned()
}

fn learned() {
    let Some(mut log) = log() else { return };
    let s = Session::new();
    let directory = temp_dir();
    let places = places(directory.path());
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let extra = directory.path().join("extra");
    fs::create_dir(&extra).unwrap();
    let [read, written] = ["read", "written"].map(|name| extra.join(name));
    fs::write(&read, "").unwrap();
    fs::write(&written, "").unwrap();
    let arguments = [&read, &written].map(|path| path.display().to_string());
    let [read, written] = arguments.clone();
    let arguments = [read.clone(), written.clone(), port.to_string()];
    log.drain();
    assert_eq!(job(&s, &places, AUDIT, &arguments), "13 13 13");
    let ours = |text: &&(u16, String)| {
        text.0 == audit::LANDLOCK_ACCESS
            && [read.clone(), written.clone(), format!("dest={port}")]
                .iter()
                .any(|part| text.1.contains(part.as_str()))
    };
    let mut denials = Denials::default();
    let taken = std::cell::RefCell::new(Vec::new());
    log.records(|records| {
        *taken.borrow_mut() = records.iter().filter(ours).cloned().collect();
        let enough = taken.borrow().len() >= 3;
        (enough, enough)
    });
    for (kind, text) in taken.borrow().iter() {
        denials.take(&format!("type={kind} msg={text}"));
    }
    let policy = Policy::parse(AUDIT).unwrap();
    let setting = Setting {
        tier: places.tier,
        ports: Some(places.ports),
        connect: Some(Vec::new()),
        ..Setting::symbolic(&policy)
    };
    let proposal = propose(&policy, &setting, &denials, &str::to_owned, &|_| None);
    assert_eq!(
        (proposal.rules.len(), proposal.kept_out.len()),
        (3, 0),
        "{proposal:#?} {denials:#?}"
    );
    let with = |rules: &mut dyn Iterator<Item = &Learned>| {
        rules.fold(AUDIT.to_owned(), |policy, rule| format!("{policy}\n{}", rule.text))
    };
    assert_eq!(job(&s, &places, &with(&mut proposal.rules.iter()), &arguments), "0 0 0");
    for left_out in &proposal.rules {
        let text = with(&mut proposal.rules.iter().filter(|rule| *rule != left_out));
        let said = job(&s, &places, &text, &arguments);
        assert_eq!(said.matches("13").count(), 1, "{said} without {left_out:?}");
    }
}

// === the agent ===

fn agent(verb: &str, arguments: &[String]) {
    match verb {
        "nothing" => {}
        "filtered" => filtered(&arguments[0], &arguments[1], &arguments[2]),
        "limit" => {
            let resource =
                Resource::ALL.into_iter().find(|known| known.to_string() == arguments[0]).unwrap();
            let (soft, hard) = getrlimit(kernel(resource)).unwrap();
            println!("{soft} {hard}");
        }
        "open-files" => {
            let wanted: usize = arguments[0].parse().unwrap();
            let files: Result<Vec<_>, _> =
                (0..wanted).map(|_| fs::File::open("/dev/null")).collect();
            match files {
                Ok(files) => println!("{}", files.len()),
                Err(error) => println!("{:?}", Errno::from_raw(error.raw_os_error().unwrap())),
            }
        }
        "refused" => {
            let opened = fs::File::open(&arguments[0]).map(drop).unwrap_err();
            assert_eq!(opened.raw_os_error(), Some(libc::EACCES));
            // SAFETY: a null pointer and zeros; the wall refuses it before anything is looked at.
            let called = unsafe { libc::syscall(libc::SYS_bpf, 0, 0, 0) };
            assert_eq!(Errno::result(called), Err(Errno::EPERM));
        }
        "job" => {
            let errno = |done: std::io::Result<()>| {
                done.err().map_or(0, |error| error.raw_os_error().unwrap())
            };
            let port: u16 = arguments[2].parse().unwrap();
            println!(
                "{} {} {}",
                errno(fs::File::open(&arguments[0]).map(drop)),
                errno(fs::File::options().append(true).open(&arguments[1]).map(drop)),
                errno(std::net::TcpStream::connect(("127.0.0.1", port)).map(drop)),
            );
        }
        other => panic!("no verb {other}"),
    }
}
