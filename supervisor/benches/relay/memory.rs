//! What a reader who stops costs, and how fast what was kept for one comes back.

use std::time::{Duration, Instant};

use crate::worker::Worker;

/// A field of `/proc/PID/status` in kilobytes of 1000 bytes.
fn field(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    let kib: u64 = line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap();
    kib * 1024 / 1000
}

fn prompt(count: usize) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{{"sessionId":"s","prompt":[{{"type":"text","text":"flood {count} 1024"}}]}}}}"#
    )
}

/// Waits until as much lies in the spool as the flood has, but for what is under way.
fn flooded(worker: &Worker, bytes: u64) {
    while worker.spooled() + (12 << 20) < bytes {
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut before = 0;
    while worker.spooled() != before {
        before = worker.spooled();
        std::thread::sleep(Duration::from_millis(300));
    }
}

pub(crate) fn report(real: bool) {
    let count = if real { 200_000 } else { 20_000 };
    let worker = Worker::start();
    let mut client = worker.attach();
    let idle = field(worker.pid(), "VmRSS");
    client.push(prompt(count).as_bytes());
    client.flush();
    flooded(&worker, count as u64 * 1024);
    println!(
        "memory: supervisor beside a reader who stopped, {} MB of lines of 1 KiB, {} MB in the spool | {:.1} MB, at most {:.1} MB (idle {:.1} MB) | 12 MB",
        count * 1024 / 1_000_000,
        worker.spooled() / 1_000_000,
        field(worker.pid(), "VmRSS") as f64 / 1000.0,
        field(worker.pid(), "VmHWM") as f64 / 1000.0,
        idle as f64 / 1000.0
    );
    drop(worker);

    let rounds = if real { 7 } else { 1 };
    let mut times: Vec<f64> = (0..rounds)
        .map(|_| {
            let worker = Worker::start();
            let mut client = worker.attach();
            client.push(prompt(10_000).as_bytes());
            client.flush();
            client = client.cut();
            flooded(&worker, 10_000 * 1024);
            let since = Instant::now();
            client = client.again(worker.port);
            client.until(3 + 10_000);
            since.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!(
        "replay of 10 MB to a client that comes back, its handshake included | {:.0} ms ({:.0} to {:.0}) | 200 ms",
        times[times.len() / 2],
        times[0],
        times[times.len() - 1]
    );
}
