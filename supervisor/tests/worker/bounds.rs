//! What one session takes of the machine, and that neither the next session nor the supervisor suffers.

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use casemate_protocol::ids::Generation;
use casemate_protocol::tier::Tier;
use casemate_protocol::token::Audience;
use casemate_protocol::usage::HeldBy;
use casemate_protocol::worker::{AgentState, StartEvent};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::client::{Client, Closed};
use crate::harness::{Slot, Who, Worker, call, eventually, lives};
use crate::many::Many;

/// Each way that the kernel counts, and does not.
pub(crate) const BOTH: [Tier; 2] = [Tier::Domain, Tier::Namespace];

/// A slot whose policy has these bounds.
fn bounded(tier: Tier, processes: &str, disk: &str, files: &str) -> Slot {
    let mut slot = Slot::new(tier, Who::User);
    for (from, to) in [
        ("processes = 2048", format!("processes = {processes}")),
        ("disk = \"64GiB\"", format!("disk = \"{disk}\"")),
        ("files = 4_000_000", format!("files = {files}")),
    ] {
        assert!(slot.config.policy.contains(from));
        slot.config.policy = slot.config.policy.replace(from, &to);
    }
    slot
}

pub(crate) fn attached(slot: &Slot) -> (Worker, SocketAddr, Client, String) {
    let (worker, address) = slot.serve();
    let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
    client.initialize();
    let session = client.new_session();
    (worker, address, client, session)
}

/// Reads up to the close: everything that was said, and why it ended.
fn end_of(client: &mut Client) -> (String, String) {
    let mut said = String::new();
    loop {
        match client.receive() {
            Ok(message) => said += &message.to_string(),
            Err(Closed::With(code, reason)) => return (said, format!("{code} {reason}")),
            Err(Closed::Without) => return (said, "no reason".to_owned()),
        }
    }
}

/// Doubles until it is stopped. Where that is by a fork that fails, all of it may die; the eighty before it stay.
const BOMB: &str =
    "i=0; while [ $i -lt 80 ]; do sleep 1000 & i=$((i+1)); done; f() { f | f & }; f; wait";

#[test]
fn a_fork_bomb_in_one_session_is_bounded_and_the_next_and_both_supervisors_go_on() {
    for tier in BOTH {
        let a = bounded(tier, "120", "64GiB", "4000000");
        let b = Slot::new(tier, Who::User);
        let (mut bombed, bombed_at, mut bomber, its_session) = attached(&a);
        let (worker, _, mut neighbour, session) = attached(&b);
        let before = a.status(bombed_at).usage;
        assert_eq!(before.tasks_limit, Some(120));
        bomber.prompt(&its_session, &format!("!sh {BOMB}"));
        for round in 0..10 {
            let said = neighbour.shell(&session, &format!("echo round {round}"));
            assert_eq!(said.lines().next(), Some(format!("round {round}").as_str()), "{tier}");
        }
        match tier {
            Tier::Domain => {
                assert_eq!(before.tasks_held_by, HeldBy::Watch);
                let (said, closed) = end_of(&mut bomber);
                let cause = "ran more than 120 processes and threads";
                assert!(said.contains(cause) && closed.contains(cause), "{said} {closed}");
                assert_eq!(bombed.wait().code(), Some(76), "{}", bombed.log());
            }
            _ => {
                assert_eq!(before.tasks_held_by, HeldBy::Kernel);
                // It may burn, and no more than burn.
                assert_eq!(call(bombed_at, "GET", "/healthz", None, "").0, 200);
                eventually("it is counted", || a.status(bombed_at).usage.peak_tasks > 80);
                let now = a.status(bombed_at).usage;
                assert!(now.peak_tasks <= 120, "{now:?}");
                bombed.stop();
            }
        }
        worker.stop();
    }
}

/// Only a worker that is wedged takes this long, on a machine however busy.
const WEDGED: Duration = Duration::from_secs(20);

