//! Commands beside the agent: streams, terminals, ends.

use std::fs;
use std::time::Duration;

use casemate_protocol::exec::{ExecEnd, ExecRequest, WINDOW, channel};
use casemate_protocol::tier::Tier;
use casemate_protocol::token::Audience;
use casemate_protocol::worker::{Activity, AgentState, Quiesce};
use sha2::{Digest as _, Sha256};
use tokio_tungstenite::tungstenite::Message;

use crate::client::Client;
use crate::exec_client::{Exec, exited, on_terminal, ran, request, sh};
use crate::harness::{ALL, Slot, Who, call, eventually, example, lives};

const BOTH: [Tier; 2] = [Tier::Domain, Tier::Namespace];

#[test]
fn a_commands_code_output_and_errors_come_back() {
    for (tier, who) in ALL {
        let slot = Slot::new(tier, who);
        let (worker, address) = slot.serve();
        let (end, out, err) = ran(&slot, address, &sh("echo out; echo err >&2; exit 3"));
        assert_eq!(
            (end, out.as_str(), err.as_str()),
            (exited(3), "out\n", "err\n"),
            "{tier} {who:?}"
        );
        let (end, ..) = ran(&slot, address, &sh("kill -9 $$"));
        assert_eq!(end, ExecEnd::Exited { code: 137, signal: Some(9) });
        assert_eq!(ran(&slot, address, &request(&["true"])).0, exited(0));
        let (end, ..) = ran(&slot, address, &request(&["no-such-program"]));
        assert!(
            matches!(&end, ExecEnd::NotFound { message } if message.contains("/usr/bin/no-such"))
        );
        assert_eq!(end.exit_code(), 127);
        for closed in ["/etc/passwd", "/"] {
            let (end, ..) = ran(&slot, address, &request(&[closed]));
            assert!(
                matches!(end, ExecEnd::NotRunnable { .. }) && end.exit_code() == 126,
                "{end:?}"
            );
        }
        let nowhere = ExecRequest { cwd: Some("no/such".into()), ..sh("true") };
        let (end, ..) = ran(&slot, address, &nowhere);
        assert!(
            matches!(&end, ExecEnd::NotRunnable { message } if message.contains("working directory"))
        );
        worker.stop();
    }
}

/// A program that the supervisor finds first and the session may not run does not hide the one behind it.
#[test]
fn a_program_is_found_as_the_session_sees_it() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let outside = slot.root.path().join("outside");
    fs::create_dir_all(&outside).unwrap();
    fs::copy("/bin/true", outside.join("id")).unwrap();
    let (worker, address) = slot.serve();
    let mut asked = request(&["id", "-u"]);
    asked.env.insert("PATH".into(), format!("{}:/usr/bin", outside.display()));
    let (end, out, err) = ran(&slot, address, &asked);
    assert_eq!((end, out.as_str()), (exited(0), "1000\n"), "{err}");
    asked.env.insert("PATH".into(), outside.display().to_string());
    assert!(matches!(ran(&slot, address, &asked).0, ExecEnd::NotRunnable { .. }));
    worker.stop();
}

