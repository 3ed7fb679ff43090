//! What the relay takes and how fast it is, beside the least that a relay can be ([`limit`]), in the same run, in turns.
//!
//! Four throughput tests and a round trip, all with real processes on loopback: a client by hand ([`client`]), the relay, an
//! agent ([`agent`]) that floods or echoes. At the resumable door all is on: the agent is confined, each line is read as ACP,
//! updates go to the journal, messages are numbered, acknowledged and kept until then. The limit does nothing of it.
//!
//! The ratios are what can be compared: each is a median over the rounds of one run. `CPU` is the relay's own processor time
//! for a message, which a loaded machine tells better than the clock does.
//!
//! `ROUNDS=7 cargo bench -p casemate-supervisor --bench relay [TEST...]`; WEBSOCKETD=/path names one to measure beside.
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on ends there")]

mod agent;
mod client;
mod limit;
mod memory;
mod websocket;
mod worker;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use client::Client;
use worker::Worker;

/// One of the tests.
#[derive(Clone, Copy)]
struct Test {
    name: &'static str,
    /// Of a line, its end included.
    length: usize,
    count: usize,
    /// How many are under way at once; `None` where the agent floods.
    window: Option<usize>,
    aim: &'static str,
}

const TESTS: [Test; 5] = [
    Test { name: "flood of 1 KiB", length: 1024, count: 200_000, window: None, aim: "0.60" },
    Test {
        name: "echo of 1 KiB, 64 under way",
        length: 1024,
        count: 100_000,
        window: Some(64),
        aim: "0.60",
    },
    Test { name: "flood of 64 KiB", length: 65_536, count: 4_000, window: None, aim: "0.60" },
    Test {
        name: "echo of 64 KiB, 4 under way",
        length: 65_536,
        count: 4_000,
        window: Some(4),
        aim: "0.60",
    },
    Test { name: "round trip of 1 KiB", length: 1024, count: 10_000, window: Some(1), aim: "1.15" },
];

/// A relay by its name, and a round with it.
type Peer = (&'static str, fn(Test) -> Round);

/// What one round gave.
#[derive(Debug, Clone, Copy)]
struct Round {
    elapsed: Duration,
    cpu: Duration,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("agent") => return agent::run(),
        Some("limit") => return limit::run(&arguments[2..]),
        _ => {}
    }
    // Cargo's tests run benchmarks once to see that they work.
    let real = arguments.iter().any(|word| word == "--bench");
    let rounds = std::env::var("ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(7);
    let chosen: Vec<&String> =
        arguments[1..].iter().filter(|word| !word.starts_with("--")).collect();
    let wanted =
        |name: &str| chosen.is_empty() || chosen.iter().any(|word| name.contains(word.as_str()));
    for test in TESTS.into_iter().filter(|test| wanted(test.name)) {
        let (rounds, test) = match real {
            true => (rounds, test),
            false => (1, Test { count: test.count.min(300), ..test }),
        };
        compare(test, rounds);
    }
    if wanted("memory") {
        memory::report(real);
    }
}

fn compare(test: Test, rounds: usize) {
    let mut peers: Vec<Peer> = vec![("limit", of_limit), ("door", of_door)];
    // It hangs with much under way.
    if std::env::var_os("WEBSOCKETD").is_some() && test.length * test.window.unwrap_or(1) < 100_000
    {
        peers.push(("websocketd", of_websocketd));
    }
    let mut seen: Vec<Vec<Round>> = vec![Vec::new(); peers.len()];
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..peers.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            seen[at].push(peers[at].1(test));
        }
    }
    for (at, (name, _)) in peers.iter().enumerate() {
        let each = |of: fn(&Round) -> Duration| {
            let mut all: Vec<f64> = seen[at].iter().map(|round| of(round).as_secs_f64()).collect();
            median(&mut all) / test.count as f64
        };
        let (time, cpu) = (each(|round| round.elapsed), each(|round| round.cpu) * 1e6);
        let speed = if test.window == Some(1) {
            format!("{:.1} us", time * 1e6)
        } else if test.length > 10_000 {
            format!("{:.0} MB/s", test.length as f64 / time / 1e6)
        } else {
            format!("{:.0} messages/s", 1.0 / time)
        };
        let mut ratios: Vec<f64> = seen[at]
            .iter()
            .zip(&seen[0])
            .map(|(round, limit)| match test.window {
                Some(1) => round.elapsed.as_secs_f64() / limit.elapsed.as_secs_f64(),
                _ => limit.elapsed.as_secs_f64() / round.elapsed.as_secs_f64(),
            })
            .collect();
        let ratio = median(&mut ratios);
        let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
        let aim = if *name == "door" { test.aim } else { "-" };
        println!(
            "{}, {name} | {speed}, CPU {cpu:.1} us, {ratio:.2} of the limit ({least:.2} to {most:.2}) | {aim}",
            test.name
        );
    }
}