/// Both sessions are one user's, in one worker: the spawner's count is all that is between them. How long it takes is a figure, printed:
/// `cargo test -p casemate-supervisor --test worker one_worker -- --nocapture`.
#[test]
fn a_fork_bomb_in_one_worker_is_ended_while_the_other_session_and_the_worker_answer() {
    let many = Many::new(Who::User);
    let (worker, address) = many.serve();
    let mut neighbour = many.hosted(address);
    let mut answers = |rounds: usize| {
        let (mut health, mut turns) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            let began = Instant::now();
            assert_eq!(call(address, "GET", "/healthz", None, "").0, 200);
            health.push(began.elapsed());
            let began = Instant::now();
            let said = neighbour.shell(&format!("echo round {round}"));
            turns.push(began.elapsed());
            assert_eq!(said.lines().next(), Some(format!("round {round}").as_str()));
        }
        [health, turns]
    };
    let before = answers(20).map(middle_and_most);
    let [mut health, mut turns] = [Vec::new(), Vec::new()];
    for _ in 0..5 {
        let mut config = many.session();
        config.policy = config.policy.replace("processes = 2048", "processes = 400");
        let mut bomber = many.hosted_as(address, config);
        bomber.client.prompt(&bomber.conversation, &format!("!sh {BOMB}"));
        // As it doubles, and as it is ended.
        let [its_health, its_turns] = answers(4);
        health.extend(its_health);
        turns.extend(its_turns);
        let (said, closed) = end_of(&mut bomber.client);
        let cause = "ran more than 400 processes and threads";
        assert!(said.contains(cause) && closed.contains(cause), "{said} {closed}");
    }
    let beside = [health, turns].map(middle_and_most);
    for (what, before, beside) in
        [("healthz", before[0], beside[0]), ("the other session's turn", before[1], beside[1])]
    {
        println!(
            "figure one worker, {what}: median {:?}, most {:?}; beside a fork bomb {:?}, {:?}",
            before.0, before.1, beside.0, beside.1
        );
        assert!(beside.1 < WEDGED, "{what}: {:?}", beside.1);
    }
    assert!(neighbour.shell("echo still here").contains("still here"));
    worker.stop();
}

fn middle_and_most(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort_unstable();
    (times[times.len() / 2], *times.last().unwrap())
}

/// As a Pod with `hostUsers: false` has it: PID 1, and a user namespace that nobody else is in. Below another init there may be
/// more workers of the same user, which the kernel would count together.
#[test]
fn in_tier_domain_the_kernel_counts_a_worker_that_is_pid_1_in_its_own_user_namespace() {
    let own = ["unshare", "--user", "--map-current-user"];
    let first = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    for (words, held_by) in
        [(own.to_vec(), HeldBy::Watch), ([&own[..], &first].concat(), HeldBy::Kernel)]
    {
        let slot = bounded(Tier::Domain, "120", "64GiB", "4000000");
        let mut worker = slot.start_by(words.into_iter().map(str::to_owned).collect());
        let event = worker.outcome();
        let StartEvent::Ready { address, .. } = event else {
            panic!("{event:?}\n{}", worker.log());
        };
        let status = slot.status(address);
        assert_eq!(status.usage.tasks_held_by, held_by);
        let whose = match held_by {
            HeldBy::Kernel => "this worker's alone, user namespace own",
            HeldBy::Watch => "shared with others, user namespace own",
        };
        assert!(status.enforcement.iter().any(|line| line.contains(whose)), "{status:?}");
        if held_by == HeldBy::Watch {
            worker.stop();
            continue;
        }
        let mut bomber = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
        bomber.initialize();
        let session = bomber.new_session();
        bomber.prompt(&session, &format!("!sh {BOMB}"));
        eventually("it is counted", || slot.status(address).usage.peak_tasks > 80);
        assert_eq!(call(address, "GET", "/healthz", None, "").0, 200);
        // At its bound it is refused more, and is not ended for it.
        let now = slot.status(address);
        assert!(now.usage.peak_tasks <= 120, "{now:?}");
        assert!(matches!(now.agent, AgentState::Running { .. }), "{now:?}");
        // unshare(1) passes no TERM on.
        let init = worker.descendants()[0];
        kill(Pid::from_raw(init), Signal::SIGTERM).unwrap();
        assert_eq!(worker.wait().code(), Some(0), "{}", worker.log());
    }
}

