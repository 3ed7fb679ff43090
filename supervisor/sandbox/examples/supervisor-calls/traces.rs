//! Traces as strace(1) writes them: a folder for a supervisor, whose name begins with what it is; in it a file for each thread.
//!
//! A process is one of ours from where it puts on its filter; the flags of that call tell which. clone(2) alone is not raw: its result
//! has to be the thread's number, whose trace belongs to the process.

use std::path::Path;
use std::{fs, io};

use casemate_sandbox::shield::calls::{Role, Rule};

use crate::list::Made;

/// Who wears a list: in folders that begin like this, whoever calls `seccomp(SECCOMP_SET_MODE_FILTER, flags, ...)` with these flags: TSYNC,
/// alone or with LOG, or that with TSYNC_ESRCH. The wall of an agent never says TSYNC.
fn wearer(role: Role) -> (&'static str, [u64; 2]) {
    match role {
        Role::Supervisor => ("worker-", [1, 3]),
        Role::Launcher => ("worker-", [1, 1]),
        Role::Porter => ("worker-", [1, 19]),
        Role::Init => ("init-", [1, 3]),
    }
}

/// What was made under the role's list, in all folders.
pub(crate) fn read(directory: &Path, role: Role) -> io::Result<Made> {
    let rules = role.rules().map_err(io::Error::other)?;
    let (folders, flags) = wearer(role);
    let mut made = Made::default();
    for folder in fs::read_dir(directory)? {
        let folder = folder?;
        if folder.file_name().as_encoded_bytes().starts_with(folders.as_bytes()) {
            add(&mut made, &folder.path(), &rules, flags)?;
        }
    }
    Ok(made)
}

/// Arguments are numbers; a path that is none is in no argument.
fn trace(path: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
}

/// Counts what the processes with this filter made.
fn add(made: &mut Made, folder: &Path, rules: &[Rule], flags: [u64; 2]) -> io::Result<()> {
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
        made.processes += 1;
        let mut threads = take(made, lines, rules, counts_anew);
        while let Some(thread) = threads.pop() {
            let text = trace(&folder.join(format!("trace.{thread}")))?;
            threads.extend(take(made, text.lines(), rules, counts_anew));
        }
    }
    Ok(())
}

/// Counts what a thread made; the threads that it made.
fn take<'a>(
    made: &mut Made,
    lines: impl Iterator<Item = &'a str>,
    rules: &[Rule],
    counts_anew: bool,
) -> Vec<u32> {
    let mut threads = Vec::new();
    // Behind its end (`+++ exited with 0 +++`) another process of the same number may be written.
    for line in lines.take_while(|line| !line.starts_with("+++")) {
        let Some((name, arguments)) = call(line) else { continue };
        if made.count(rules, name, &arguments, line) {
            threads.extend(thread(name, line, counts_anew));
        }
    }
    threads
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
