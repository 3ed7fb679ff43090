//! The real programs together: `casemate`, `casemate-supervisor`, the scripted agent.

mod host;
mod house;

use std::time::{Duration, Instant};

use host::Host;
use house::House;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// Says something and gives what the agent said, and how the turn ended.
fn turn(host: &mut Host, session: &str, text: &str) -> (String, Value) {
    let prompt = json!([{"type": "text", "text": text}]);
    let id = host.ask("session/prompt", json!({"sessionId": session, "prompt": prompt}));
    let mut lines = host.until(id);
    let end = lines.pop().unwrap_or_default();
    let words = lines
        .iter()
        .inspect(|line| assert_eq!(line["params"]["sessionId"], session, "{line}"))
        .filter_map(|line| line["params"]["update"]["content"]["text"].as_str())
        .collect();
    (words, end)
}

fn ends_well(host: &mut Host, session: &str, text: &str) -> String {
    let (words, end) = turn(host, session, text);
    assert_eq!(end["result"]["stopReason"], "end_turn", "{end}");
    words
}

fn load(host: &mut Host, session: &str) -> Vec<Value> {
    host.answer("initialize", json!({"protocolVersion": 1}));
    let id = host.ask("session/load", json!({"sessionId": session, "cwd": "/", "mcpServers": []}));
    let lines = host.until(id);
    assert!(lines.iter().all(|line| line.get("error").is_none()), "{lines:?}");
    lines
}

#[test]
fn a_conversation_goes_on_in_another_process_and_after_its_worker_was_killed() {
    let house = House::new();
    let mut first = house.acp(&[]);
    let session = first.open();
    assert!(
        ends_well(&mut first, &session, "!sh pwd; cat a.txt; echo kept > kept.txt")
            .contains("hello")
    );
    first.hang_up();
    assert!(first.end().success());

    let mut second = house.acp(&[]);
    let replay = load(&mut second, &session);
    assert!(replay.last().unwrap().get("result").is_some(), "{replay:?}");
    assert!(replay.iter().any(|line| line.to_string().contains("hello")), "history: {replay:?}");
    assert!(ends_well(&mut second, &session, "!sh cat kept.txt").contains("kept"));

    house.kill_worker(&session);
    // The same bridge goes on by itself, with its conversation.
    let started = Instant::now();
    let words = loop {
        let (words, end) = turn(&mut second, &session, "!sh cat kept.txt");
        if end.get("result").is_some() {
            break words;
        }
        // The death may be noticed by this very prompt: at most one is lost, and says so.
        assert_eq!(end["error"]["code"], -32050, "{end}");
        assert!(started.elapsed() < Duration::from_secs(20), "{end}");
    };
    assert!(words.contains("kept") && !words.contains("context reset"), "{words}");
    second.hang_up();
    second.end();

    house.kill_worker(&session);
    let mut third = house.acp(&[]);
    let replay = load(&mut third, &session);
    assert!(replay.last().unwrap().get("result").is_some(), "{replay:?}");
    assert!(ends_well(&mut third, &session, "!sh cat kept.txt").contains("kept"));
}

#[test]
fn two_sessions_of_one_process_are_two_worktrees() {
    let house = House::new();
    let mut host = house.acp(&[]);
    let one = host.open();
    let answer = host.answer("session/new", json!({"cwd": "/", "mcpServers": []}));
    let two = answer["result"]["sessionId"].as_str().unwrap().to_owned();
    ends_well(&mut host, &one, "!sh echo one > mine");
    ends_well(&mut host, &two, "!sh echo two > mine");
    assert!(ends_well(&mut host, &one, "!sh cat mine").contains("one"));
    assert!(ends_well(&mut host, &two, "!sh cat mine").contains("two"));
    let list = house.json(&["sessions", "--json"]);
    assert_eq!(list["sessions"].as_array().unwrap().len(), 2, "{list}");
}

#[test]
fn a_key_leads_to_its_session_and_close_stops_the_worker() {
    let house = House::new();
    let mut first = house.acp(&["--key", "thread-1"]);
    let session = first.open();
    ends_well(&mut first, &session, "!sh echo kept > kept.txt");
    let answer = first.answer("session/close", json!({"sessionId": session}));
    assert!(answer.get("result").is_some(), "{answer}");
    let view = house.json(&["sessions", "show", &session, "--json"]);
    assert_eq!((&view["phase"], &view["worker"]), (&json!("asleep"), &Value::Null), "{view}");
    let mut second = house.acp(&["--key", "thread-1"]);
    assert_eq!(second.open(), session);
    assert!(ends_well(&mut second, &session, "!sh cat kept.txt").contains("kept"));
}

