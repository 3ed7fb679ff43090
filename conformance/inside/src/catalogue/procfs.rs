//! On what proc shows of another session's process.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::path::Path;

use super::attack::{Attack, Defence::*, Run, Target};
use super::shot::Shot;

const fn entry(id: &'static str, does: &'static str, run: Run) -> Attack {
    Attack::new(Target::Processes, id, does, "proc(5)", run)
        .by(&[DomainBorder])
        .domain(&["EACCES"])
        .namespace(&["ENOENT"])
}

/// Landlock's file rules let nobody write to proc; the border between domains stands behind them where it is asked.
const fn written(id: &'static str, does: &'static str, run: Run) -> Attack {
    entry(id, does, run).by(&[FileRules])
}

pub(super) const ATTACKS: &[Attack] = &[
    entry("proc-environ", "reads its variables", |shot| read(shot, "environ")),
    entry("proc-memory", "opens its memory for reading", |shot| {
        File::open(shot.process_entry("mem")?).map(drop)
    }),
    entry("proc-memory-write", "opens its memory for writing", |shot| write(shot, "mem"))
        .by(&[FileRules, DomainBorder]),
    entry("proc-maps", "reads where its memory lies", |shot| read(shot, "maps")),
    entry("proc-smaps", "reads how its memory is used", |shot| read(shot, "smaps_rollup")),
    entry("proc-pagemap", "opens its page table", |shot| {
        File::open(shot.process_entry("pagemap")?).map(drop)
    }),
    entry("proc-auxv", "reads the addresses that its loader was told", |shot| read(shot, "auxv")),
    entry("proc-syscall", "reads which call it is in, and its arguments", |shot| {
        read(shot, "syscall")
    })
    .domain(&["EPERM", "EACCES"]),
    entry("proc-personality", "reads its personality", |shot| read(shot, "personality"))
        .domain(&["EPERM", "EACCES"]),
    entry("proc-io", "reads how much it read and wrote", |shot| read(shot, "io")),
    entry("proc-timers", "reads its timers", |shot| {
        File::open(shot.process_entry("timers")?).map(drop)
    }),
    entry("proc-descriptor", "opens what its descriptor 0 leads to", |shot| {
        File::open(shot.process_entry("fd/0")?).map(drop)
    }),
    entry("proc-descriptor-link", "reads where its descriptor leads", |shot| link(shot, "fd/0")),
    entry("proc-descriptor-info", "reads how its descriptor stands", |shot| read(shot, "fdinfo/0")),
    entry("proc-descriptors", "counts its descriptors", |shot| list(shot, "fd")).leaks(),
    entry("proc-cwd", "lists its working directory", |shot| list(shot, "cwd")),
    entry("proc-cwd-link", "reads where it works", |shot| link(shot, "cwd")),
    entry("proc-root", "goes into its root", |shot| list(shot, "root")),
    entry("proc-exe", "opens its program", |shot| File::open(shot.process_entry("exe")?).map(drop)),
    entry("proc-exe-link", "reads which program it is", |shot| link(shot, "exe")),
    entry("proc-map-files", "lists the files that it maps", |shot| list(shot, "map_files")),
    entry("proc-namespace", "reads its namespaces", |shot| link(shot, "ns/mnt")),
    entry("proc-mounts", "reads its mounts", |shot| read(shot, "mountinfo")).leaks(),
    entry("proc-stack", "reads its kernel stack", |shot| read(shot, "stack"))
        .kernel(&["EACCES", "EPERM"])
        .namespace(&["ENOENT"]),
    written("proc-oom-score", "offers it to the memory killer first", |shot| {
        write(shot, "oom_score_adj")
    }),
    written("proc-coredump-filter", "puts more of its memory into its dumps", |shot| {
        write(shot, "coredump_filter")
    }),
    written("proc-clear-refs", "forgets which pages it uses", |shot| write(shot, "clear_refs")),
    written("proc-autogroup", "lowers its group's share", |shot| write(shot, "autogroup")),
    written("proc-timer-slack", "delays its timers", |shot| write(shot, "timerslack_ns")),
    entry("proc-cmdline", "reads its command line", |shot| read(shot, "cmdline")).leaks(),
    entry("proc-status", "reads its status", |shot| read(shot, "status")).leaks(),
    entry("proc-limits", "reads its limits", |shot| read(shot, "limits")).leaks(),
    entry("proc-tasks", "lists its threads", |shot| list(shot, "task")).leaks(),
    entry("proc-cgroup", "reads its control group", |shot| read(shot, "cgroup")).leaks(),
    entry("proc-oom", "reads what the memory killer thinks of it", |shot| read(shot, "oom_score"))
        .leaks(),
    entry("proc-wchan", "reads what it waits for", |shot| read(shot, "wchan")).leaks(),
];

fn read(shot: &Shot<'_>, name: &str) -> io::Result<()> {
    read_entry(&shot.process_entry(name)?)
}

pub(super) fn read_entry(path: &Path) -> io::Result<()> {
    File::open(path)?.read(&mut [0; 64]).map(drop)
}

fn write(shot: &Shot<'_>, name: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(shot.process_entry(name)?).map(drop)
}

fn list(shot: &Shot<'_>, name: &str) -> io::Result<()> {
    list_entry(&shot.process_entry(name)?)
}

pub(super) fn list_entry(path: &Path) -> io::Result<()> {
    fs::read_dir(path)?.next().transpose().map(drop)
}

fn link(shot: &Shot<'_>, name: &str) -> io::Result<()> {
    fs::read_link(shot.process_entry(name)?).map(drop)
}
