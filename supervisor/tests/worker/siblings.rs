//! One session against another of the same user in the same worker: what the kernel refuses, what leaks, what ends what.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use casemate_inside::{Attempt, SUCCEEDED, backwards};
use casemate_protocol::matrix::Verdict;
use casemate_protocol::sharing::SessionConfig;
use casemate_protocol::token::Audience;
use casemate_protocol::worker::{AgentState, Repository, StartError, StartEvent, WorkerStatus};
use casemate_supervisor::probe::range::PREFIX;

use crate::client::Client;
use crate::harness::{Who, Worker, call, eventually, example, lives};
use crate::many::{Hosted, Many};

/// A worker, the attacker and the victim.
struct Pair {
    many: Many,
    worker: Worker,
    address: SocketAddr,
    a: Hosted,
    b: Hosted,
}

fn pair(who: Who) -> Pair {
    let many = Many::new(who);
    let (worker, address) = many.serve();
    // The victim first: what the attacker may not inherit is there when it starts.
    let b = many.hosted_as(address, armed(&many, "sentinel-of-b"));
    let a = many.hosted_as(address, armed(&many, "sentinel-of-a"));
    Pair { many, worker, address, a, b }
}

fn armed(many: &Many, secret: &str) -> SessionConfig {
    let mut config = many.session();
    config.programs.push(example("inside"));
    config.agent.env.insert("SECRET".into(), secret.into());
    config
}

impl Pair {
    fn attack(&mut self, verb: &str) -> Vec<Attempt> {
        let said = self.a.shell(&format!("{} {verb}; true", example("inside").display()));
        let attempts: Vec<Attempt> =
            said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        assert!(!attempts.is_empty(), "{verb}: {said}");
        attempts
    }

    fn agent(&self, hosted: &Hosted) -> i32 {
        let list = self.many.list(self.address);
        let found = list.iter().find(|summary| summary.session == hosted.config.session).unwrap();
        match found.agent {
            AgentState::Running { pid } => pid,
            ref other => panic!("{other:?}"),
        }
    }
}

/// What a wall is found to be is told of no session whose wall is built from something else: here a folder of the machine's
/// among the programs, which opens it.
#[test]
fn a_session_with_other_programs_gets_a_measurement_of_its_own() {
    let many = Many::new(Who::Own);
    let (worker, address) = many.serve();
    let open = |hosted: &Hosted| {
        let token = many.token(&hosted.config, Audience::Control);
        let (code, body) = call(address, "GET", "/v1/status", Some(&token), "");
        assert_eq!(code, 200, "{body}");
        let matrix = serde_json::from_str::<WorkerStatus>(&body).unwrap().matrix.unwrap();
        matrix.named(Verdict::Open).map(str::to_owned).collect::<Vec<_>>()
    };
    let first = many.hosted(address);
    assert_eq!(open(&first), Vec::<String>::new());
    let mut config = many.session();
    config.programs.push("/sys/module".into());
    let second = many.hosted_as(address, config);
    assert_eq!(open(&second), ["sys-modules"]);
    let third = many.hosted(address);
    assert_eq!(open(&third), Vec::<String>::new());
    worker.stop();
}

/// The number that a command printed first.
fn number(said: &str) -> i32 {
    said.lines().next().and_then(|line| line.parse().ok()).unwrap_or_else(|| panic!("{said}"))
}

/// What Landlock lets through on a path that is known, in tier `domain` (SECURITY.md lists it).
const LEAKS: [&str; 5] = ["stat", "watch its folder", "set an attribute", "set its times", "chmod"];

/// Whether an attack on another session's file, by its path, was answered as tier `domain` promises.
pub(crate) fn is_kept(Attempt { attack, outcome, .. }: &Attempt) -> bool {
    match attack.as_str() {
        leak if LEAKS.contains(&leak) => outcome == SUCCEEDED,
        "read through a hard link" | "move it away" | "replace by a symlink" => {
            ["EXDEV", "EACCES", "EPERM"].contains(&outcome.as_str())
        }
        _ => outcome == "EACCES",
    }
}