#[test]
fn a_newer_client_takes_over_and_the_older_one_stays_away_until_it_loads() {
    let house = House::new();
    let mut older = house.acp(&["--key", "thread-1"]);
    let session = older.open();
    ends_well(&mut older, &session, "!sh true");
    let mut newer = house.acp(&["--key", "thread-1"]);
    load(&mut newer, &session);
    let (_, end) = turn(&mut older, &session, "!sh echo older > who");
    assert_eq!(end["error"]["code"], -32050, "{end}");
    assert!(end["error"]["message"].as_str().unwrap().contains("over"), "{end}");
    assert!(ends_well(&mut newer, &session, "!sh cat who").contains("[exit 1]"));
    // It would be back in milliseconds: neither attached nor turned away was anybody since.
    let came = || (house.recorded("client.attached"), house.recorded("call.refused"));
    let before = came();
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!((before.0, came()), (2, before), "the older one stays away");
    assert!(ends_well(&mut newer, &session, "!sh true").contains("[exit 0]"));
    load(&mut older, &session);
    ends_well(&mut older, &session, "!sh true");
}

#[test]
fn a_stopped_session_wakes_with_the_next_prompt() {
    let house = House::new();
    let mut host = house.acp(&[]);
    let session = host.open();
    ends_well(&mut host, &session, "!sh echo kept > kept.txt");
    house.json(&["sessions", "stop", &session, "--json"]);
    let prompt = json!([{"type": "text", "text": "!sh cat kept.txt"}]);
    let id = host.ask("session/prompt", json!({"sessionId": session, "prompt": prompt}));
    let told: String = host.until(id).iter().map(Value::to_string).collect();
    assert!(told.contains("kept") && told.contains("end_turn"), "{told}");
    assert!(told.contains("waking the session") && told.contains("is awake"), "{told}");
    assert!(!told.contains("context reset"), "{told}");
}

#[test]
fn a_confined_agent_cannot_use_the_host() {
    let house = House::new();
    let mut host = house.acp(&[]);
    let session = host.open();
    for ask in [
        r#"!ask fs/read_text_file {"sessionId":"$SESSION","path":"/etc/passwd"}"#,
        r#"!ask terminal/create {"sessionId":"$SESSION","command":"id"}"#,
    ] {
        let words = ends_well(&mut host, &session, ask);
        assert!(words.contains("-32601"), "{words}");
    }
    // What may be asked is asked.
    let prompt = json!([{"type": "text", "text": "!perm"}]);
    let id = host.ask("session/prompt", json!({"sessionId": session, "prompt": prompt}));
    let asked = host.line();
    assert_eq!(asked["method"], "session/request_permission");
    assert_eq!(asked["params"]["sessionId"], session.as_str());
    let option = &asked["params"]["options"][0]["optionId"];
    let outcome = json!({"outcome": {"outcome": "selected", "optionId": option}});
    host.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": outcome}).to_string());
    let lines = host.until(id);
    assert!(lines.iter().any(|line| line.to_string().contains("selected")), "{lines:?}");
}

#[test]
fn two_that_start_at_once_start_one_allocator() {
    let house = House::new();
    let mut hosts: Vec<Host> = (0..4).map(|_| house.acp(&[])).collect();
    for host in &mut hosts {
        let answer = host.answer("initialize", json!({"protocolVersion": 1}));
        assert!(answer.get("result").is_some(), "{answer}");
    }
    assert_eq!(house.allocators().len(), 1);
}

#[test]
fn sessions_outlive_a_killed_allocator() {
    let house = House::new();
    let mut host = house.acp(&[]);
    let session = host.open();
    ends_well(&mut host, &session, "!sh echo kept > kept.txt");
    let worker = house.json(&["sessions", "show", &session, "--json"])["worker"]["pid"].clone();
    for pid in house.allocators() {
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }
    // The data's way does not lead through it.
    assert!(ends_well(&mut host, &session, "!sh cat kept.txt").contains("kept"));
    // Nor does a look, which starts none.
    let recorded = house.json(&["sessions", "show", &session, "--json"]);
    assert_eq!((&recorded["worker"]["pid"], house.allocators()), (&worker, vec![]));
    let answer = host.answer("session/new", json!({"cwd": "/", "mcpServers": []}));
    assert!(answer.get("result").is_some(), "{answer}");
    assert_eq!(house.allocators().len(), 1);
    let view = house.json(&["sessions", "show", &session, "--json"]);
    assert_eq!(view["worker"]["pid"], worker, "the worker is found again");
}

