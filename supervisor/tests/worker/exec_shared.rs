//! Commands into one session of a worker that hosts several: whose walls they are behind, whose token starts them, what is on
//! record of them.

use std::fs;
use std::net::SocketAddr;

use casemate_audit::{FILE, Found};
use casemate_inside::Attempt;
use casemate_protocol::exec::ExecEnd;
use casemate_protocol::ids::{Generation, Incarnation};
use casemate_protocol::sharing::SessionConfig;
use casemate_protocol::token::{Audience, SigningSecret};
use casemate_protocol::worker::WorkerStatus;
use serde_json::Value;

use crate::exec_client::{Exec, exited, on_terminal, request, sh};
use crate::harness::{Who, call, eventually, example};
use crate::many::{Hosted, Many};
use crate::siblings::is_kept;

fn armed(many: &Many, secret: &str) -> SessionConfig {
    let mut config = many.session();
    config.programs.push(example("inside"));
    config.agent.env.insert("SECRET".into(), secret.into());
    config
}

fn ran(many: &Many, address: SocketAddr, of: &Hosted, script: &str) -> (ExecEnd, String, String) {
    Exec::with(address, &many.token(&of.config, Audience::Exec), &sh(script)).outcome()
}

fn status(many: &Many, address: SocketAddr, of: &Hosted) -> WorkerStatus {
    let token = many.token(&of.config, Audience::Control);
    let (code, body) = call(address, "GET", "/v1/status", Some(&token), "");
    assert_eq!(code, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

/// The command is where its session's agent is, and before another's it stands as that one does: errno by errno.
#[test]
fn a_command_enters_the_walls_of_the_session_that_its_token_names_and_no_others() {
    for who in [Who::Own, Who::User] {
        let many = Many::new(who);
        let (worker, address) = many.serve();
        let mut b = many.hosted_as(address, armed(&many, "sentinel-of-b"));
        let mut a = many.hosted_as(address, armed(&many, "sentinel-of-a"));
        b.shell("echo sentinel-in-b > secret; echo sentinel-in-b > $HOME/secret");
        for (own, other) in [(&a, &b), (&b, &a)] {
            let (end, out, _) = ran(
                &many,
                address,
                own,
                "pwd; echo $HOME $TMPDIR $SECRET; echo x > made && cat made; \
                 env | grep -c sentinel",
            );
            assert_eq!(end, exited(0));
            let place = own.place().display().to_string();
            assert_eq!(out.matches(&place).count(), 3, "{out}");
            assert!(!out.contains(&other.place().display().to_string()), "{out}");
            assert!(out.contains(&own.config.agent.env["SECRET"]), "{out}");
            assert!(out.ends_with("x\n1\n") && own.worktree.join("made").exists(), "{out}");
        }
        // By its known path, as the agent of A would: the same attempts, the same answers.
        let state = many.config.volume.join("state").join(b.config.session.as_str());
        let inside = example("inside").display().to_string();
        let mut tried = 0;
        for path in [
            b.place().join("work/secret"),
            b.place().join("home/secret"),
            state.join("provisioned.json"),
        ] {
            let before = fs::read(&path).unwrap();
            let wanted = request(&[&inside, "files", path.to_str().unwrap()]);
            let token = many.token(&a.config, Audience::Exec);
            let (end, out, err) = Exec::with(address, &token, &wanted).outcome();
            assert_eq!(end, exited(0), "{err}");
            assert!(!out.contains("sentinel-in-b"));
            for line in out.lines().filter(|line| line.starts_with('{')) {
                let attempt: Attempt = serde_json::from_str(line).unwrap();
                assert!(is_kept(&attempt), "{who:?} {}: {attempt:?}", path.display());
                tried += 1;
            }
            assert_eq!(fs::read(&path).unwrap(), before);
        }
        assert_eq!(tried, 3 * 19);
        // What it starts ends with its own session and nothing of another's does.
        let (_, out, _) = ran(&many, address, &a, "setsid sleep 600 >/dev/null 2>&1 & echo $!");
        let daemon: i32 = out.trim().parse().unwrap();
        let (_, out, _) = ran(
            &many,
            address,
            &b,
            &format!("kill -9 {daemon} 2>&1; kill -9 -1 2>/dev/null; echo done"),
        );
        assert!(out.contains("not permitted") && crate::harness::lives(daemon), "{out}");
        assert!(a.shell("echo still here").contains("still here"));
        assert_eq!(many.end(address, &a.config.session, "storage=keep").0, 200);
        assert!(!crate::harness::lives(daemon));
        assert!(b.shell("echo still here").contains("still here"));
        worker.stop();
    }
}

/// Whoever may run commands in A runs none in B, whatever the token is bent to.
#[test]
fn a_token_for_one_session_runs_nothing_in_another() {
    let many = Many::new(Who::User);
    let (worker, address) = many.serve();
    let a = many.hosted(address);
    let b = many.hosted(address);
    let refused = |token: &str| Exec::connect(address, token).err();
    // For its own session, but not for commands.
    for audience in [Audience::Attach, Audience::Control] {
        assert_eq!(refused(&many.token(&b.config, audience)), Some(401), "{audience:?}");
    }
    // The worker's own: it opens no session's door.
    assert_eq!(refused(&many.own_token()), Some(404));
    // Another generation or incarnation of B.
    for (incarnation, generation) in [(1, 0), (1, 2), (2, 1)] {
        let other = SessionConfig {
            incarnation: Incarnation(incarnation),
            generation: Generation(generation),
            ..b.config.clone()
        };
        assert_eq!(refused(&many.token(&other, Audience::Exec)), Some(401));
    }
    // A's signature under B's claims, and another key's.
    let (of_a, of_b) =
        (many.token(&a.config, Audience::Exec), many.token(&b.config, Audience::Exec));
    let parts = |token: &str| -> Vec<String> { token.split('.').map(str::to_owned).collect() };
    let spliced = format!("cm1.{}.{}", parts(&of_b)[1], parts(&of_a)[2]);
    assert_eq!(refused(&spliced), Some(401));
    let foreign = SigningSecret::generate().sign(&many.session_claims(&b.config, Audience::Exec));
    assert_eq!(refused(&foreign), Some(401));
    // With its own it gets behind its own walls, wherever it asks to begin: chdir(2) to a known path is among what leaks.
    fs::write(b.worktree.join("secret"), "sentinel").unwrap();
    let script = "touch made; ls .; cat secret";
    let mut asked = sh(script);
    asked.cwd = Some(b.worktree.clone());
    let (end, out, err) = Exec::with(address, &of_a, &asked).outcome();
    assert_eq!((end, out.as_str()), (exited(1), ""), "{err}");
    assert_eq!(err.matches("Permission denied").count(), 3, "{err}");
    fs::write(a.worktree.join("secret"), "own").unwrap();
    many.hand_over(&a.worktree.join("secret"));
    assert_eq!(Exec::with(address, &of_a, &sh(script)).outcome().0, exited(0));
    assert!(a.worktree.join("made").exists() && !b.worktree.join("made").exists());
    assert!(status(&many, address, &a).commanded && !status(&many, address, &b).commanded);
    // When A is over its token runs nothing anywhere.
    assert_eq!(many.end(address, &a.config.session, "storage=keep").0, 200);
    assert_eq!(refused(&of_a), Some(401));
    worker.stop();
}

/// A command's terminal is out of the machine's devpts here, and its path is told by its number.
#[test]
fn the_terminal_of_a_command_is_out_of_reach_of_another_session() {
    for who in [Who::Own, Who::User] {
        let many = Many::new(who);
        let (worker, address) = many.serve();
        let a = many.hosted(address);
        let mut b = many.hosted(address);
        let token = many.token(&a.config, Audience::Exec);
        let script = "tty; stty -echo; echo ready; read line; echo got:$line";
        let mut exec = Exec::with(address, &token, &on_terminal(script));
        exec.until("ready");
        let terminal = exec.text().lines().next().unwrap().trim().to_owned();
        assert!(terminal.starts_with("/dev/pts/"), "{terminal}");
        let attack = format!(
            "perl -e 'use Fcntl; for my $how (O_RDONLY, O_WRONLY, O_RDWR|O_NOCTTY) {{ \
             print sysopen(my $f, \"{terminal}\", $how) ? \"opened\" : $!+0, \"\\n\" }}'"
        );
        let wanted = "13\n13\n13\n";
        let by_agent = b.shell(&attack);
        assert!(by_agent.starts_with(wanted), "{who:?}: {by_agent}");
        let (_, by_command, _) = ran(&many, address, &b, &attack);
        assert_eq!(by_command, wanted, "{who:?}");
        // Nor through a descriptor of a process that has it open.
        let (_, out, _) = ran(
            &many,
            address,
            &b,
            "for fd in /proc/[0-9]*/fd/*; do case $(readlink $fd) in /dev/pts/*) echo $fd;; esac; done",
        );
        assert_eq!(out, "", "{who:?}");
        // From a terminal of its own it reaches that one.
        let own = on_terminal(&format!("echo mine > /dev/tty; {attack}"));
        let (end, out, _) =
            Exec::with(address, &many.token(&b.config, Audience::Exec), &own).outcome();
        let out = out.replace('\r', "").replace("^D\u{8}\u{8}", "");
        assert_eq!((end, out), (exited(0), format!("mine\n{wanted}")), "{who:?}");
        exec.feed(b"typed by its owner\n");
        assert_eq!(exec.end(), exited(0));
        assert!(exec.text().contains("got:typed by its owner"), "{}", exec.text());
        worker.stop();
    }
}

/// Start, end and refusal, each of its own session; and nothing of what is secret.
#[test]
fn commands_are_on_record_and_no_secret_of_theirs_is() {
    let many = Many::new(Who::User);
    let (worker, address) = many.serve();
    let a = many.hosted_as(address, armed(&many, "canary-of-the-agent"));
    let b = many.hosted(address);
    let token = many.token(&a.config, Audience::Exec);
    let mut asked = sh("echo canary-of-the-arguments $MORE; cat; exit 3");
    asked.env.insert("MORE".into(), "canary-of-the-request".into());
    let mut exec = Exec::with(address, &token, &asked);
    exec.feed(b"canary-of-the-input");
    exec.close_stdin();
    assert_eq!(exec.end(), exited(3));
    assert!(exec.text().contains("canary-of-the-input"));
    let mut absent = request(&["no-such-program"]);
    absent.env.insert("PATH".into(), "/canary/of/the/path".into());
    let (end, ..) = Exec::with(address, &token, &absent).outcome();
    assert!(matches!(end, ExecEnd::NotFound { .. }), "{end:?}");
    assert_eq!(Exec::connect(address, &many.token(&a.config, Audience::Attach)).err(), Some(401));
    let mut left = Exec::with(address, &many.token(&b.config, Audience::Exec), &sh("echo on; cat"));
    left.until("on");
    drop(left);
    eventually("it is ended", || status(&many, address, &b).execs == 0);
    worker.stop();

    let state = many.config.volume.join("state");
    let text = fs::read_to_string(state.join(FILE)).unwrap();
    for secret in ["canary", "cm1.", "cw1.", &token] {
        assert!(!text.contains(secret), "{secret} in\n{text}");
    }
    let lines = casemate_audit::lines(Found::in_directory(&state).unwrap()).unwrap();
    let events: Vec<Value> =
        lines.iter().map(|line| serde_json::from_slice(line).unwrap()).collect();
    let told = |event: &Value| {
        let code = event["metadata"]["event_code"].as_str().unwrap().to_owned();
        let about = &event["unmapped"];
        let of_exec = about["why"] == "exec" || about["endpoint"] == "/v1/exec";
        of_exec.then(|| (code, event["actor"]["session"]["uid"].as_str().map(str::to_owned)))
    };
    let session = |of: &Hosted| Some(of.config.session.to_string());
    assert_eq!(
        events.iter().filter_map(told).collect::<Vec<_>>(),
        [
            ("process.launched".to_owned(), session(&a)),
            ("process.ended".to_owned(), session(&a)),
            ("process.not_launched".to_owned(), session(&a)),
            // Whoever shows a token that does not fit is nobody.
            ("call.refused".to_owned(), None),
            ("process.launched".to_owned(), session(&b)),
            ("process.ended".to_owned(), session(&b)),
        ]
    );
    let first = |code: &str| {
        events
            .iter()
            .find(|event| {
                event["metadata"]["event_code"] == code && event["unmapped"]["why"] != "agent"
            })
            .unwrap()
    };
    assert_eq!(first("process.launched")["unmapped"]["arguments"], 2);
    assert_eq!(first("process.launched")["process"]["name"], "sh");
    assert_eq!(first("process.ended")["exit_code"], 3);
    assert_eq!(first("call.refused")["status_detail"], "token is for another audience");
    let report =
        casemate_audit::verify(Found::in_directory(&state).unwrap(), std::iter::empty()).unwrap();
    assert!(report.holds(), "{report:?}");
}