#[test]
fn nothing_of_another_session_is_read_written_listed_run_or_moved_by_its_path() {
    for who in [Who::Own, Who::User] {
        let mut pair = pair(who);
        pair.b.shell(
            "echo secret > secret; echo secret > $HOME/secret; echo secret > $TMPDIR/secret",
        );
        let state = pair.many.config.volume.join("state").join(pair.b.config.session.as_str());
        let place = pair.b.place();
        let mut tried = 0;
        for path in [
            place.join("work/secret"),
            place.join("work/.git/config"),
            place.join("home/secret"),
            place.join("scratch/secret"),
            state.join("provisioned.json"),
            state.join("place"),
        ] {
            let before = fs::read(&path).unwrap();
            for attempt in pair.attack(&format!("files {}", path.display())) {
                assert!(is_kept(&attempt), "{who:?} {}: {attempt:?}", path.display());
                tried += 1;
            }
            assert_eq!(fs::read(&path).unwrap(), before);
        }
        assert_eq!(tried, 6 * 19);
        pair.worker.stop();
    }
}

/// The path that would have to be known is nowhere to be read: no list shows it, no command line, no socket, no mount.
#[test]
fn the_place_of_another_session_is_not_to_be_learned() {
    let mut pair = pair(Who::User);
    // While one is being made, its git commands are there to be seen.
    let source = pair.many.root().join("source");
    let script = "git init -q . && seq 20000 | split -l 10 - file && git add . && \
                  git -c user.name=n -c user.email=e commit -q -m one";
    fs::create_dir(&source).unwrap();
    let made = Command::new("sh").args(["-c", script]).current_dir(&source).status().unwrap();
    assert!(made.success());
    pair.many.hand_over(&source);
    let watch = "while [ ! -e stop ]; do cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '; echo; done > seen; \
                 cat /proc/net/unix /proc/self/mountinfo >> seen; ls -R .. ../.. >> seen 2>&1; echo watched";
    let prompt = pair.a.client.prompt(&pair.a.conversation, &format!("!sh {watch}"));
    eventually("it watches", || pair.a.worktree.join("seen").exists());
    let mut config = armed(&pair.many, "x");
    config.repository = Some(Repository::Local(source.join(".git")));
    let c = pair.many.hosted_as(pair.address, config);
    fs::write(pair.a.worktree.join("stop"), "").unwrap();
    let (_, updates) = pair.a.client.answer(prompt);
    assert!(crate::client::text_of(&updates).contains("watched"));
    let seen = fs::read_to_string(pair.a.worktree.join("seen")).unwrap();
    assert!(seen.contains("clone --quiet"), "no git was seen: the test looked too late");
    for other in [&pair.b, &c] {
        let place = other.place();
        let name = place.file_name().unwrap().to_str().unwrap();
        // Only the line: command lines of a whole machine are no test's to print.
        assert_eq!(seen.lines().find(|line| line.contains(name)).map(str::len), None);
        assert!(!name.contains(&other.config.session.as_str()[2..]));
    }
    let own = pair.a.place();
    assert!(!seen.contains("of-b") && own.exists());
    pair.worker.stop();
}

