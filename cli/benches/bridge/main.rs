//! What `casemate acp` takes and how fast it is, beside the least that a bridge can be, in the same run, in turns.
//!
//! A host on pipes, the bridge, a worker, an agent, all of them real processes: `casemate acp` and its worker with all on, and the limit
//! ([`limit`]) twice: a bridge of two blocking threads that looks at nothing ([`least`]), over the relay that the worker is held against
//! (`supervisor/benches/relay`). A round trip is a prompt and its answer, since that is what passes a bridge both ways.
//!
//! The ratios are what can be compared: each is a median over the rounds of one run. `CPU` is the bridge's own processor time for a
//! message.
//!
//! `ROUNDS=7 cargo bench -p casemate --bench bridge [TEST...]`
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on ends there")]
#![allow(dead_code, reason = "of what it shares with the other benchmark it needs a part")]

#[path = "../../../supervisor/benches/relay/agent.rs"]
mod agent;
mod least;
#[path = "../../../supervisor/benches/relay/limit.rs"]
mod limit;
mod scene;
#[path = "../../../supervisor/benches/relay/websocket.rs"]
mod websocket;

use std::time::{Duration, Instant};

use scene::{House, Scene};

/// One of the tests.
#[derive(Clone, Copy)]
struct Test {
    name: &'static str,
    /// Of a line, its end included.
    length: usize,
    count: usize,
    /// The agent says them all by itself; else each is a prompt and its answer.
    floods: bool,
}

const TESTS: [Test; 3] = [
    Test { name: "flood of 1 KiB", length: 1024, count: 200_000, floods: true },
    Test { name: "flood of 64 KiB", length: 65_536, count: 4_000, floods: true },
    Test { name: "round trip of a prompt of 1 KiB", length: 1024, count: 3_000, floods: false },
];

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
        Some("least") => return least::run(arguments[2].parse().unwrap()),
        _ => {}
    }
    // Cargo's tests run benchmarks once to see that they work.
    let real = arguments.iter().any(|word| word == "--bench");
    let rounds = std::env::var("ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(7);
    let chosen: Vec<&String> =
        arguments[1..].iter().filter(|word| !word.starts_with("--")).collect();
    let wanted =
        |name: &str| chosen.is_empty() || chosen.iter().any(|word| name.contains(word.as_str()));
    let house = House::new();
    for test in TESTS.into_iter().filter(|test| wanted(test.name)) {
        let (rounds, test) = match real {
            true => (rounds, test),
            false => (1, Test { count: test.count.min(300), ..test }),
        };
        compare(&house, test, rounds);
    }
}

fn compare(house: &House, test: Test, rounds: usize) {
    let mut seen: [Vec<Round>; 2] = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        for at in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            let scene = if at == 0 { Scene::least() } else { Scene::bridge(house) };
            seen[at].push(drive(scene, test));
        }
    }
    for (at, name) in ["limit", "casemate acp"].into_iter().enumerate() {
        let each = |of: fn(&Round) -> Duration| {
            let mut all: Vec<f64> = seen[at].iter().map(|round| of(round).as_secs_f64()).collect();
            median(&mut all) / test.count as f64
        };
        let (time, cpu) = (each(|round| round.elapsed), each(|round| round.cpu) * 1e6);
        let speed = match (test.floods, test.length > 10_000) {
            (false, _) => format!("{:.1} us", time * 1e6),
            (true, true) => format!("{:.0} MB/s", test.length as f64 / time / 1e6),
            (true, false) => format!("{:.0} messages/s", 1.0 / time),
        };
        let mut ratios: Vec<f64> = seen[at]
            .iter()
            .zip(&seen[0])
            .map(|(round, limit)| (round.elapsed.as_secs_f64(), limit.elapsed.as_secs_f64()))
            .map(|(own, limit)| if test.floods { limit / own } else { own / limit })
            .collect();
        let ratio = median(&mut ratios);
        let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
        println!(
            "{}, {name} | {speed}, CPU {cpu:.1} us, {ratio:.2} of the limit ({least:.2} to {most:.2})",
            test.name
        );
    }
}

fn drive(mut scene: Scene, test: Test) -> Round {
    let text = match test.floods {
        true => format!("flood {} {}", test.count, test.length),
        false => format!("nothing {}", "x".repeat(test.length - 200)),
    };
    let (before, since) = (scene.cpu(), Instant::now());
    if test.floods {
        scene.prompt(&text);
        let (updates, bytes) = scene.until_answered();
        assert_eq!(updates, test.count, "lost or doubled");
        assert!(bytes >= test.count * (test.length - 100));
    } else {
        for _ in 0..test.count {
            scene.prompt(&text);
            assert_eq!(scene.until_answered().0, 0);
        }
    }
    Round { elapsed: since.elapsed(), cpu: scene.cpu().saturating_sub(before) }
}

/// Sorts.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
