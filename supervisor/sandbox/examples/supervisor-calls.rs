//! Compares the lists of calls that processes of ours may make with what they made: `supervisor-calls DIRECTORY` reads
//! traces of `strace -ff -e raw=all -o DIRECTORY/trace` and prints each rule with how often it was used.
//!
//! A process is one of ours from where it puts on its filter; the flags of that call tell which. Exit code 1 where a call
//! is in no line, or a line that says `allow` was never used. Run by `conformance/supervisor-calls`.
#![allow(clippy::exit, reason = "a tool leaves by its exit code")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs, io, process};

use casemate_sandbox::shield::calls::{Role, Rule, Verb};

/// `seccomp(SECCOMP_SET_MODE_FILTER, flags, ...)`: TSYNC and LOG, or LOG alone.
const PUT_ON: [(Role, [u64; 2]); 2] = [(Role::Supervisor, [1, 3]), (Role::Launcher, [1, 2])];

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
    let mut whole = true;
    for (role, flags) in PUT_ON {
        let rules = role.rules().map_err(io::Error::other)?;
        let made = read(&directory, &rules, flags)?;
        whole &= report(role, &rules, &made);
    }
    process::exit(i32::from(!whole))
}

fn read(directory: &Path, rules: &[Rule], flags: [u64; 2]) -> io::Result<Made> {
    let mut made = Made::default();
    for entry in fs::read_dir(directory)? {
        // Arguments are numbers; a path that is none is in no argument.
        let text = String::from_utf8_lossy(&fs::read(entry?.path())?).into_owned();
        let mut lines = text.lines();
        if !lines
            .any(|line| call(line).is_some_and(|(name, a)| name == "seccomp" && a[..2] == flags))
        {
            continue;
        }
        made.processes += 1;
        for line in lines {
            let Some((name, arguments)) = call(line) else { continue };
            let found = rules.iter().position(|rule| rule.covers(name, &arguments));
            match found {
                Some(at) if rules[at].verb.allows() => *made.used.entry(at).or_default() += 1,
                _ => made.unlisted.entry(name.to_owned()).or_insert((0, line.to_owned())).0 += 1,
            }
        }
    }
    Ok(made)
}

/// `name(0x1, 0, 0x7f..) = ...`, or cut off before its result. A line of a signal or an exit is none.
fn call(line: &str) -> Option<(&str, [u64; 6])> {
    let (name, rest) = line.split_once('(')?;
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if name.is_empty() || !name.bytes().all(is_name) {
        return None;
    }
    let mut arguments = [0; 6];
    let words = rest.split([')', '<', '=']).next()?.split(',');
    for (place, word) in arguments.iter_mut().zip(words) {
        let word = word.trim();
        let number = match word.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => word.parse(),
        };
        *place = number.unwrap_or(0);
    }
    Some((name, arguments))
}

fn report(role: Role, rules: &[Rule], made: &Made) -> bool {
    println!("{}: {} processes", role.name(), made.processes);
    let mut whole = made.processes > 0;
    for (at, rule) in rules.iter().enumerate().filter(|(_, rule)| rule.verb.allows()) {
        let used = made.used.get(&at).copied().unwrap_or(0);
        let verdict = match (rule.verb, used) {
            (Verb::Allow, 0) => {
                whole = false;
                "IDLE: take it out, or call it `spare` and say who needs it"
            }
            (Verb::Spare, 1..) => "used: may be called `allow`",
            _ => "",
        };
        println!("{used:>9} {:4} {:24} {verdict}", rule.line, rule.name);
    }
    for (name, (count, example)) in &made.unlisted {
        whole = false;
        println!("{count:>9}    - {name:24} IN NO LINE: {example}");
    }
    whole
}