#[test]
fn trouble_has_a_name_and_a_way_out() {
    let house = House::new();
    let (programs, scripted) = House::agent();
    let remote = ["--program", &programs, "--repo", "http://127.0.0.1:9/x.git"];
    for (options, agent, word, code) in [
        (&[][..], "no-such-agent", "no-such-agent", 127),
        (&["--profile", "no-such-profile"], "x", "no-such-profile", 66),
        (&remote, &scripted, "127.0.0.1:9", 66),
        (&[], "/bin/true", "the agent ended", 69),
    ] {
        let mut host = Host::start(house.home(), options, &[agent]);
        let mut answer = host.answer("initialize", json!({"protocolVersion": 1}));
        if answer.get("result").is_some() {
            answer = host.answer("session/new", json!({"cwd": "/", "mcpServers": []}));
        }
        let message = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(message.contains(word), "{message}");
        host.hang_up();
        assert_eq!(host.end().code(), Some(code), "{answer}");
    }
    let list = house.json(&["sessions", "--json"]);
    let left: Vec<&Value> = list["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|view| view["phase"] != "ended")
        .collect();
    assert!(left.is_empty(), "no half-made session stays: {left:?}");
}

#[test]
fn a_throw_away_session_leaves_its_patch_and_nothing_else() {
    let house = House::new();
    let patch = house.file("work.patch");
    let run = house.run(&[
        "--prompt",
        "!sh echo more >> a.txt; printf '\\000' > b.bin",
        "--patch",
        &patch,
    ]);
    assert!(run.status.success(), "{run:?}");
    let told = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(told.contains("a.txt +1 -0") && told.contains("b.bin binary"), "{told}");
    house.applies(&patch);
    assert_eq!(house.left_over(), Vec::<String>::new());
}

#[test]
fn a_throw_away_session_saves_its_work_however_it_ends() {
    let work = "!sh echo more >> a.txt; git init -q nested; echo x > nested/x";
    // The agent dies.
    let house = House::new();
    let patch = house.file("died.patch");
    let run = house.run(&["--prompt", work, "--prompt", "!exit 3", "--patch", &patch]);
    assert!(!run.status.success(), "{run:?}");
    let told = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(told.contains("nested is a Git repository of its own"), "{told}");
    house.applies(&patch);
    assert_eq!(house.left_over(), Vec::<String>::new());

    // A signal in the next prompt.
    let patch = house.file("cut.patch");
    let repository = house.repository().display().to_string();
    let mut run = house.start_run(&[
        "--repo",
        &repository,
        "--prompt",
        work,
        "--prompt",
        "!sh echo begun; sleep 60",
        "--patch",
        &patch,
    ]);
    house::wait_for_line(&mut run, "begun");
    kill(Pid::from_raw(i32::try_from(run.id()).unwrap()), Signal::SIGINT).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(130));
    house.applies(&patch);
    assert_eq!(house.left_over(), Vec::<String>::new());

    // No patch can be made: the session stays, and so it does not end well.
    let patch = house.file("none.patch");
    let run = house.run(&["--prompt", "!sh echo precious > p; rm -rf .git", "--patch", &patch]);
    assert!(!run.status.success(), "{run:?}");
    let told = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(told.contains("the session is kept"), "{told}");
    assert!(!std::path::Path::new(&patch).exists());
    assert_eq!(house.left_over().len(), 1);
}

#[test]
fn a_throw_away_session_without_a_patch_says_what_is_lost() {
    let house = House::new();
    let told = |run: &std::process::Output| String::from_utf8_lossy(&run.stderr).into_owned();
    let run = house.run(&["--prompt", "!sh echo more >> a.txt"]);
    assert!(run.status.success() && told(&run).contains("discarded"), "{run:?}");
    let patch = house.file("empty.patch");
    let run = house.run(&["--prompt", "hello", "--patch", &patch]);
    assert!(run.status.success() && told(&run).contains("was not written"), "{run:?}");
    assert!(!std::path::Path::new(&patch).exists());
}

