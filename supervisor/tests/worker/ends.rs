//! Every way in which a worker ends, and that nothing is left of it.

use std::fs;
use std::time::Duration;

use casemate_protocol::tier::Tier;
use casemate_protocol::token::Audience;
use nix::sys::signal::Signal;

use crate::client::{Client, Closed};
use crate::harness::{ALL, Slot, Who, eventually, lives};

fn attached(slot: &Slot) -> (crate::harness::Worker, Client, String) {
    let (worker, address) = slot.serve();
    let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
    client.initialize();
    let session = client.new_session();
    (worker, client, session)
}

/// Reads up to the close.
fn close_of(client: &mut Client) -> (Vec<serde_json::Value>, Closed) {
    let mut before = Vec::new();
    loop {
        match client.receive() {
            Ok(message) => before.push(message),
            Err(closed) => return (before, closed),
        }
    }
}

#[test]
fn the_agents_exit_code_or_signal_is_the_workers_and_the_turn_is_answered() {
    for (tier, prompt, code, cause) in [
        (Tier::Domain, "!exit 3", 3, "exit code 3"),
        (Tier::Namespace, "!exit 0", 0, "exit code 0"),
        (Tier::Domain, "!die ABRT", 134, "signal 6"),
        (Tier::Namespace, "!die KILL", 137, "signal 9"),
    ] {
        let slot = Slot::new(tier, Who::User);
        let (mut worker, mut client, session) = attached(&slot);
        let id = client.prompt(&session, prompt);
        let (messages, closed) = close_of(&mut client);
        let answer = messages.iter().find(|message| message["id"] == id).expect("an answer");
        let words = answer["error"]["message"].as_str().unwrap_or_default().to_owned()
            + &answer["error"]["data"].to_string();
        assert!(words.contains(cause), "{answer}");
        assert!(matches!(closed, Closed::With(4003, _)), "{closed:?}");
        assert_eq!(worker.wait().code(), Some(code), "{tier} {prompt}");
    }
}

#[test]
fn an_agent_that_exits_at_once_is_reported_with_its_code_and_its_last_words() {
    let mut slot = Slot::new(Tier::Namespace, Who::User);
    let script = "echo starting; echo no key given >&2; exit 7";
    slot.config.agent.argv = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    let (mut worker, address) = slot.serve();
    let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
    let params = serde_json::json!({"protocolVersion": 1, "clientCapabilities": {}});
    let id = client.request("initialize", params);
    let (messages, closed) = close_of(&mut client);
    let answer = messages.iter().find(|message| message["id"] == id).expect("an answer");
    let text = answer.to_string();
    assert!(text.contains("exit code 7") && text.contains("no key given"), "{text}");
    assert!(matches!(closed, Closed::With(4003, _)), "{closed:?}");
    assert_eq!(worker.wait().code(), Some(7));
}

#[test]
fn an_agent_that_closes_its_output_and_lives_on_is_ended() {
    let mut slot = Slot::new(Tier::Domain, Who::User);
    let script = "exec >&-; sleep 600";
    slot.config.agent.argv = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    let (mut worker, address) = slot.serve();
    let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
    client.request("initialize", serde_json::json!({"protocolVersion": 1}));
    let (messages, closed) = close_of(&mut client);
    let text = format!("{messages:?} {closed:?}");
    assert!(text.contains("closed its output but did not exit"), "{text}");
    assert_eq!(worker.wait().code(), Some(70));
}

/// Answers just as much as opens a turn, then does what is put in.
pub(crate) const TURN: &str = r#"
    answer() { echo "{\"jsonrpc\":\"2.0\",\"id\":$1,\"result\":{\"protocolVersion\":1,\"sessionId\":\"s\"}}"; }
    read -r line; answer 1
    read -r line; answer 2
    read -r line
"#;

/// Leaves a process behind that fills the output without a pause.
const FLOOD: &str =
    r#"yes '{"method":"$/cancel_request","params":{"requestId":9}}' & sleep 0.2; exit 3"#;