/// Median of twenty, in microseconds.
fn median(mut once: impl FnMut()) -> u128 {
    let mut times: Vec<u128> = (0..20)
        .map(|_| {
            let begin = Instant::now();
            once();
            begin.elapsed().as_micros()
        })
        .collect();
    times.sort_unstable();
    times[10]
}

/// How long it takes then is a figure, printed beside what it took before: `cargo test -p casemate-supervisor --test worker
/// burns -- --nocapture`.
#[test]
fn while_a_session_burns_processors_and_forks_its_supervisor_and_the_next_session_answer() {
    for tier in BOTH {
        let (a, b) = (bounded(tier, "400", "64GiB", "4000000"), Slot::new(tier, Who::User));
        let (burning, burning_at, mut burner, its_session) = attached(&a);
        let (worker, _, mut neighbour, session) = attached(&b);
        let mut measure = |when: &str| {
            let health =
                median(|| assert_eq!(call(burning_at, "GET", "/healthz", None, "").0, 200));
            let status = median(|| drop(a.status(burning_at)));
            let turn = median(|| assert!(neighbour.shell(&session, "echo x").contains('x')));
            println!(
                "figure {tier} {when}: healthz {health} us, status {status} us, the next session's turn {turn} us"
            );
        };
        measure("before");
        let busy = "i=0; while [ $i -lt 150 ]; do (while :; do :; done) & i=$((i+1)); done";
        let forks = "i=0; while [ $i -lt 8 ]; do (while :; do (:); done) & i=$((i+1)); done";
        burner.prompt(&its_session, &format!("!sh {busy}; {forks}; wait"));
        eventually("it burns", || a.status(burning_at).usage.tasks > 150);
        measure("beside 150 loops and 8 that fork");
        worker.stop();
        burning.stop();
    }
}

#[test]
fn whoever_prompts_is_told_that_the_kernel_starts_no_more() {
    let slot = bounded(Tier::Namespace, "60", "64GiB", "4000000");
    let (worker, address, mut client, session) = attached(&slot);
    let id =
        client.prompt(&session, "!sh (while sleep 60 & do :; done) 2>/dev/null; sleep 3; true");
    let (_, updates) = client.answer(id);
    let text = format!("{updates:?}");
    assert!(text.contains("of at most 60 processes and threads"), "{text}");
    let metrics = call(address, "GET", "/metrics", Some(&slot.token(Audience::Control)), "").1;
    assert!(metrics.contains("casemate_tasks_limit 60\n"), "{metrics}");
    worker.stop();
}

#[test]
fn a_loop_that_writes_is_told_and_then_ended_and_may_clean_up_in_the_next_generation() {
    for tier in BOTH {
        let mut slot = bounded(tier, "2048", "24MiB", "4000000");
        let (mut worker, address, mut client, session) = attached(&slot);
        client.shell(&session, "head -c 26000000 /dev/urandom > big; chmod 0 .git/hooks");
        eventually("it was measured", || {
            slot.status(address).usage.disk.is_some_and(|disk| disk.bytes > 24 << 20)
        });
        let id = client.prompt(&session, "!sh true");
        let (_, updates) = client.answer(id);
        assert!(format!("{updates:?}").contains("on disk of the 24MiB"), "{tier} {updates:?}");
        // What is behind a closed door counts as well.
        let hidden = "mkdir h; head -c 26000000 /dev/urandom > h/big; chmod 0 h; chmod 300 . \"$HOME\"; sleep 60";
        client.prompt(&session, &format!("!sh {hidden}"));
        let (said, closed) = end_of(&mut client);
        assert!(said.contains("on disk of the 24MiB") && closed.starts_with("4003"), "{said}");
        assert_eq!(worker.wait().code(), Some(76));

        slot.config.generation = Generation(2);
        let (worker, address, mut client, session) = attached(&slot);
        assert_eq!(client.turn(&session, "!sh chmod 700 . \"$HOME\" h; rm -r h big").0, "end_turn");
        eventually("it is measured again", || {
            slot.status(address).usage.disk.is_some_and(|disk| disk.bytes < 24 << 20)
        });
        worker.stop();
    }
}