#[test]
fn a_throw_away_session_that_is_interrupted_leaves_nothing() {
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let house = House::new();
        let mut run = house.start_run(&["--prompt", "!sh echo begun; sleep 60"]);
        house::wait_for_line(&mut run, "begun");
        kill(Pid::from_raw(i32::try_from(run.id()).unwrap()), signal).unwrap();
        assert_eq!(run.wait().unwrap().code(), Some(code));
        assert_eq!(house.left_over(), Vec::<String>::new());
    }
}

#[test]
fn a_program_that_is_no_agent_ends_the_run_and_is_told_to_the_host() {
    let house = House::new();
    let no_agent = ["/bin/sh", "-c", "echo not json; exec sleep 1000"];
    let run = house.run_agent(&["--prompt", "x"], &no_agent);
    assert_eq!(run.status.code(), Some(1));
    let told = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(told.contains("`not json`") && !told.contains("load the session"), "{told}");
    assert_eq!(house.left_over(), Vec::<String>::new());

    let mut host = Host::start(house.home(), &[], &no_agent);
    let answer = host.answer("initialize", json!({"protocolVersion": 1}));
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("`not json`") && message.contains("after `--`"), "{message}");
    host.hang_up();
    assert_eq!(host.end().code(), Some(69), "{answer}");
}

/// Numbers and starts (proc_pid_stat(5)) of a process's descendants.
#[allow(clippy::unwrap_used, reason = "a process table that cannot be read fails the test")]
fn descendants(root: u32) -> Vec<(u32, String)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        let pid: u32 = stat.split(' ').next().unwrap().parse().unwrap();
        all.push((pid, fields[1].parse::<u32>().unwrap(), fields[19].to_owned()));
    }
    let mut known = vec![root];
    let mut found = Vec::new();
    while let Some(parent) = known.pop() {
        for (pid, _, started) in all.iter().filter(|(_, of, _)| *of == parent) {
            known.push(*pid);
            found.push((*pid, started.clone()));
        }
    }
    found
}

#[test]
fn what_a_killed_run_leaves_ends_by_itself_and_is_swept_by_the_next() {
    let house = House::new();
    let mut run = house.start_run(&["--prompt", "!sh setsid sleep 600 & echo begun; sleep 600"]);
    house::wait_for_line(&mut run, "begun");
    let processes = descendants(run.id());
    assert!(processes.len() >= 4, "{processes:?}");
    run.kill().unwrap();
    run.wait().unwrap();
    let lives = |(pid, started): &(u32, String)| {
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| stat.contains(started.as_str()) && !stat.contains(") Z "))
    };
    let since = Instant::now();
    while processes.iter().any(lives) {
        assert!(since.elapsed() < Duration::from_secs(10), "workers outlive their owner");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(house.left_over().len(), 1, "its directory: {:?}", house.left_over());
    assert!(house.run(&["--prompt", "hi"]).status.success());
    assert_eq!(house.left_over(), Vec::<String>::new());
}

#[test]
fn an_interrupt_before_anything_runs_is_an_interrupt() {
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGHUP, 129)] {
        let house = House::new();
        let mut run = house.start_run(&["--prompt", "hi"]);
        // The signals are heard before the directory is made.
        while house.left_over().iter().all(|left| !left.contains("casemate-run-")) {
            assert!(run.try_wait().unwrap().is_none());
        }
        kill(Pid::from_raw(i32::try_from(run.id()).unwrap()), signal).unwrap();
        assert_eq!(run.wait().unwrap().code(), Some(code));
        assert_eq!(house.left_over(), Vec::<String>::new());
    }
}

