//! Measures what SPECIFICATION.md promises of the supervisor: size, the probe, and with a live session its idle memory.
//!
//! Prints `figure | value | aim` rows. Run by `conformance/figures`, which builds for release first.

use std::io;
use std::process::Command;
use std::time::Duration;

use casemate_protocol::matrix::Matrix;
use casemate_suite::place::{Place, program};
use casemate_suite::processes::{self, Process};
use casemate_suite::raw_host::RawHost;

/// A field of `/proc/PID/smaps_rollup` in kilobytes (proc_pid_smaps(5)). A worker is not dumpable: only root reads it.
fn kilobytes(process: &Process, field: &str) -> io::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", process.pid))?;
    let kib: u64 = text
        .lines()
        .find_map(|line| {
            line.strip_prefix(field)?.strip_prefix(':')?.trim().strip_suffix(" kB")?.parse().ok()
        })
        .ok_or_else(|| io::Error::other(format!("no {field} for {}", process.pid)))?;
    Ok(kib * 1024 / 1000)
}

/// Every attack of the catalogue, the median of five runs (and the quickest and slowest) in each tier that this machine has.
fn probe() -> io::Result<()> {
    for tier in ["domain", "namespace"] {
        let mut all: Vec<u64> = Vec::new();
        for _ in 0..5 {
            let place = tempfile::Builder::new().prefix("casemate-figures-").tempdir()?;
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o711);
            std::fs::set_permissions(place.path(), mode)?;
            let output = Command::new(program("casemate-supervisor"))
                .args(["probe", "machine", tier])
                .arg(place.path())
                .output()?;
            let matrix: Option<Matrix> = serde_json::from_slice(&output.stdout).ok();
            all.extend(matrix.map(|matrix| matrix.took_ms));
        }
        all.sort_unstable();
        match all.as_slice() {
            [quickest, _, median, _, slowest] => {
                println!(
                    "every attack tried, tier {tier} | {median} ms ({quickest} to {slowest}) | 300 ms"
                );
            }
            _ => println!("every attack tried, tier {tier} | not to be had here | 300 ms"),
        }
    }
    Ok(())
}

/// Thousandths of a megabyte as megabytes with two digits.
fn megabytes(kilobytes: u64) -> String {
    format!("{}.{:02} MB", kilobytes / 1000, kilobytes % 1000 / 10)
}

fn main() -> io::Result<()> {
    let size = std::fs::metadata(program("casemate-supervisor"))?.len();
    println!("supervisor, stripped release binary | {} | 5 MB", megabytes(size / 1000));

    probe()?;
    let place = Place::new();
    let repository = place.repository().display().to_string();
    let mut host = RawHost::start(&mut place.bridge(&["--repo", &repository]))?;
    host.initialize().map_err(|error| io::Error::other(error.to_string()))?;
    let session = host.new_session(&place).map_err(|error| io::Error::other(error.to_string()))?;
    host.say(&session, "hello").map_err(|error| io::Error::other(error.to_string()))?;
    std::thread::sleep(Duration::from_secs(3));

    let workers: Vec<Process> = processes::ours()
        .into_iter()
        .filter(|process| process.command.contains("casemate-supervisor"))
        .collect();
    // By age: the launcher, its child that is PID 1 inside, and that one's spawner.
    let names = ["launcher", "supervisor", "spawner"];
    let mut proportional = 0;
    for (name, worker) in names.iter().zip(&workers) {
        proportional += kilobytes(worker, "Pss")?;
        println!(
            "{name}'s resident memory, idle, one attachment | {} | {}",
            megabytes(kilobytes(worker, "Rss")?),
            if *name == "supervisor" { "5 MB" } else { "-" }
        );
    }
    println!("all {}, shared pages counted once | {} | -", workers.len(), megabytes(proportional));
    host.quit(&place);
    Ok(())
}