/// A live agent that knew where the decoys of a new policy's probe lie could close them, and the wall would look better than
/// it is. What does leak is tried as well: SECURITY.md names it.
#[test]
fn the_decoys_of_a_probe_are_not_to_be_learned_and_the_places_of_later_sessions_are() {
    let mut pair = pair(Who::User);
    let program = example("inside").display().to_string();
    let volume = pair.many.config.volume.display().to_string();
    let watch = format!(
        "for name in run sessions; do {program} watch {volume}/$name stop > $name.names & done; \
         while [ ! -e stop ]; do cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '; echo; done > seen; wait; echo watched"
    );
    let prompt = pair.a.client.prompt(&pair.a.conversation, &format!("!sh {watch}"));
    let names = |name: &str| {
        fs::read_to_string(pair.a.worktree.join(format!("{name}.names"))).unwrap_or_default()
    };
    eventually("it watches", || {
        pair.a.worktree.join("seen").exists()
            && ["run", "sessions"].iter().all(|name| names(name).contains(SUCCEEDED))
    });
    // A policy of its own, so that its wall is tried.
    let mut config = armed(&pair.many, "x");
    config.policy +=
        "\n[[path]]\npath = \"/usr/share\"\naccess = [\"read\"]\nreason = \"another policy\"\n";
    let c = pair.many.hosted_as(pair.address, config);
    fs::write(pair.a.worktree.join("stop"), "").unwrap();
    let (_, updates) = pair.a.client.answer(prompt);
    assert!(crate::client::text_of(&updates).contains("watched"));
    let seen = fs::read_to_string(pair.a.worktree.join("seen")).unwrap();
    assert!(seen.contains("probe attack"), "no attacker was seen: the test looked too late");
    // With the beginning of its random part: compilers of this machine say the word alone.
    let decoy = format!("{PREFIX}p-");
    for text in [&seen, &names("run")] {
        // The word says whose decoy it is: another worker of this machine may have an older program.
        assert_eq!(text.split_whitespace().find(|word| word.contains(&decoy)), None);
    }
    let place = c.place();
    assert!(names("sessions").contains(place.file_name().unwrap().to_str().unwrap()));
    pair.worker.stop();
}

#[test]
fn no_process_of_another_session_is_signalled_traced_limited_or_looked_into() {
    for who in [Who::Own, Who::User] {
        let mut pair = pair(who);
        let victim = pair.agent(&pair.b);
        let mark = backwards("scripted-agent");
        let mut tried = 0;
        for verb in [format!("process {victim} {mark}"), format!("procfs {victim} {mark}")] {
            for Attempt { attack, outcome, .. } in pair.attack(&verb) {
                let fits = match attack.as_str() {
                    // Command line and status are everybody's (hidepid is the machine's to set).
                    "find by its number"
                    | "open /proc/PID/cmdline"
                    | "open /proc/PID/status"
                    | "list /proc/PID/fd" => true,
                    _ => ["EPERM", "EACCES"].contains(&outcome.as_str()),
                };
                assert!(fits, "{who:?} {attack}: {outcome}");
                tried += 1;
            }
        }
        assert!(tried >= 18, "{tried}");
        let environ =
            pair.a.shell(&format!("cat /proc/{victim}/environ /proc/[0-9]*/environ; env"));
        assert!(
            environ.contains("sentinel-of-a") && !environ.contains("sentinel-of-b"),
            "{environ}"
        );
        assert!(lives(victim));
        pair.worker.stop();
    }
}

#[test]
fn neither_the_ports_of_another_session_nor_the_door_nor_its_sockets_are_reached() {
    let mut pair = pair(Who::Own);
    let ports = pair.b.shell("echo ${CASEMATE_PORTS%-*}");
    let port = u16::try_from(number(&ports)).unwrap();
    let said = pair.b.client.turn(&pair.b.conversation, &format!("!listen {port}")).1;
    assert!(said.contains("listening"), "{said}");
    let connect =
        |port: u16| format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port} && echo REACHED' 2>&1");
    assert!(pair.b.shell(&connect(port)).contains("REACHED"));
    for port in [port, pair.address.port()] {
        let said = pair.a.shell(&connect(port));
        assert!(said.contains("Permission denied"), "{port}: {said}");
        for Attempt { attack, outcome, .. } in pair.attack(&format!("listen {port}")) {
            assert_ne!(outcome, SUCCEEDED, "{attack} {port}");
        }
    }
    let path = pair.b.place().join("scratch/socket");
    let socket = UnixListener::bind(&path).unwrap();
    socket.set_nonblocking(true).unwrap();
    for Attempt { attack, outcome, .. } in pair.attack(&format!("socket {}", path.display())) {
        assert_ne!(outcome, SUCCEEDED, "{attack}");
    }
    assert!(socket.accept().is_err());
    pair.worker.stop();
}

