//! On what proc shows of another session's process.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::path::Path;

use super::attack::{Attack, Defence::*, Run, Target};

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
    entry("proc-environ", "reads its variables", |shot| read(shot.process_entry("environ")?)),
    entry("proc-memory", "opens its memory for reading", |shot| open(shot.process_entry("mem")?)),
    entry("proc-memory-write", "opens its memory for writing", |shot| {
        write(shot.process_entry("mem")?)
    })
    .by(&[FileRules, DomainBorder]),
    entry("proc-maps", "reads where its memory lies", |shot| read(shot.process_entry("maps")?)),
    entry("proc-smaps", "reads how its memory is used", |shot| {
        read(shot.process_entry("smaps_rollup")?)
    }),
    entry("proc-pagemap", "opens its page table", |shot| open(shot.process_entry("pagemap")?)),
    entry("proc-auxv", "reads the addresses that its loader was told", |shot| {
        read(shot.process_entry("auxv")?)
    }),
    entry("proc-syscall", "reads which call it is in, and its arguments", |shot| {
        read(shot.process_entry("syscall")?)
    })
    .domain(&["EPERM", "EACCES"]),
    entry("proc-personality", "reads its personality", |shot| {
        read(shot.process_entry("personality")?)
    })
    .domain(&["EPERM", "EACCES"]),
    entry("proc-io", "reads how much it read and wrote", |shot| read(shot.process_entry("io")?)),
    entry("proc-timers", "reads its timers", |shot| open(shot.process_entry("timers")?)),
    entry("proc-descriptor", "opens what its descriptor 0 leads to", |shot| {
        open(shot.process_entry("fd/0")?)
    }),
    entry("proc-descriptor-link", "reads where its descriptor leads", |shot| {
        link(shot.process_entry("fd/0")?)
    }),
    entry("proc-descriptor-info", "reads how its descriptor stands", |shot| {
        read(shot.process_entry("fdinfo/0")?)
    }),
    entry("proc-descriptors", "counts its descriptors", |shot| list(shot.process_entry("fd")?))
        .leaks(),
    entry("proc-cwd", "lists its working directory", |shot| list(shot.process_entry("cwd")?)),
    entry("proc-cwd-link", "reads where it works", |shot| link(shot.process_entry("cwd")?)),
    entry("proc-root", "goes into its root", |shot| list(shot.process_entry("root")?)),
    entry("proc-exe", "opens its program", |shot| open(shot.process_entry("exe")?)),
    entry("proc-exe-link", "reads which program it is", |shot| link(shot.process_entry("exe")?)),
    entry("proc-map-files", "lists the files that it maps", |shot| {
        list(shot.process_entry("map_files")?)
    }),
    entry("proc-namespace", "reads its namespaces", |shot| link(shot.process_entry("ns/mnt")?)),
    entry("proc-mounts", "reads its mounts", |shot| read(shot.process_entry("mountinfo")?)).leaks(),
    entry("proc-stack", "reads its kernel stack", |shot| read(shot.process_entry("stack")?))
        .kernel(&["EACCES", "EPERM"])
        .namespace(&["ENOENT"]),
    written("proc-oom-score", "offers it to the memory killer first", |shot| {
        write(shot.process_entry("oom_score_adj")?)
    }),
    written("proc-coredump-filter", "puts more of its memory into its dumps", |shot| {
        write(shot.process_entry("coredump_filter")?)
    }),
    written("proc-clear-refs", "forgets which pages it uses", |shot| {
        write(shot.process_entry("clear_refs")?)
    }),
    written("proc-autogroup", "lowers its group's share", |shot| {
        write(shot.process_entry("autogroup")?)
    }),
    written("proc-timer-slack", "delays its timers", |shot| {
        write(shot.process_entry("timerslack_ns")?)
    }),
    entry("proc-cmdline", "reads its command line", |shot| read(shot.process_entry("cmdline")?))
        .leaks(),
    entry("proc-status", "reads its status", |shot| read(shot.process_entry("status")?)).leaks(),
    entry("proc-limits", "reads its limits", |shot| read(shot.process_entry("limits")?)).leaks(),
    entry("proc-tasks", "lists its threads", |shot| list(shot.process_entry("task")?)).leaks(),
    entry("proc-cgroup", "reads its control group", |shot| read(shot.process_entry("cgroup")?))
        .leaks(),
    entry("proc-oom", "reads what the memory killer thinks of it", |shot| {
        read(shot.process_entry("oom_score")?)
    })
    .leaks(),
    entry("proc-wchan", "reads what it waits for", |shot| read(shot.process_entry("wchan")?))
        .leaks(),
];

pub(super) fn open(path: impl AsRef<Path>) -> io::Result<()> {
    File::open(path).map(drop)
}

pub(super) fn read(path: impl AsRef<Path>) -> io::Result<()> {
    File::open(path)?.read(&mut [0; 64]).map(drop)
}

pub(super) fn write(path: impl AsRef<Path>) -> io::Result<()> {
    OpenOptions::new().write(true).open(path).map(drop)
}

pub(super) fn list(path: impl AsRef<Path>) -> io::Result<()> {
    fs::read_dir(path)?.next().transpose().map(drop)
}

pub(super) fn link(path: impl AsRef<Path>) -> io::Result<()> {
    fs::read_link(path).map(drop)
}
