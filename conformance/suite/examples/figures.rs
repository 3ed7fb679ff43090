//! Measures what SPECIFICATION.md promises of the supervisor and that needs a live session: size and idle memory.
//!
//! Prints `figure | value | aim` rows. Run by `conformance/figures`, which builds for release first.

use std::io;
use std::time::Duration;

use casemate_suite::place::{Place, program};
use casemate_suite::processes::{self, Process};
use casemate_suite::raw_host::RawHost;

/// A field of `/proc/PID/status` in KiB (proc(5)).
fn kib(process: &Process, field: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid)).ok()?;
    status.lines().find_map(|line| {
        line.strip_prefix(field)?.strip_prefix(':')?.trim().strip_suffix(" kB")?.trim().parse().ok()
    })
}

/// Thousandths of a megabyte as megabytes with two digits.
fn megabytes(kilobytes: u64) -> String {
    format!("{}.{:02} MB", kilobytes / 1000, kilobytes % 1000 / 10)
}

fn main() -> io::Result<()> {
    let size = std::fs::metadata(program("casemate-supervisor"))?.len();
    println!("supervisor, stripped release binary | {} | 5 MB", megabytes(size / 1000));

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
    let mut whole = 0;
    for worker in &workers {
        let resident = kib(worker, "VmRSS").unwrap_or_default() * 1024 / 1000;
        let own = kib(worker, "RssAnon").unwrap_or_default() * 1024 / 1000;
        whole += resident;
        println!(
            "  process {} ({} threads), own pages {} | {} |",
            worker.pid,
            std::fs::read_dir(format!("/proc/{}/task", worker.pid)).map_or(0, Iterator::count),
            megabytes(own),
            megabytes(resident),
        );
    }
    println!(
        "supervisor's resident memory, idle, one attachment, {} processes | {} | 5 MB",
        workers.len(),
        megabytes(whole)
    );
    host.quit(&place);
    Ok(())
}