#[test]
fn exit_end_of_output_and_death_in_a_turn_are_told_apart_also_where_a_grandchild_holds_the_output()
{
    let held = "while a process that it left behind held its output";
    for (last, code, cause, grandchild) in [
        ("exit 3", 3, "the agent ended with exit code 3", false),
        ("exec >&-; sleep 600", 70, "the agent closed its output but did not exit", false),
        ("kill -KILL $$", 137, "the agent ended with signal 9 (SIGKILL)", false),
        ("sleep 600 & exit 3", 3, "the agent ended with exit code 3", true),
        ("sleep 600 & kill -KILL $$", 137, "the agent ended with signal 9 (SIGKILL)", true),
        ("setsid sleep 600 & exec >&-; exit 4", 4, "the agent ended with exit code 4", true),
        (FLOOD, 3, "the agent ended with exit code 3", true),
    ] {
        let mut slot = Slot::new(Tier::Domain, Who::User);
        let script = format!("{TURN}{last}");
        slot.config.agent.argv = ["/bin/sh", "-c", &script].map(str::to_owned).to_vec();
        let (mut worker, mut client, session) = attached(&slot);
        let id = client.prompt(&session, "work");
        let (messages, closed) = close_of(&mut client);
        let answer = messages.iter().find(|message| message["id"] == id).expect("an answer");
        let error = &answer["error"];
        assert_eq!(error["code"], -32050, "{last}: {answer}");
        assert_eq!(error["data"]["casemate"]["delivery"], "interrupted", "{last}: {answer}");
        let said = error["message"].as_str().unwrap();
        assert!(said.contains(cause), "{last}: {said}");
        assert_eq!(said.contains(held), grandchild, "{last}: {said}");
        assert!(matches!(closed, Closed::With(4003, _)), "{last}: {closed:?}");
        assert_eq!(worker.wait().code(), Some(code), "{last}");
    }
}

#[test]
fn an_agent_that_asks_without_end_and_reads_no_answer_is_read_no_further_and_then_ended() {
    let mut slot = Slot::new(Tier::Domain, Who::User);
    slot.config.blocked_ttl = 20;
    let ask = r#"{"id":%.0f,"method":"session/request_permission","params":{"sessionId":"s"}}"#;
    // Hundreds of megabytes of refusals.
    let script = format!("{TURN}seq -f '{ask}' 1000 9999999");
    slot.config.agent.argv = ["/bin/sh", "-c", &script].map(str::to_owned).to_vec();
    let (mut worker, mut client, session) = attached(&slot);
    let id = client.prompt(&session, "work");
    // As many as may be open.
    for _ in 0..256 {
        assert_eq!(client.receive().unwrap()["method"], "session/request_permission");
    }
    std::thread::sleep(Duration::from_secs(2));
    let peak = crate::slow::peak(worker.pid().as_raw());
    let (answer, _) = client.answer(id);
    let said = answer["error"]["message"].as_str().unwrap();
    assert!(said.contains("asked without end and for 20 s read nothing"), "{answer}");
    assert_eq!(answer["error"]["data"]["casemate"]["delivery"], "interrupted", "{answer}");
    assert!(peak < 48 * 1024, "{peak} KiB");
    assert_eq!(worker.wait().code(), Some(70));
}

#[test]
fn a_process_that_the_agent_left_behind_does_not_hold_the_end_up() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let (mut worker, mut client, session) = attached(&slot);
    let id = client.prompt(&session, "!sh setsid sleep 600 </dev/null >/dev/null 2>&1 & exit 0");
    client.answer(id);
    let left: Vec<i32> = worker.descendants();
    client.prompt(&session, "!exit 5");
    close_of(&mut client);
    assert_eq!(worker.wait().code(), Some(5));
    eventually("the daemon is gone too", || !left.iter().any(|pid| lives(*pid)));
}

#[test]
fn term_ends_everything_with_code_0_also_an_agent_that_ignores_it() {
    for (tier, who) in ALL {
        let mut slot = Slot::new(tier, who);
        slot.config.grace = 1;
        let (mut worker, mut client, session) = attached(&slot);
        let script = "trap '' TERM HUP; setsid sh -c 'trap \"\" TERM; sleep 600' & sleep 600";
        client.prompt(&session, &format!("!sh {script}"));
        eventually("it runs", || worker.descendants().len() >= 4);
        let processes = worker.descendants();
        worker.signal(Signal::SIGTERM);
        let (_, closed) = close_of(&mut client);
        assert!(matches!(closed, Closed::With(1001, _)), "{closed:?}");
        assert_eq!(worker.wait().code(), Some(0), "{tier} {who:?}\n{}", worker.log());
        eventually("nothing is left", || !processes.iter().any(|pid| lives(*pid)));
    }
}

#[test]
fn killing_the_launcher_leaves_no_process_and_frees_the_slot() {
    for (tier, who) in ALL {
        let mut slot = Slot::new(tier, who);
        let (mut worker, mut client, session) = attached(&slot);
        client.prompt(&session, "!sh setsid sleep 600 & sleep 600");
        eventually("it runs", || worker.descendants().len() >= 4);
        let processes = worker.descendants();
        worker.signal(Signal::SIGKILL);
        worker.wait();
        eventually(&format!("{tier} {who:?}: nothing is left"), || {
            !processes.iter().any(|pid| lives(*pid))
        });
        eventually("the slot is free", || lock(&slot).try_lock().is_ok());
        slot.config.generation = slot.config.generation.next();
        slot.serve().0.stop();
    }
}

fn lock(slot: &Slot) -> fs::File {
    fs::File::open(slot.config.volume.join("run/lock")).unwrap()
}