#[test]
fn it_has_the_agents_environment_and_place_and_what_is_added() {
    for tier in BOTH {
        let mut slot = Slot::new(tier, Who::User);
        slot.config.agent.env.insert("HANDED".into(), "over".into());
        let (worker, address) = slot.serve();
        let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
        client.initialize();
        let session = client.new_session();
        let lines = |text: &str| {
            // What a shell and the scripted agent add themselves.
            let own = ["PWD=", "OLDPWD=", "SHLVL=", "_=", "[exit"];
            let mut lines: Vec<String> = text
                .lines()
                .filter(|line| line.contains('=') && !own.iter().any(|name| line.starts_with(name)))
                .map(str::to_owned)
                .collect();
            lines.sort();
            lines
        };
        let agents = lines(&client.shell(&session, "env"));
        let (_, out, _) = ran(&slot, address, &sh("env"));
        assert_eq!(lines(&out), agents, "{tier}");
        assert!(out.contains("HANDED=over") && out.contains("CASEMATE_SESSION="));
        let mut added = sh("echo $MORE $HANDED; pwd");
        added.env = [("MORE", "more"), ("HANDED", "other")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let (_, out, _) = ran(&slot, address, &added);
        let agents_place = client.shell(&session, "pwd");
        let place = agents_place.lines().next().unwrap();
        assert_eq!(out, format!("more other\n{place}\n"));
        let (_, out, _) = ran(&slot, address, &sh("mkdir -p below && echo made"));
        assert_eq!(out, "made\n");
        let below = ExecRequest { cwd: Some("below".into()), ..sh("pwd") };
        assert_eq!(ran(&slot, address, &below).1, format!("{place}/below\n"));
        worker.stop();
    }
}

#[test]
fn fifty_megabytes_pass_unchanged_in_both_directions() {
    let slot = Slot::new(Tier::Namespace, Who::User);
    let (worker, address) = slot.serve();
    // In no power of two.
    let data: Vec<u8> = (0..50_000_000_u32).map(|n| (n % 251).to_le_bytes()[0]).collect();
    let hash = |bytes: &[u8]| {
        Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let mut exec = Exec::start(&slot, address, &sh("cat | sha256sum"));
    exec.feed(&data);
    exec.close_stdin();
    assert_eq!(exec.end(), exited(0));
    assert_eq!(exec.text(), format!("{}  -\n", hash(&data)));
    let mut exec = Exec::start(&slot, address, &request(&["cat"]));
    exec.feed(&data);
    exec.close_stdin();
    assert_eq!(exec.end(), exited(0));
    assert!(exec.stdout == data && exec.closed.contains(&channel::STDOUT));
    let (end, out, err) = ran(&slot, address, &sh("head -c 20000000 /dev/zero >&2; echo done"));
    assert_eq!((end, out.as_str(), err.len()), (exited(0), "done\n", 20_000_000));
    worker.stop();
}

#[test]
fn a_client_that_takes_nothing_stops_the_command_and_nothing_grows() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let (worker, address) = slot.serve();
    let before = resident(worker.pid().as_raw());
    let mut slow = Exec::start(&slot, address, &sh("head -c 200000000 /dev/zero; echo wrote >&2"));
    slow.takes = false;
    while slow.stdout.len() < usize::try_from(WINDOW).unwrap() {
        assert_eq!(slow.next(), None);
    }
    assert!(slow.is_quiet(Duration::from_millis(300)) && slow.stderr.is_empty());
    assert_eq!(slow.stdout.len() as u64, WINDOW);
    // Others go on beside it.
    assert_eq!(ran(&slot, address, &sh("echo still")).1, "still\n");
    let grown = resident(worker.pid().as_raw()).saturating_sub(before);
    assert!(grown < 16 * 1024, "{grown} KiB");
    slow.takes = true;
    slow.send(Message::binary(casemate_protocol::exec::taken(channel::STDOUT, WINDOW)));
    assert_eq!(slow.end(), exited(0));
    assert_eq!((slow.stdout.len(), slow.stderr.as_slice()), (200_000_000, b"wrote\n".as_slice()));
    worker.stop();
}

#[test]
fn a_command_that_reads_nothing_still_hears_signals_and_the_hang_up() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let (worker, address) = slot.serve();
    let mut exec = Exec::start(
        &slot,
        address,
        &sh("trap 'echo caught; exit 5' INT; echo on; while :; do sleep 0.05; done"),
    );
    exec.until("on");
    let whole = vec![b'x'; exec.room()];
    exec.feed(&whole);
    exec.say(channel::SIGNAL, b"INT");
    exec.until("caught");
    assert_eq!(exec.end(), exited(5));
    // More than there is room for is refused.
    let mut exec = Exec::start(&slot, address, &sh("sleep 600"));
    for _ in 0..40 {
        exec.say(channel::STDIN, &[b'x'; 60_000]);
    }
    assert_eq!(exec.close_code(), Some(1002));
    eventually("the command of a client that broke the protocol ends", || {
        slot.status(address).execs == 0
    });
    worker.stop();
}

