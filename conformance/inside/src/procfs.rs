//! What /proc shows of other processes.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::PathBuf;

use rustix::process::Pid;

use crate::attempt::{Report, SUCCEEDED};
use crate::process::NOT_HERE;

pub(crate) fn path(pid: Pid, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{name}"))
}

/// Arguments, separated by spaces.
pub(crate) fn command_line(pid: Pid) -> io::Result<String> {
    let bytes = fs::read(path(pid, "cmdline"))?;
    Ok(String::from_utf8_lossy(&bytes).replace('\0', " "))
}

/// Opens and uses an entry: a listing for the folders, a byte for the files.
pub(crate) fn open(pid: Pid, name: &str) -> io::Result<()> {
    let path = path(pid, name);
    match name {
        "fd" | "root" | "cwd" => fs::read_dir(path)?.next().transpose().map(drop),
        // Address 0 is never mapped: that it can be opened is the hole.
        "mem" => File::open(path).map(drop),
        _ => File::open(path)?.read(&mut [0]).map(drop),
    }
}

/// Tries each entry of `pid`, if that is the process whose command line holds `mark`.
pub(crate) fn all(pid: Pid, mark: &str, report: &mut Report<'_>) {
    let target = format!("process {pid}");
    match command_line(pid) {
        Ok(line) if !line.contains(mark) => {
            report.say("open /proc/PID", &target, NOT_HERE, "the number is another process here");
            return;
        }
        seen => {
            report.result("open /proc/PID/cmdline", &target, seen);
        }
    }
    for name in ["status", "environ", "mem", "maps", "fd/0", "cwd", "root"] {
        report.result(&format!("open /proc/PID/{name}"), &target, open(pid, name));
    }
    report.result("list /proc/PID/fd", &target, open(pid, "fd"));
}

/// Looks through /proc for a command line that holds `mark`.
pub(crate) fn find(mark: &str, report: &mut Report<'_>) {
    let entries = match fs::read_dir("/proc") {
        Ok(entries) => entries,
        Err(error) => {
            report.result("list processes", "/proc", Err::<(), _>(error));
            return;
        }
    };
    let mut seen = 0u32;
    for entry in entries.flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(pid) = pid.and_then(Pid::from_raw) else { continue };
        let Ok(line) = command_line(pid) else { continue };
        seen += 1;
        if line.contains(mark) {
            report.say("find by command line", mark, SUCCEEDED, &format!("process {pid}: {line}"));
            return;
        }
    }
    report.say("find by command line", mark, "nothing found", &format!("{seen} processes seen"));
}