#[test]
fn a_loop_that_makes_files_is_ended() {
    let slot = bounded(Tier::Namespace, "2048", "64GiB", "600");
    let (mut worker, _, mut client, session) = attached(&slot);
    let script = "i=0; while [ $i -lt 2000 ]; do : > f$i; i=$((i+1)); done; sleep 60";
    client.prompt(&session, &format!("!sh {script}"));
    let (said, _) = end_of(&mut client);
    assert!(said.contains("files of the 600"), "{said}");
    assert_eq!(worker.wait().code(), Some(76));
}

#[test]
fn an_agent_that_stops_itself_and_its_children_ends_all_the_same() {
    for tier in BOTH {
        let mut slot = Slot::new(tier, Who::User);
        slot.config.grace = 1;
        let (worker, address, mut client, session) = attached(&slot);
        client
            .prompt(&session, "!sh sleep 300 & kill -STOP $!; kill -STOP -1; kill -STOP $PPID $$");
        let stopped = |worker: &Worker| {
            worker.descendants().iter().any(|pid| {
                fs::read_to_string(format!("/proc/{pid}/stat"))
                    .is_ok_and(|stat| stat.contains(") T "))
            })
        };
        eventually("something of it is stopped", || stopped(&worker));
        // Neither the supervisor nor the spawner is.
        assert_eq!(call(address, "GET", "/healthz", None, "").0, 200);
        slot.status(address);
        let processes = worker.descendants();
        worker.stop();
        eventually("nothing is left", || !processes.iter().any(|pid| lives(*pid)));
    }
}

#[test]
fn five_thousand_orphans_are_reaped() {
    let slot = Slot::new(Tier::Namespace, Who::User);
    let (worker, address, mut client, session) = attached(&slot);
    let script = "i=0; while [ $i -lt 5000 ]; do (:&); i=$((i+1)); done; echo made";
    assert!(client.shell(&session, script).contains("made"));
    eventually("no zombie is left", || slot.status(address).usage.processes <= 3);
    let metrics = call(address, "GET", "/metrics", Some(&slot.token(Audience::Control)), "").1;
    let reaped =
        metrics.lines().find_map(|line| line.strip_prefix("casemate_orphans_reaped_total "));
    assert!(reaped.unwrap().parse::<u32>().unwrap() >= 5000, "{metrics}");
    worker.stop();
}

/// The count is a thread's, which a bomb can leave without a turn. Beyond all that the user had and may come to have, the kernel stops it.
#[test]
fn where_a_session_is_held_by_count_the_kernel_holds_its_user_well_above_that() {
    let slot = bounded(Tier::Domain, "400", "64GiB", "4000000");
    let (worker, address, mut client, session) = attached(&slot);
    let limits = client.shell(&session, "grep processes /proc/self/limits; ulimit -p 999999");
    let line = limits.lines().find(|line| line.starts_with("Max processes")).unwrap();
    let [soft, hard] = [2, 3].map(|at| line.split_whitespace().nth(at).unwrap());
    assert_eq!(soft, hard, "{limits}");
    let limit: u32 = hard.parse().expect("a number, not unlimited");
    assert!(limit > 400 + 1024, "others of the user's have room: {limits}");
    let raised =
        client.shell(&session, "ulimit -p unlimited 2>&1; grep processes /proc/self/limits");
    assert!(raised.contains(&format!(" {limit} ")), "{raised}");
    let said = format!("by count, and all of the user's by the kernel at {limit}");
    let status = slot.status(address);
    assert_eq!(status.usage.tasks_held_by, HeldBy::Watch);
    assert!(status.enforcement.iter().any(|line| line.contains(&said)), "{status:?}");
    worker.stop();
}

#[test]
fn the_status_says_whom_a_session_runs_as_and_who_holds_its_bounds() {
    for (tier, who, says) in [
        (Tier::Domain, Who::User, "shared with others, user namespace the machine's"),
        (Tier::Namespace, Who::User, "this worker's alone, user namespace own"),
    ] {
        let slot = Slot::new(tier, who);
        let (worker, address) = slot.serve();
        let lines = slot.status(address).enforcement;
        assert!(lines.iter().any(|line| line.contains(says)), "{lines:?}");
        assert!(lines.iter().any(|line| line.starts_with("bounds processes 2048")), "{lines:?}");
        worker.stop();
    }
}