fn resident(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_terminal_has_a_size_a_name_a_foreground_and_no_other_session_in_it() {
    for (tier, who) in ALL {
        let slot = Slot::new(tier, who);
        let (worker, address) = slot.serve();
        let script = "stty size; tty; test -t 0 && test -t 1 && test -t 2 && echo all; echo hi >/dev/tty; \
                      trap 'stty size; exit 7' WINCH; echo ready; while :; do sleep 0.05; done";
        let mut exec = Exec::start(&slot, address, &on_terminal(script));
        exec.until("ready");
        let said = exec.text();
        assert!(said.starts_with("25 90\r\n/dev/pts/"), "{tier} {who:?}: {said}");
        assert!(said.contains("all\r\nhi\r\n"), "{tier} {who:?}: {said}");
        exec.say(channel::RESIZE, br#"{"Width":132,"Height":43}"#);
        assert_eq!(exec.end(), exited(7), "{tier} {who:?}");
        assert!(exec.text().ends_with("43 132\r\n") && exec.stderr.is_empty(), "{}", exec.text());
        // Ctrl-C is the terminal's to turn into a signal.
        let mut exec =
            Exec::start(&slot, address, &on_terminal("echo on; while :; do sleep 0.1; done"));
        exec.until("on");
        exec.feed(b"\x03");
        assert_eq!(exec.end().exit_code(), 130, "{tier} {who:?}");
        // The end of input is ^D.
        let mut exec = Exec::start(&slot, address, &on_terminal("cat"));
        exec.feed(b"line\n");
        exec.close_stdin();
        assert_eq!(exec.end(), exited(0));
        assert!(exec.text().contains("line\r\nline\r\n"), "{}", exec.text());
        worker.stop();
    }
}

/// TIOCSTI would type into the terminal whose other end a person reads.
#[test]
fn nothing_can_be_typed_into_its_terminal_from_inside() {
    for tier in BOTH {
        let slot = Slot::new(tier, Who::User);
        let (worker, address) = slot.serve();
        let attack = "perl -e 'for my $n (0x5412, 0x541c) { my $c = \"\\x03x\"; \
                      print ioctl(STDIN, $n, $c) ? \"typed\" : $!+0, \"\\n\" }'";
        let (end, out, _) = ran(&slot, address, &on_terminal(attack));
        assert_eq!(
            (end, out.replace('\r', "").replace("^D\u{8}\u{8}", "")),
            (exited(0), "1\n1\n".into()),
            "{tier}"
        );
        worker.stop();
    }
}

#[test]
fn a_time_out_ends_its_whole_group_and_says_so() {
    for tier in BOTH {
        let mut slot = Slot::new(tier, Who::User);
        slot.config.grace = 1;
        let (worker, address) = slot.serve();
        let limited = |script: &str| ExecRequest { timeout_ms: Some(300), ..sh(script) };
        let before = worker.descendants().len();
        // One that obeys has its last words relayed; one that does not is killed, and a job of its own group with it.
        let mut exec = Exec::start(
            &slot,
            address,
            &limited("trap 'echo last; exit 0' TERM; echo on; while :; do sleep 0.05; done"),
        );
        assert_eq!((exec.end(), exec.text().as_str()), (ExecEnd::TimedOut, "on\nlast\n"));
        let stubborn = "trap '' TERM; set -m; (trap '' TERM; sleep 600) & sleep 600";
        assert_eq!(ran(&slot, address, &limited(stubborn)).0, ExecEnd::TimedOut, "{tier}");
        assert_eq!(ExecEnd::TimedOut.exit_code(), 124);
        eventually("nothing of it is left", || worker.descendants().len() <= before);
        // Time enough is no time-out.
        let enough = ExecRequest { timeout_ms: Some(20_000), ..sh("exit 4") };
        assert_eq!(ran(&slot, address, &enough).0, exited(4));
        worker.stop();
    }
}

#[test]
fn a_command_whose_client_is_gone_is_ended() {
    for (request, tier) in [
        (sh("trap '' HUP TERM; echo on; sleep 600"), Tier::Domain),
        (on_terminal("trap '' HUP TERM; echo on; sleep 600"), Tier::Namespace),
    ] {
        let mut slot = Slot::new(tier, Who::User);
        slot.config.grace = 1;
        let (worker, address) = slot.serve();
        let before = worker.descendants().len();
        let mut exec = Exec::start(&slot, address, &request);
        exec.until("on");
        assert_eq!(slot.status(address).execs, 1);
        drop(exec);
        eventually("it is gone", || worker.descendants().len() <= before);
        eventually("it holds nothing any more", || slot.status(address).execs == 0);
        worker.stop();
    }
}

#[test]
fn what_it_leaves_behind_does_not_hold_its_end_up_and_ends_with_the_session() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let (worker, address) = slot.serve();
    let (end, out, _) = ran(&slot, address, &sh("setsid sleep 600 & echo $!; exit 6"));
    assert_eq!(end, exited(6));
    let daemon: i32 = out.trim().parse().unwrap();
    assert!(lives(daemon));
    worker.stop();
    eventually("the daemon is gone", || !lives(daemon));
}

#[test]
fn a_command_is_no_turn_and_keeps_the_worker_from_being_stopped_as_idle() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let (worker, address) = slot.serve();
    let control = slot.token(Audience::Control);
    let quiesce = || {
        let (status, body) = call(address, "POST", "/v1/quiesce", Some(&control), "");
        assert_eq!(status, 200, "{body}");
        serde_json::from_str::<Quiesce>(&body).unwrap()
    };
    // A request that runs nothing is no use of it.
    let wrong = ExecRequest { timeout_ms: Some(0), ..sh("true") };
    assert!(matches!(ran(&slot, address, &wrong).0, ExecEnd::Refused { .. }));
    assert!(!slot.status(address).commanded);
    let mut exec = Exec::start(&slot, address, &sh("echo on; read line"));
    exec.until("on");
    let status = slot.status(address);
    assert!(matches!(status.activity, Activity::Busy { .. }) && !status.prompted, "{status:?}");
    assert!(status.commanded);
    assert_eq!(quiesce(), Quiesce::Busy);
    std::thread::sleep(Duration::from_millis(1500));
    exec.feed(b"\n");
    assert_eq!(exec.end(), exited(0));
    let status = slot.status(address);
    // Serving for longer than that, and idle only since the command ended.
    assert!(matches!(status.activity, Activity::Idle { for_ms: ..1400 }), "{status:?}");
    assert!(matches!(quiesce(), Quiesce::Quiesced { .. }));
    let refused = Exec::connect(address, &slot.token(Audience::Exec)).err();
    assert_eq!(refused, Some(503));
    let (_, metrics) = call(address, "GET", "/metrics", Some(&control), "");
    assert!(metrics.contains("casemate_execs_total 2\n"), "{metrics}");
    worker.stop();
}