#[test]
fn a_session_that_names_a_port_of_another_or_the_door_is_refused() {
    let many = Many::new(Who::Own);
    let (worker, address) = many.serve();
    let mut b = many.hosted(address);
    let port = u16::try_from(number(&b.shell("echo ${CASEMATE_PORTS%-*}"))).unwrap();
    for port in [port - 1, port, address.port()] {
        let event = many.begin(address, &SessionConfig { connect: vec![port], ..many.session() });
        let refused = matches!(&event, StartEvent::Failed { error: StartError::Policy { message } }
            if message.contains(&port.to_string()));
        assert!(refused, "{port}: {event:?}");
    }
    worker.stop();
}

/// The directories that sessions have above them are their user's, so each of their agents can close them (SECURITY.md).
#[test]
fn directories_that_one_session_closes_above_all_are_opened_again() {
    let mut pair = pair(Who::User);
    let sessions = pair.b.place().parent().unwrap().to_owned();
    let volume = pair.many.config.volume.clone();
    let close = format!("chmod 0 {} {} && echo closed", sessions.display(), volume.display());
    assert!(pair.a.shell(&close).contains("closed"));
    eventually("they are open again", || {
        let mode = |path| fs::metadata(path).map_or(0, |meta| meta.permissions().mode() & 0o700);
        mode(&volume) == 0o700 && mode(&sessions) == 0o700
    });
    assert!(pair.b.shell("ls $HOME > /dev/null && echo in").contains("in"));
    pair.worker.stop();
}

/// By an access list, as setfacl(1) puts it: the owner nothing, uid 65534 everything.
#[test]
fn an_access_list_above_all_sessions_is_taken_away() {
    let mut pair = pair(Who::User);
    let volume = pair.many.config.volume.clone();
    let list =
        b"\x02\0\0\0\x01\0\0\0\xff\xff\xff\xff\x02\0\x07\0\xfe\xff\0\0\x04\0\0\0\xff\xff\xff\xff\
        \x10\0\x07\0\xff\xff\xff\xff\x20\0\0\0\xff\xff\xff\xff";
    let names = ["system.posix_acl_access", "system.posix_acl_default"];
    let ours = ["sessions", "state"].map(|name| volume.join(name));
    for (path, name) in ours.iter().flat_map(|path| names.map(|name| (path, name))) {
        match rustix::fs::setxattr(path, name, list, rustix::fs::XattrFlags::empty()) {
            Err(rustix::io::Errno::OPNOTSUPP) => {
                println!("SKIP: no access lists on the file system of temporary files");
                pair.worker.stop();
                return;
            }
            put => put.unwrap(),
        }
    }
    let has =
        |path: &Path, name: &str| rustix::fs::getxattr(path, name, &mut [0_u8; 256][..]).is_ok();
    eventually("the lists are gone and the modes right", || {
        ours.iter().all(|path| {
            let mode = fs::metadata(path).map_or(0, |meta| meta.permissions().mode() & 0o777);
            mode == 0o700 && !names.iter().any(|name| has(path, name))
        })
    });
    assert!(pair.b.shell("ls $HOME > /dev/null && echo in").contains("in"));
    pair.worker.stop();
}

#[test]
fn no_descriptor_of_the_supervisor_or_of_another_session_is_inherited() {
    let mut pair = pair(Who::Own);
    for place in ["self", "$PPID"] {
        let open = pair.a.shell(&format!("ls -l /proc/{place}/fd"));
        let open: Vec<&str> = open.lines().filter(|line| line.contains("->")).collect();
        assert!(open.len() >= 3, "{open:?}");
        let ours = |line: &&str| {
            line.contains("pipe:") || line.contains("/dev/null") || line.contains("/proc/")
        };
        let strange: Vec<&&str> = open.iter().filter(|line| !ours(line)).collect();
        assert!(strange.is_empty(), "{place}: {open:?}");
        assert!(open.len() <= 8, "{place}: {open:?}");
    }
    pair.worker.stop();
}

