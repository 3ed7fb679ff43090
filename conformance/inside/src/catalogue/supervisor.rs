//! On the session's own supervisor, which has the agent's uid and which the agent can see.
//!
//! What Landlock refuses across domains the supervisor refuses a second time by not being dumpable.

use std::io::IoSliceMut;

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use rustix::process::{self, Resource};

use super::attack::{Attack, Defence::*, Run, Target};
use super::calls::{
    HARMLESS, compare, io_priority, limit, move_pages, pin, queue_signal, raw, robust_list,
    scheduler, seize, signal_by_pidfd, take_descriptor, tgkill,
};
use super::procfs::{link, list, open, read, write};

const fn on(id: &'static str, does: &'static str, source: &'static str, run: Run) -> Attack {
    Attack::new(Target::Supervisor, id, does, source, run).refused(&["EPERM"])
}

const fn entry(id: &'static str, does: &'static str, run: Run) -> Attack {
    on(id, does, "proc(5)", run).by(&[DomainBorder]).refused(&["EACCES", "EPERM"])
}

pub(super) const ATTACKS: &[Attack] = &[
    on("supervisor-kill", "signals it", "kill(2)", |shot| {
        Ok(process::kill_process(shot.supervisor()?, HARMLESS)?)
    })
    .by(&[SignalScope]),
    on("supervisor-stop", "asks whether it may stop it", "kill(2) signal 0", |shot| {
        Ok(process::test_kill_process(shot.supervisor()?)?)
    })
    .by(&[SignalScope]),
    on("supervisor-tgkill", "signals its thread", "tgkill(2)", |shot| tgkill(shot.supervisor()?))
        .by(&[SignalScope]),
    on("supervisor-queue-signal", "queues a signal to it", "rt_sigqueueinfo(2)", |shot| {
        queue_signal(shot.supervisor()?)
    })
    .by(&[SignalScope]),
    on("supervisor-signal-pidfd", "signals it through a pidfd", "pidfd_send_signal(2)", |shot| {
        signal_by_pidfd(shot.supervisor()?)
    })
    .by(&[SignalScope]),
    on("supervisor-ptrace", "traces it", "ptrace(2)", |shot| seize(shot.supervisor()?))
        .by(&[DomainBorder, CallRules]),
    on(
        "supervisor-read-memory",
        "reads its memory, keys included",
        "process_vm_readv(2)",
        |shot| {
            let mut buffer = [0; 8];
            let remote = [RemoteIoVec { base: 0x1000, len: 8 }];
            // Nothing is mapped there: EFAULT says that the kernel would have read.
            match process_vm_readv(
                raw(shot.supervisor()?),
                &mut [IoSliceMut::new(&mut buffer)],
                &remote,
            ) {
                Err(nix::errno::Errno::EFAULT) => Ok(()),
                other => Ok(other.map(drop)?),
            }
        },
    )
    .by(&[DomainBorder, CallRules]),
    on("supervisor-take-descriptor", "takes its listener", "pidfd_getfd(2)", |shot| {
        take_descriptor(shot.supervisor()?)
    })
    .by(&[DomainBorder, CallRules]),
    on("supervisor-compare", "compares its resources", "kcmp(2)", |shot| {
        compare(shot.supervisor()?)
    })
    .by(&[DomainBorder, CallRules]),
    on("supervisor-robust-list", "learns where its locks lie", "get_robust_list(2)", |shot| {
        robust_list(shot.supervisor()?)
    })
    .by(&[DomainBorder]),
    on("supervisor-move-pages", "moves its pages", "move_pages(2)", |shot| {
        move_pages(shot.supervisor()?)
    })
    .by(&[DomainBorder]),
    on(
        "supervisor-limit-cpu",
        "kills it by its processor time",
        "prlimit(2), DMOJ judge-server #462",
        |shot| limit(shot.supervisor()?, Resource::Cpu),
    ),
    on(
        "supervisor-limit-files",
        "keeps it from accepting clients",
        "prlimit(2) RLIMIT_NOFILE",
        |shot| limit(shot.supervisor()?, Resource::Nofile),
    ),
    on(
        "supervisor-limit-processes",
        "keeps it from starting anything",
        "prlimit(2) RLIMIT_NPROC",
        |shot| limit(shot.supervisor()?, Resource::Nproc),
    ),
    on("supervisor-priority", "starves it", "setpriority(2)", |shot| {
        let pid = shot.supervisor()?;
        Ok(process::setpriority_process(Some(pid), process::getpriority_process(Some(pid))?)?)
    }),
    on("supervisor-io-priority", "starves it at the disk", "ioprio_set(2)", |shot| {
        io_priority(shot.supervisor()?, 2 << 13 | 4)
    }),
    on("supervisor-pin", "pins it to one processor", "sched_setaffinity(2)", |shot| {
        pin(shot.supervisor()?)
    }),
    on(
        "supervisor-scheduler",
        "makes it run only when nobody else does",
        "sched_setscheduler(2)",
        |shot| scheduler(shot.supervisor()?),
    ),
    entry("supervisor-environ", "reads its variables", |shot| {
        read(shot.supervisor_entry("environ")?)
    }),
    entry("supervisor-memory", "opens its memory", |shot| open(shot.supervisor_entry("mem")?)),
    entry("supervisor-memory-write", "opens its memory for writing", |shot| {
        write(shot.supervisor_entry("mem")?)
    })
    .by(&[FileRules, DomainBorder]),
    entry("supervisor-maps", "reads where its memory lies", |shot| {
        read(shot.supervisor_entry("maps")?)
    }),
    entry("supervisor-pagemap", "opens its page table", |shot| {
        open(shot.supervisor_entry("pagemap")?)
    }),
    entry("supervisor-auxv", "reads its loader's addresses", |shot| {
        read(shot.supervisor_entry("auxv")?)
    }),
    entry("supervisor-syscall", "reads which call it is in", |shot| {
        read(shot.supervisor_entry("syscall")?)
    }),
    entry("supervisor-io", "reads how much it relays", |shot| read(shot.supervisor_entry("io")?)),
    entry("supervisor-descriptor", "opens its descriptor 0", |shot| {
        open(shot.supervisor_entry("fd/0")?)
    }),
    entry("supervisor-descriptor-info", "reads how its descriptor stands", |shot| {
        read(shot.supervisor_entry("fdinfo/0")?)
    }),
    entry("supervisor-cwd", "goes into its working directory", |shot| {
        list(shot.supervisor_entry("cwd")?)
    }),
    entry("supervisor-root", "goes into its root, and past the mounts", |shot| {
        list(shot.supervisor_entry("root")?)
    }),
    entry("supervisor-exe", "opens its program", |shot| open(shot.supervisor_entry("exe")?)),
    on(
        "supervisor-overwrite",
        "opens its program for writing through the process that runs it",
        "CVE-2019-5736, proc_pid_exe(5)",
        |shot| {
            let program = std::fs::File::open(shot.supervisor_entry("exe")?)?;
            match std::fs::File::options().write(true).open(super::files::fd_path(&program)) {
                // Whoever holds it has but to wait until nobody runs it: that is how runc was overwritten.
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => Ok(()),
                other => other.map(drop),
            }
        },
    )
    .by(&[DomainBorder])
    .refused(&["EACCES", "EPERM"]),
    entry("supervisor-map-files", "lists the files that it maps", |shot| {
        list(shot.supervisor_entry("map_files")?)
    }),
    entry("supervisor-namespace", "reads its namespaces, to enter them", |shot| {
        link(shot.supervisor_entry("ns/user")?)
    }),
    entry("supervisor-oom-score", "offers it to the memory killer first", |shot| {
        write(shot.supervisor_entry("oom_score_adj")?)
    })
    .by(&[FileRules]),
    entry("supervisor-autogroup", "lowers its share", |shot| {
        write(shot.supervisor_entry("autogroup")?)
    })
    .by(&[FileRules]),
    entry("supervisor-run-program", "runs its program over itself", |shot| {
        // CVE-2019-5736 begins like this: the program is reopened through the process that runs it.
        std::process::Command::new(shot.supervisor_entry("exe")?)
            .arg("--version")
            .output()
            .map(drop)
    }),
];