#[test]
fn a_stopped_worker_tells_its_commands_and_gives_them_the_grace() {
    for tier in BOTH {
        let mut slot = Slot::new(tier, Who::User);
        slot.config.grace = 3;
        let (mut worker, address) = slot.serve();
        let mut obeys = Exec::start(
            &slot,
            address,
            &sh("trap 'sleep 0.3; echo last; exit 0' TERM; echo on; while :; do sleep 0.05; done"),
        );
        obeys.until("on");
        let (status, _) = call(
            address,
            "POST",
            "/v1/stop",
            Some(&slot.token(Audience::Control)),
            r#"{"reason":"close"}"#,
        );
        assert_eq!(status, 202);
        assert_eq!(
            (obeys.end(), obeys.text().as_str()),
            (ExecEnd::SessionEnded, "on\nlast\n"),
            "{tier}"
        );
        assert_eq!(worker.wait().code(), Some(0));
    }
}

#[test]
fn many_run_beside_each_other_and_beside_a_turn() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let (worker, address) = slot.serve();
    let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
    client.initialize();
    let session = client.new_session();
    let turn = client.prompt(&session, "!sh while test ! -e stop; do sleep 0.05; done; echo seen");
    let mut all: Vec<Exec> = (0..16)
        .map(|number| {
            Exec::start(&slot, address, &sh(&format!("read x; echo {number}$x; exit {number}")))
        })
        .collect();
    assert_eq!(slot.status(address).execs, 16);
    for (number, exec) in all.iter_mut().enumerate().rev() {
        exec.feed(b"!\n");
        assert_eq!(exec.end(), exited(u8::try_from(number).unwrap()));
        assert_eq!(exec.text(), format!("{number}!\n"));
    }
    assert_eq!(ran(&slot, address, &request(&["touch", "stop"])).0, exited(0));
    assert!(client.answer(turn).0.get("result").is_some());
    let holds: Vec<Exec> = (0..32).map(|_| Exec::start(&slot, address, &sh("sleep 600"))).collect();
    eventually("all are held", || slot.status(address).execs == 32);
    assert_eq!(Exec::connect(address, &slot.token(Audience::Exec)).err(), Some(429));
    drop(holds);
    worker.stop();
}