#[test]
fn what_ends_one_session_ends_nothing_of_another() {
    let long = "!sh sleep 4; echo to the end";
    // kill(-1) by the attacker, its agent's own crash, and the end that its owner orders.
    for way in ["kill -9 -1", "kill -9 $PPID", ""] {
        let mut pair = pair(Who::User);
        let victim = pair.agent(&pair.b);
        let attacker = pair.agent(&pair.a);
        let turn = pair.b.client.prompt(&pair.b.conversation, long);
        let daemon = pair.a.shell("setsid sleep 600 >/dev/null 2>&1 & echo $!");
        let daemon = number(&daemon);
        if way.is_empty() {
            let how = "storage=delete";
            assert_eq!(pair.many.end(pair.address, &pair.a.config.session, how).0, 200);
        } else {
            pair.a.client.prompt(&pair.a.conversation, &format!("!sh {way}"));
        }
        eventually("the session is over", || pair.many.list(pair.address).len() == 1);
        assert!(!lives(attacker) && !lives(daemon), "{way}");
        let (answer, updates) = pair.b.client.answer(turn);
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{way}: {answer}");
        assert!(crate::client::text_of(&updates).contains("to the end"));
        assert!(lives(victim) && pair.agent(&pair.b) == victim);
        pair.worker.stop();
    }
}

/// A session's own stop, by its own token, is its own.
#[test]
fn a_sessions_stop_is_not_the_workers() {
    let mut pair = pair(Who::Own);
    let token = pair.many.token(&pair.a.config, Audience::Control);
    let stop = r#"{"reason":"idle"}"#;
    assert_eq!(call(pair.address, "POST", "/v1/stop", Some(&token), stop).0, 202);
    eventually("the session is over", || pair.many.list(pair.address).len() == 1);
    assert!(pair.b.shell("echo still here").contains("still here"));
    assert_eq!(call(pair.address, "POST", "/v1/stop", Some(&token), stop).0, 401);
    pair.worker.stop();
}

/// Processes, threads and descriptors of the supervisor and of what it started: (pid, threads) each, descriptors in all.
fn held(worker: &Worker) -> (BTreeMap<i32, usize>, usize) {
    let pids = std::iter::once(worker.pid().as_raw()).chain(worker.descendants());
    let count = |pid: i32, what: &str| {
        fs::read_dir(format!("/proc/{pid}/{what}")).map_or(0, Iterator::count)
    };
    let mut threads = BTreeMap::new();
    let mut descriptors = 0;
    for pid in pids.filter(|pid| lives(*pid)) {
        threads.insert(pid, count(pid, "task"));
        descriptors += count(pid, "fd");
    }
    (threads, descriptors)
}

#[test]
fn twenty_sessions_five_times_over_leave_no_process_thread_or_descriptor() {
    let many = Many::new(Who::Own);
    let (worker, address) = many.serve();
    let round = || {
        let sessions: Vec<SessionConfig> = (0..20).map(|_| many.session()).collect();
        std::thread::scope(|scope| {
            for some in sessions.chunks(5) {
                let many = &many;
                scope.spawn(move || {
                    for config in some {
                        let mut hosted = many.hosted_as(address, config.clone());
                        hosted.shell("setsid sleep 600 >/dev/null 2>&1 & true");
                    }
                });
            }
        });
        assert_eq!(many.list(address).len(), 20);
        for config in &sessions {
            let ended = many.end(address, &config.session, "storage=delete");
            assert_eq!(ended.0, 200, "{ended:?}");
        }
    };
    // What is made once stays: the first look is after a first session.
    let first = many.hosted(address);
    assert_eq!(many.end(address, &first.config.session, "storage=delete").0, 200);
    drop(first);
    let settled = std::cell::RefCell::new(held(&worker));
    // Threads that did a session's slow work leave 10 s after it. What stays: supervisor, spawner and porter.
    eventually("the worker settles", || {
        let now = held(&worker);
        now.0.values().sum::<usize>() == 3 && settled.replace(now.clone()) == now
    });
    let before = settled.into_inner();
    for _ in 0..5 {
        round();
    }
    eventually(&format!("as before: {before:?}"), || held(&worker) == before);
    let left: Vec<_> = fs::read_dir(many.config.volume.join("state"))
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
        .filter(|name| name.starts_with("s-"))
        .collect();
    assert_eq!((many.count("sessions"), left), (0, Vec::new()));
    assert!(Client::attach(address, "none").is_err());
    worker.stop();
}
