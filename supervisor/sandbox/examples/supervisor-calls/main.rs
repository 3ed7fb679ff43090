//! The lists of calls that processes of ours may make, against what they made in tests: `supervisor-calls [--write] DIRECTORY` reads
//! the traces of supervisors, a folder each, which `supervisor/tests/traced` has strace(1) make. Run by `conformance/supervisor-calls`.
//!
//! Prints each line with how often it was used, then what is wrong, by file and line. Exit code 1 where something is. With `--write` the
//! lists are written anew: exit code 2 where a line was added, since what would have followed a refused call was not seen yet.
#![allow(clippy::exit, reason = "a tool leaves by its exit code")]

mod list;
mod traces;

use std::path::{Path, PathBuf};
use std::{env, fs, io, process};

use casemate_sandbox::shield::calls::Role;

use list::{Finding, Made};

const LISTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/shield");
const ADDED: i32 = 2;

fn main() -> io::Result<()> {
    let mut words: Vec<_> = env::args_os().skip(1).collect();
    let write = words.first().is_some_and(|word| word == "--write");
    if write {
        words.remove(0);
    }
    let [directory] = words.as_slice() else {
        eprintln!("usage: supervisor-calls [--write] DIRECTORY");
        process::exit(64);
    };
    let (mut wrong, mut added) = (false, false);
    for role in Role::ALL {
        let made = traces::read(Path::new(directory), role)?;
        let rules = role.rules().map_err(io::Error::other)?;
        print(role, &made)?;
        let findings = list::findings(&rules, &made);
        for finding in &findings {
            println!("{}.calls{finding}", role.name());
        }
        if write {
            let file = PathBuf::from(LISTS).join(role.name()).with_extension("calls");
            fs::write(&file, list::rewritten(&fs::read_to_string(&file)?, &rules, &made))?;
            added |= findings.iter().any(|finding| matches!(finding, Finding::Missing { .. }));
        }
        wrong |= findings.iter().any(|finding| !(write && finding.is_mended_by_writing()));
    }
    process::exit(if added { ADDED } else { i32::from(wrong) })
}

fn print(role: Role, made: &Made) -> io::Result<()> {
    println!("{}: {} processes", role.name(), made.processes);
    for rule in role.rules().map_err(io::Error::other)? {
        let used = made.used.get(&rule.line).copied().unwrap_or(0);
        if let Some(remark) = list::remark(&rule, used) {
            println!("{used:>9} {:4} {:24} {remark}", rule.line, rule.name);
        }
    }
    Ok(())
}