/// At most one live worker a slot, also where the supervisor had no time to end anything.
#[test]
fn while_anything_of_a_killed_supervisors_session_lives_its_slot_is_taken() {
    for who in [Who::Own, Who::User] {
        let slot = Slot::new(Tier::Domain, who);
        let (mut worker, mut client, session) = attached(&slot);
        // A daemon that takes its time to die: tail(1) keeps a line without an end.
        let daemon =
            "setsid sh -c '(head -c 300M /dev/zero; sleep 600) | tail' >/dev/null & sleep 600";
        client.prompt(&session, &format!("!sh {daemon}"));
        eventually("the daemon has grown", || {
            worker.descendants().iter().any(|pid| {
                let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
                let size = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
                size.is_some_and(|kb| {
                    kb.trim().trim_end_matches(" kB").parse::<u64>().unwrap() > 290_000
                })
            })
        });
        let of_the_session: Vec<i32> = worker
            .descendants()
            .into_iter()
            .filter(|pid| {
                fs::read_to_string(format!("/proc/{pid}/comm")).unwrap().trim() != "casemate-spawn"
            })
            .collect();
        assert!(of_the_session.len() >= 5, "{of_the_session:?}");
        let lock = lock(&slot);
        assert!(lock.try_lock().is_err());
        worker.signal(Signal::SIGKILL);
        let until = std::time::Instant::now() + crate::harness::LONG;
        // Without a pause: the first moment counts.
        while lock.try_lock().is_err() {
            assert!(std::time::Instant::now() < until, "the slot is never free");
        }
        let left: Vec<&i32> = of_the_session.iter().filter(|pid| lives(**pid)).collect();
        assert!(left.is_empty(), "{who:?}: {left:?} of {of_the_session:?}");
        worker.wait();
    }
}

#[test]
fn noise_and_orphans_and_forwarded_signals() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let (worker, mut client, session) = attached(&slot);
    assert_eq!(client.turn(&session, "!garbage").0, "end_turn");
    // What was no message is in the worker's log, and told apart from what was.
    let said = "the agent wrote no message (not a JSON object";
    eventually("a line in the log", || worker.log().contains(said));
    // A double fork: the orphan is the worker's to reap, and no zombie stays.
    client.shell(&session, "sh -c 'sh -c \"sleep 0.1\" & exit 0'");
    eventually("no zombie", || {
        worker.descendants().iter().all(|pid| {
            fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
        })
    });
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(client.turn(&session, "still here").1, "echo: still here");
    worker.stop();
}

/// Starts a shell script as the agent and says `initialize`: the answer, and how the connection went on.
fn greet_script(script: &str) -> (crate::harness::Worker, Client, String) {
    let mut slot = Slot::new(Tier::Domain, Who::User);
    slot.config.agent.argv = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    let (worker, address) = slot.serve();
    let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
    let id = client.request("initialize", serde_json::json!({"protocolVersion": 1}));
    let answer = loop {
        let message = client.receive().expect("an answer");
        if message["id"] == id {
            break message["error"]["message"].as_str().unwrap_or_default().to_owned();
        }
    };
    (worker, client, answer)
}

#[test]
fn a_program_that_is_no_agent_is_found_out_by_what_it_writes() {
    let (worker, _client, answer) = greet_script("echo not json; exec sleep 600");
    assert!(answer.contains("`not json`") && answer.contains("after `--`"), "{answer}");
    worker.stop();
}

#[test]
fn what_a_program_wrote_before_it_exited_is_beside_its_exit_code() {
    let (mut worker, _client, answer) = greet_script("echo not json; echo usage >&2; exit 7");
    for part in ["exit code 7", "`not json`", "usage"] {
        assert!(answer.contains(part), "{answer}");
    }
    assert_eq!(worker.wait().code(), Some(7));
}

#[test]
fn the_launcher_keeps_no_privilege_but_to_signal_its_worker() {
    for who in [Who::Own, Who::User] {
        let (worker, _) = Slot::new(Tier::Namespace, who).serve();
        let kept = if who == Who::Own && nix::unistd::geteuid().is_root() { 1 << 5 } else { 0 };
        let path = format!("/proc/{}/status", worker.child.id());
        eventually("it has shed the rest", || {
            let status = fs::read_to_string(&path).unwrap();
            let field = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
                u64::from_str_radix(line.trim(), 16).unwrap()
            };
            field("NoNewPrivs:") == 1
                && [field("CapEff:"), field("CapPrm:")] == [kept, kept]
                && [field("CapInh:"), field("CapAmb:")] == [0, 0]
        });
        worker.stop();
    }
}

#[test]
fn a_wrong_command_line_of_the_supervisor_is_a_usage_error() {
    for words in [&["bogus"][..], &[]] {
        let program = env!("CARGO_BIN_EXE_casemate-supervisor");
        let output = std::process::Command::new(program).args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(64), "{words:?}");
    }
}
