//! What a hostile agent tries, one verb an attack, run inside a confined session.
//!
//! Each attempt is one line of JSON on stdout, an [`Attempt`]. This program judges nothing: whoever runs it knows
//! what the tier promises. An attempt is a real one; where two of a kind could destroy the victim, the harmless one
//! comes first and the other follows only where the kernel refused the first.
//!
//! The verbs try a few dozen ways on a target that is named to them; the [`catalogue`] holds every attack that is known,
//! with what each tier promises about it.

mod attempt;
pub mod catalogue;
mod files;
mod kernel;
mod network;
mod process;
mod procfs;
mod scan;
mod watch;

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use attempt::Report;
pub use attempt::{Attempt, SUCCEEDED};

/// How it is called.
pub const USAGE: &str = "\
casemate inside VERB...
  scan NAME CONTENT SINCE
                      look for a file name, and in what changed since that second of the epoch for a content, on every
                      writable mount; both written backwards
  watch FOLDER STOP   the names that inotify tells of a folder, until the file STOP is there
  files PATH          everything that can be done to a file by its absolute path
  process PID MARK    signals, ptrace, memory, limits; MARK, written backwards, is in its command line
  procfs PID MARK     what /proc shows of it
  find MARK           look for a process by its command line
  supervisor PID      the same against the supervisor: kill, limits, token and environment through /proc
  connect PORT        reach a loopback listener
  listen PORT         take a port on loopback
  abstract NAME       reach an abstract unix socket
  socket PATH         reach a unix socket by its path
  kernel              namespaces, mounts, devices, socket families
  catalogue DECOYS    every known attack; DECOYS, as JSON, says on what

What is looked for is written backwards, so that no shell, history or log of this very command holds it.";

/// For one attack of the catalogue. Nobody waits for the answer but whoever asked for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the verb, writing a line for each attempt. Exit code 0 when it was carried out (whatever came of it), 64
/// when it was called wrongly.
pub fn run(args: &[String], out: &mut dyn Write) -> u8 {
    let mut report = Report::new(out);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let pid = |text: &str| text.parse::<i32>().ok().and_then(rustix::process::Pid::from_raw);
    match args.as_slice() {
        ["scan", name, content, since] => match since.parse() {
            Ok(since) => scan::scan(&backwards(name), &backwards(content), since, &mut report),
            Err(_) => return usage(),
        },
        ["watch", folder, stop] => watch::names(Path::new(folder), Path::new(stop), &mut report),
        ["files", path] => files::all(Path::new(path), &mut report),
        ["process", text, mark] => match pid(text) {
            Some(pid) => process::all(pid, &backwards(mark), &mut report),
            None => return usage(),
        },
        ["procfs", text, mark] => match pid(text) {
            Some(pid) => procfs::all(pid, &backwards(mark), &mut report),
            None => return usage(),
        },
        ["find", mark] => procfs::find(&backwards(mark), &mut report),
        ["supervisor", text] => match pid(text) {
            Some(pid) => process::supervisor(pid, &mut report),
            None => return usage(),
        },
        ["connect", text] => match text.parse() {
            Ok(port) => network::connect(port, &mut report),
            Err(_) => return usage(),
        },
        ["listen", text] => match text.parse() {
            Ok(port) => network::listen(port, &mut report),
            Err(_) => return usage(),
        },
        ["abstract", name] => network::abstract_socket(name, &mut report),
        ["socket", path] => network::path_socket(Path::new(path), &mut report),
        ["kernel"] => kernel::all(&mut report),
        ["catalogue", decoys] => match serde_json::from_str(decoys) {
            Ok(decoys) => return whole(&decoys, &mut report),
            Err(_) => return usage(),
        },
        _ => return usage(),
    }
    0
}

fn whole(decoys: &catalogue::Decoys, report: &mut Report<'_>) -> u8 {
    match catalogue::run(decoys, PATIENCE, |_| true) {
        Ok(answers) => {
            for answer in answers {
                let target =
                    catalogue::attack(&answer.id).map_or("", |attack| attack.target.word());
                report.say(&answer.id, target, &answer.outcome, "");
            }
            0
        }
        Err(error) => {
            eprintln!("{error}");
            70
        }
    }
}

/// As [`run`] wants what is to be looked for.
#[must_use]
pub fn backwards(text: &str) -> String {
    text.chars().rev().collect()
}

fn usage() -> u8 {
    eprintln!("{USAGE}");
    64
}
