//! SIGSTOP: whom an agent can stop, and that what it can, its own, holds nobody else up.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use casemate_protocol::ids::Generation;
use casemate_protocol::tier::Tier;
use casemate_protocol::token::Audience;
use casemate_protocol::worker::{AgentState, Repository};
use nix::unistd::geteuid;

use crate::client::Client;
use crate::git::quiesce;
use crate::harness::{Slot, Who, call, eventually, lives};
use crate::many::{Hosted, Many};

/// Stops each of these processes, and lets it go on; what came of it, or the errno.
const STOPS: &str =
    r#"for (@ARGV) { print "$_ ", kill(STOP => $_) ? "stopped" : $!+0, "\n"; kill(CONT => $_) }"#;

/// A command of the user's who runs the workers.
fn unwalled() -> Command {
    if geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "1000", "--regid", "1000", "--clear-groups"]);
        return command;
    }
    Command::new("env")
}

fn state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ").and_then(|(_, fields)| fields.chars().next())
}

fn agent(many: &Many, address: SocketAddr, hosted: &Hosted) -> i32 {
    let list = many.list(address);
    let found = list.iter().find(|summary| summary.session == hosted.config.session).unwrap();
    let AgentState::Running { pid } = found.agent else { panic!("{:?}", found.agent) };
    pid
}

/// The supervisor, its spawner and porter, another session's agent and command, and the git that clones for a third.
#[test]
fn an_agent_stops_nothing_but_its_own() {
    for who in [Who::Own, Who::User] {
        let many = Many::new(who);
        let (worker, address) = many.serve();
        let (mut a, mut b) = (many.hosted(address), many.hosted(address));
        b.shell("sleep 600 > sleeps 2>&1 < sleeps &");
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut slow = many.session();
        let url = format!("http://localhost:{}/r.git", server.local_addr().unwrap().port());
        slow.repository = Some(Repository::Remote(url));
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| many.begin(address, &slow));
            // The porter's, then git's, which waits from now on.
            drop(server.accept().unwrap());
            let stalled = server.accept().unwrap();
            let own = agent(&many, address, &a);
            let mut victims = vec![worker.pid().as_raw()];
            victims.extend(worker.descendants().into_iter().filter(|pid| *pid != own));
            let name = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
            let names: String = victims.iter().map(name).collect();
            assert!(names.contains("git") && names.contains("sleep"), "{names}");
            assert!(victims.len() >= 7, "{names}");
            let words: Vec<String> = victims.iter().map(i32::to_string).collect();
            // The same user outside of the walls can, so that it is they that refuse it.
            let free = unwalled().args(["perl", "-e", STOPS]).args(&words).output().unwrap();
            let free = String::from_utf8(free.stdout).unwrap();
            assert_eq!(free.matches(" stopped").count(), victims.len(), "{free}");
            let tried = a.shell(&format!("perl -e '{STOPS}' {}", words.join(" ")));
            for pid in &words {
                assert!(tried.lines().any(|line| line == format!("{pid} 1")), "{who:?}: {tried}");
            }
            for pid in victims {
                assert_ne!(state(pid), Some('T'), "{who:?} {pid}\n{names}");
            }
            assert!(b.shell("echo goes on").contains("goes on"));
            drop((stalled, server));
            asked.join().unwrap();
        });
        worker.stop();
    }
}

/// Its agent among it, which then answers nobody.
#[test]
fn a_session_that_stops_all_of_its_own_is_ended_like_any_other() {
    let many = Many::new(Who::User);
    let (worker, address) = many.serve();
    let (mut a, mut b) = (many.hosted(address), many.hosted(address));
    let pid = agent(&many, address, &a);
    a.client.prompt(&a.conversation, "!sh kill -STOP -1");
    eventually("the agent is stopped", || state(pid) == Some('T'));
    assert!(b.shell("echo goes on").contains("goes on"));
    let token = many.token(&a.config, Audience::Control);
    assert_eq!(call(address, "GET", "/v1/status", Some(&token), "").0, 200);
    let (status, body) = many.end(address, &a.config.session, "storage=delete");
    assert_eq!(status, 200, "{body}");
    eventually("nothing of it is left", || !lives(pid));
    assert!(b.shell("echo goes on").contains("goes on"));
    worker.stop();
}

/// What an agent plants in its worktree stops the git that casemate asks about it.
#[test]
fn a_git_that_its_session_stops_is_waited_for_no_longer_than_any() {
    for tier in [Tier::Domain, Tier::Namespace] {
        let mut slot = Slot::new(tier, Who::User);
        let (worker, address) = slot.serve();
        let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
        client.initialize();
        let session = client.new_session();
        client.shell(&session, "git config core.fsmonitor $HOME/monitor; echo a > a");
        let home = slot.session().join("home");
        let monitor = home.join("monitor");
        fs::write(
            &monitor,
            "#!/bin/sh\necho $PPID > $HOME/stopped\nkill -STOP $PPID\nsleep 1000\n",
        )
        .unwrap();
        fs::set_permissions(&monitor, fs::Permissions::from_mode(0o755)).unwrap();
        let began = Instant::now();
        assert_eq!(quiesce(&slot, address), None, "{tier}");
        let took = began.elapsed();
        assert!(home.join("stopped").exists(), "{tier}: nothing was stopped");
        // It gets 10 s, on however slow a machine.
        assert!((Duration::from_secs(9)..Duration::from_secs(30)).contains(&took), "{took:?}");
        let left = worker.descendants().into_iter().find(|pid| state(*pid) == Some('T'));
        assert_eq!(left, None, "{tier}: it was not ended");
        assert_eq!(call(address, "GET", "/healthz", None, "").0, 200);
        worker.stop();
        // Nor does it hold up the next start on the same tree.
        slot.config.generation = Generation(2);
        slot.serve().0.stop();
    }
}