fn median(all: &mut [f64]) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Runs a test on a client whose agent has been told.
fn drive(client: &mut Client, test: Test) {
    let line = agent::note(test.length);
    let line = &line[..line.len() - 1];
    let expected = if test.window.is_some() { line.to_vec() } else { agent::update(test.length) };
    client.expected = expected.trim_ascii_end().to_vec();
    let (mut sent, mut got) = (0, 0);
    while got < test.count {
        while let Some(window) = test.window
            && sent < test.count
            && sent - got < window
            && client.may(line.len())
        {
            client.push(line);
            sent += 1;
        }
        client.flush();
        got += client.read();
    }
}

fn command(test: Test) -> String {
    match test.window {
        Some(_) => "echo".into(),
        None => format!("flood {} {}", test.count, test.length),
    }
}

fn of_limit(test: Test) -> Round {
    let this = std::env::current_exe().unwrap().display().to_string();
    let mut relay =
        Command::new(&this).args(["limit", &this, "agent"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut port = String::new();
    BufReader::new(relay.stdout.take().unwrap()).read_line(&mut port).unwrap();
    plain(test, &mut relay, port.trim().parse().unwrap())
}

fn of_websocketd(test: Test) -> Round {
    // It says its port to nobody: one that was just free.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut relay = Command::new(std::env::var_os("WEBSOCKETD").unwrap())
        .args(["--address=127.0.0.1", "--loglevel=fatal", &format!("--port={port}")])
        .arg(std::env::current_exe().unwrap())
        .arg("agent")
        .spawn()
        .unwrap();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        std::thread::sleep(Duration::from_millis(5));
    }
    plain(test, &mut relay, port)
}

fn plain(test: Test, relay: &mut Child, port: u16) -> Round {
    let mut client = Client::plain(port);
    let round = timed(relay.id(), || {
        client.push(command(test).as_bytes());
        drive(&mut client, test);
    });
    drop(client);
    let _ = relay.kill();
    let _ = relay.wait();
    round
}

fn of_door(test: Test) -> Round {
    let worker = Worker::start();
    let mut client = worker.attach();
    let prompt = format!(
        r#"{{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{{"sessionId":"s","prompt":[{{"type":"text","text":"{}"}}]}}}}"#,
        command(test)
    );
    if test.window.is_some() {
        client.ask(&prompt);
        timed(worker.pid(), || drive(&mut client, test))
    } else {
        timed(worker.pid(), || {
            client.push(prompt.as_bytes());
            // And the answer.
            drive(&mut client, Test { count: test.count + 1, ..test });
        })
    }
}

fn timed(relay: u32, run: impl FnOnce()) -> Round {
    let (before, since) = (cpu(relay), Instant::now());
    run();
    Round { elapsed: since.elapsed(), cpu: cpu(relay).saturating_sub(before) }
}

/// A process's own processor time: proc_pid_stat(5), fields 14 and 15.
fn cpu(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum();
    // A hundredth of a second on every Linux (proc_pid_stat(5), sysconf(_SC_CLK_TCK)).
    Duration::from_millis(ticks * 10)
}
