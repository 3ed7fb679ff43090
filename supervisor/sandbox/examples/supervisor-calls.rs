//! Compares the lists of calls that processes of ours may make with what they made: `supervisor-calls DIRECTORY` reads the
//! traces of workers, a folder each, and prints each rule with how often it was used. `supervisor/tests/worker/traced.rs` has
//! them made by strace(1). clone(2) alone is not raw there: its result has to be the thread's number, whose trace belongs to the
//! process.
//!
//! A process is one of ours from where it puts on its filter; the flags of that call tell which. Exit code 1 where a call
//! is in no line, or a line that says `allow` was never used. Run by `conformance/supervisor-calls`.
#![allow(clippy::exit, reason = "a tool leaves by its exit code")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs, io, process};

use casemate_sandbox::shield::calls::{Role, Rule, Verb};

/// `seccomp(SECCOMP_SET_MODE_FILTER, flags, ...)`: TSYNC, alone or with LOG, or that with TSYNC_ESRCH; an agent's wall never says
/// TSYNC.
const PUT_ON: [(Role, [u64; 2]); 3] =
    [(Role::Supervisor, [1, 3]), (Role::Launcher, [1, 1]), (Role::Porter, [1, 19])];

/// What was made under one list.
#[derive(Default)]
struct Made {
    processes: usize,
    /// By the rule's place in the list.
    used: BTreeMap<usize, u64>,
    /// The calls that no line allows, with an example.
    unlisted: BTreeMap<String, (u64, String)>,
}

fn main() -> io::Result<()> {
    let Some(directory) = env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: supervisor-calls DIRECTORY");
        process::exit(64);
    };
    let mut wrong = Vec::new();
    for (role, flags) in PUT_ON {
        let rules = role.rules().map_err(io::Error::other)?;
        let made = read(&directory, &rules, flags)?;
        wrong.extend(report(role, &rules, &made));
    }
    wrong.iter().for_each(|line| println!("{line}"));
    process::exit(i32::from(!wrong.is_empty()))
}

fn read(directory: &Path, rules: &[Rule], flags: [u64; 2]) -> io::Result<Made> {
    let mut made = Made::default();
    for worker in fs::read_dir(directory)? {
        made.add_worker(&worker?.path(), rules, flags)?;
    }
    Ok(made)
}

/// Arguments are numbers; a path that is none is in no argument.
fn trace(path: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
}

impl Made {
    /// Counts what the worker's process of this role made, if it had one.
    fn add_worker(&mut self, folder: &Path, rules: &[Rule], flags: [u64; 2]) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let text = trace(&entry?.path())?;
            let mut lines = text.lines();
            let mut counts_anew = false;
            let worn = lines.by_ref().filter_map(call).any(|(name, a)| {
                counts_anew |= name == "pivot_root";
                name == "seccomp" && a[..2] == flags
            });
            if !worn {
                continue;
            }
            self.processes += 1;
            let mut threads = self.take(lines, rules, counts_anew);
            while let Some(thread) = threads.pop() {
                let text = trace(&folder.join(format!("trace.{thread}")))?;
                threads.extend(self.take(text.lines(), rules, counts_anew));
            }
        }
        Ok(())
    }

    /// Counts what a thread made; the threads that it made.
    fn take<'a>(
        &mut self,
        lines: impl Iterator<Item = &'a str>,
        rules: &[Rule],
        counts_anew: bool,
    ) -> Vec<u32> {
        let mut threads = Vec::new();
        // Behind its end (`+++ exited with 0 +++`) another process of the same number may be written.
        for line in lines.take_while(|line| !line.starts_with("+++")) {
            let Some((name, arguments)) = call(line) else { continue };
            match rules.iter().position(|rule| rule.covers(name, &arguments)) {
                Some(at) if rules[at].verb != Verb::Kill => {
                    *self.used.entry(at).or_default() += 1;
                    threads.extend(thread(name, line, counts_anew));
                }
                _ => self.unlisted.entry(name.to_owned()).or_insert((0, line.to_owned())).0 += 1,
            }
        }
        threads
    }
}

/// `clone(...) = 8 /* 10185 in strace's PID NS */`, or without the comment where the numbers are the same. Where they are not and
/// strace may not look (an ordinary user at a process that is not dumpable), the thread is left out.
fn thread(name: &str, line: &str, counts_anew: bool) -> Option<u32> {
    let (_, result) = line.rsplit_once(" = ").filter(|_| name == "clone")?;
    let number = match result.split_once("/* ") {
        Some((_, here)) => here,
        None if counts_anew => return None,
        None => result,
    };
    number.split_ascii_whitespace().next()?.parse().ok()
}

/// `name(0x1, 0, 0x7f..) = ...`, or cut off before its result. A line of a signal or an exit is none.
fn call(line: &str) -> Option<(&str, [u64; 6])> {
    let (name, rest) = line.split_once('(')?;
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if name.is_empty() || !name.bytes().all(is_name) {
        return None;
    }
    let mut arguments = [0; 6];
    if let Some((_, flags)) = rest.split_once("flags=").filter(|_| name == "clone") {
        let flags = flags.split(',').next()?.split('|').filter_map(number);
        arguments[0] = flags.fold(0, |all, flag| all | flag);
        return Some((name, arguments));
    }
    let words = rest.split([')', '<', '=']).next()?.split(',');
    for (place, word) in arguments.iter_mut().zip(words) {
        *place = number(word.trim()).unwrap_or(0);
    }
    Some((name, arguments))
}

fn number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

/// Prints the list with how often each line was used; what is wrong.
fn report(role: Role, rules: &[Rule], made: &Made) -> Vec<String> {
    let list = role.name();
    println!("{list}: {} processes", made.processes);
    let mut wrong = Vec::new();
    if made.processes == 0 {
        wrong.push(format!("{list}.calls: no process wore it"));
    }
    for (at, rule) in rules.iter().enumerate().filter(|(_, rule)| rule.verb != Verb::Kill) {
        let (line, name) = (rule.line, &rule.name);
        let used = made.used.get(&at).copied().unwrap_or(0);
        let may = if rule.verb == Verb::Spare && used > 0 { "may be called `allow`" } else { "" };
        println!("{used:>9} {line:4} {name:24} {may}");
        if rule.verb == Verb::Allow && used == 0 {
            wrong.push(format!(
                "{list}.calls:{line}: {name} is idle: take it out, or call it `spare` and say who needs it"
            ));
        }
    }
    wrong.extend(made.unlisted.iter().map(|(name, (count, example))| {
        format!("{list}.calls: {name} is in no line, and was made {count} times: {example}")
    }));
    wrong
}