#[test]
fn an_allocator_is_stopped_while_the_bridge_that_started_it_lives() {
    let house = House::new();
    let mut host = house.acp(&[]);
    host.open();
    let pid = house.allocators()[0];
    let started = Instant::now();
    let stop = house.command(&["up", "--stop"]);
    assert!(stop.status.success(), "{stop:?}");
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    while std::path::Path::new(&format!("/proc/{pid}")).exists() {
        assert!(started.elapsed() < Duration::from_secs(30), "a zombie is left");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_full_stdout_is_a_failure_and_no_panic() {
    let house = House::new();
    for command in [&["doctor"][..], &["doctor", "--json"], &["sessions"]] {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let status = std::process::Command::new(env!("CARGO_BIN_EXE_casemate"))
            .arg("--home")
            .arg(house.home())
            .args(command)
            .stdout(full.expect("/dev/full"))
            .status();
        assert_eq!(status.ok().and_then(|status| status.code()), Some(73), "{command:?}");
    }
}

#[test]
fn a_weaker_tier_is_said_where_people_see_it() {
    let house = House::new();
    let up = house.command(&["up", "--detach", "--tier", "domain"]);
    let told = String::from_utf8_lossy(&up.stderr).into_owned();
    assert!(told.contains("What tier domain leaks"), "{told}");
    let mut host = house.acp(&[]);
    let session = host.open();
    let mut turn = || {
        let prompt = json!([{"type": "text", "text": "hi"}]);
        let id = host.ask("session/prompt", json!({"sessionId": session, "prompt": prompt}));
        Value::from(host.until(id)).to_string()
    };
    let first = turn();
    assert!(first.contains("this session is in tier domain"), "{first}");
    assert!(!turn().contains("tier domain"), "said once");
    host.hang_up();
    assert!(host.end().success());
}

#[test]
fn a_throw_away_session_says_by_its_exit_code_what_was_wrong() {
    let house = House::new();
    let code = |run: std::process::Output| run.status.code().unwrap();
    assert_eq!(code(house.run_agent(&["--prompt", "x"], &["no-such-agent"])), 127);
    assert_eq!(code(house.run_agent(&["--repo", "/no/such/place"], &["/bin/cat"])), 66);
    assert_eq!(code(house.run_agent(&["--patch", "/no/such/place/p"], &["/bin/cat"])), 73);
    assert_eq!(code(house.run_agent(&["--prompt", "x"], &["/bin/true"])), 1);
    assert_eq!(code(house.run(&["--no-such-option"])), 64);
    assert_eq!(house.left_over(), Vec::<String>::new());
}

#[test]
fn an_agent_gets_its_own_program_and_nothing_that_lies_beside_it() {
    let house = House::new();
    let (agent, login) = house.agent_among_others();
    let mut host = house.acp_of(&agent);
    let session = host.open();
    let words = ends_well(&mut host, &session, &format!("!sh cat {login}; echo tried"));
    assert!(words.contains("tried") && !words.contains("another login"), "{words}");
    // Where the agent sees its own directory, it lies alone in it.
    let around = ends_well(&mut host, &session, "!sh ls -a $(dirname $(readlink /proc/$PPID/exe))");
    assert!(!around.contains("auth.json"), "{around}");
    let view = house.json(&["sessions", "show", &session, "--json"]);
    assert_eq!(view["programs"], json!([agent]), "{view}");
}

#[test]
fn work_is_taken_home_as_a_patch_and_nothing_planted_runs() {
    let house = House::new();
    let mut host = house.acp(&[]);
    let session = host.open();
    let trap = house.file("trapped");
    ends_well(
        &mut host,
        &session,
        &format!("!sh git config core.fsmonitor 'touch {trap}; true'; echo work > new.txt"),
    );
    host.hang_up();
    host.end();
    // Asleep: the command wakes it.
    house.json(&["sessions", "stop", &session, "--json"]);
    let file = house.file("work.patch");
    let run = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_casemate"));
        command.arg("--home").arg(house.home()).args(args).output().unwrap()
    };
    let output = run(&["sessions", "patch", &session, "--output", &file]);
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("new.txt +1 -0"), "{output:?}");
    house.applies(&file);
    let piped = run(&["sessions", "patch", &session]);
    assert_eq!(piped.stdout, std::fs::read(&file).unwrap());
    assert!(!std::path::Path::new(&trap).exists());
    let shown = run(&["sessions", "show", &session]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("run no git") && shown.contains("sessions patch"), "{shown}");
    let again = run(&["sessions", "patch", &session, "--output", &file]);
    assert_eq!(again.status.code(), Some(73), "{again:?}");
    let none = house.file("none.patch");
    let unknown = run(&["sessions", "patch", "s-aaaaaaaaaaaaaaaaaaaaaaaaaa", "--output", &none]);
    assert_eq!(unknown.status.code(), Some(66), "{unknown:?}");
}