#[test]
fn only_its_own_token_opens_it_and_a_wrong_request_runs_nothing() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let (worker, address) = slot.serve();
    for audience in [Audience::Attach, Audience::Control] {
        assert_eq!(Exec::connect(address, &slot.token(audience)).err(), Some(401));
    }
    for path in ["/v1/status", "/v1/patch", "/metrics"] {
        assert_eq!(
            call(address, "GET", path, Some(&slot.token(Audience::Exec)), "").0,
            401,
            "{path}"
        );
    }
    assert_eq!(call(address, "GET", "/v1/exec", Some(&slot.token(Audience::Exec)), "").0, 426);
    for wrong in [r#"{"argv":[]}"#, r#"{"argv":["touch","made"],"as":"root"}"#, "{"] {
        let mut exec = Exec::connect(address, &slot.token(Audience::Exec)).unwrap();
        exec.send(Message::text(wrong));
        assert!(matches!(exec.end(), ExecEnd::Refused { .. }), "{wrong}");
    }
    let mut exec = Exec::connect(address, &slot.token(Audience::Exec)).unwrap();
    exec.send(Message::binary(b"\x00touch made".to_vec()));
    assert!(matches!(exec.end(), ExecEnd::Refused { .. }));
    assert!(!slot.session().join("work/made").exists());
    worker.stop();
}

/// Whatever the agent is refused, a command beside it is refused in the same words.
#[test]
fn it_is_behind_the_agents_own_walls() {
    for (tier, who) in ALL {
        let mut slot = Slot::new(tier, who);
        let inside = example("inside");
        slot.config.programs.push(inside.clone());
        let other = Slot::new(tier, who);
        let (theirs, _) = other.serve();
        let secret = other.session().join("work/secret");
        fs::write(&secret, "sentinel").unwrap();
        other.hand_over(&secret);
        let (worker, address) = slot.serve();
        let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
        client.initialize();
        let session = client.new_session();
        let supervisor =
            if tier == Tier::Namespace { 1 } else { worker.pid().as_raw() }.to_string();
        // Where it is shown depends on whether its own place is one of the session's.
        let shown = format!("ls /programs/1/inside {} 2>/dev/null | head -n 1", inside.display());
        let program = ran(&slot, address, &sh(&shown)).1.trim().to_owned();
        let secret = secret.display().to_string();
        let port = address.port().to_string();
        for verb in [
            &["files", &secret][..],
            &["supervisor", &supervisor],
            &["connect", &port],
            &["listen", &port],
            &["kernel"],
        ] {
            // Files that it makes for an attempt have its pid in their names.
            let plain = |said: &str| -> Vec<String> {
                let lines = said.lines().filter(|line| line.starts_with('{'));
                lines.map(|line| line.replace(|c: char| c.is_ascii_digit(), "")).collect()
            };
            let agents =
                plain(&client.shell(&session, &format!("{program} {}; true", verb.join(" "))));
            let (end, out, err) =
                ran(&slot, address, &request(&[&[program.as_str()], verb].concat()));
            assert_eq!(end, exited(0), "{err}");
            assert!(!agents.is_empty() && !out.contains("sentinel"), "{verb:?}: {out}");
            assert_eq!(plain(&out), agents, "{tier} {who:?} {verb:?}");
        }
        let (end, out, _) = ran(&slot, address, &request(&["cat", &secret]));
        assert_eq!((end, out.as_str()), (exited(1), ""));
        theirs.stop();
        worker.stop();
    }
}

#[test]
fn a_kill_of_everybody_ends_the_command_and_nothing_else() {
    for (tier, who) in ALL {
        let (slot, other) = (Slot::new(tier, who), Slot::new(tier, who));
        let (theirs, their_address) = other.serve();
        let mut lives_on = Exec::start(&other, their_address, &sh("echo on; read x; echo still"));
        lives_on.until("on");
        let (worker, address) = slot.serve();
        let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
        client.initialize();
        // The shell itself is everybody but itself: kill(2).
        let mut exec = Exec::start(&slot, address, &sh("perl -e 'kill 9, -1'; sleep 2"));
        let end = exec.end();
        assert_eq!(end.exit_code(), 137);
        // Each start has a scope of its own within the session's: not even the agent is reached.
        assert!(matches!(slot.status(address).agent, AgentState::Running { .. }), "{tier} {who:?}");
        client.new_session();
        worker.stop();
        lives_on.feed(b"\n");
        assert_eq!((lives_on.end(), lives_on.text().as_str()), (exited(0), "on\nstill\n"));
        theirs.stop();
    }
}
