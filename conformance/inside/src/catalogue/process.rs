//! On another session's process: signals, tracing, memory, descriptors, limits, processors.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::time::Duration;

use casemate_raw::{Arg, Call, Page, call};
use nix::sys::ptrace;
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use rustix::io::Errno;
use rustix::process::{self, Pid, Resource, Signal};

use super::attack::{Attack, Defence::*, Run, Target};
use super::calls::{
    HARMLESS, compare, io_priority, limit, move_pages, number, pidfd, pin, policy, queue_signal,
    queue_signal_to_thread, raw, robust_list, scheduler, seize, signal_by_pidfd, take_descriptor,
    tgkill, tkill,
};
use super::shot::{Shot, untried};

const fn process(id: &'static str, does: &'static str, source: &'static str, run: Run) -> Attack {
    Attack::new(Target::Processes, id, does, source, run)
        .by(&[SignalScope])
        .domain(&["EPERM"])
        .namespace(&["ESRCH"])
}

/// Refused by a rule for the call, before the kernel looks for the process.
const fn ruled(id: &'static str, does: &'static str, source: &'static str, run: Run) -> Attack {
    process(id, does, source, run).by(&[CallRules]).namespace(&["ESRCH", "EPERM"])
}

pub(super) const ATTACKS: &[Attack] = &[
    // ---- Signals
    process("process-kill", "sends a signal", "kill(2)", |shot| {
        Ok(process::kill_process(shot.process()?, HARMLESS)?)
    }),
    process("process-kill-group", "signals its process group", "kill(2)", |shot| {
        Ok(process::kill_process_group(shot.process()?, HARMLESS)?)
    }),
    process("process-tkill", "signals a thread", "tkill(2)", |shot| tkill(shot.process()?)),
    process("process-tgkill", "signals a thread of a group", "tgkill(2)", |shot| {
        tgkill(shot.process()?)
    }),
    process("process-queue-signal", "queues a signal with data", "rt_sigqueueinfo(2)", |shot| {
        queue_signal(shot.process()?)
    }),
    process(
        "process-queue-signal-thread",
        "queues a signal to a thread",
        "rt_tgsigqueueinfo(2)",
        |shot| queue_signal_to_thread(shot.process()?),
    ),
    process("process-signal-pidfd", "signals through a pidfd", "pidfd_send_signal(2)", |shot| {
        signal_by_pidfd(shot.process()?)
    }),
    process("process-stop", "stops it, and lets it go on", "signal(7) SIGSTOP", |shot| {
        let pid = shot.process()?;
        process::kill_process(pid, Signal::STOP)?;
        Ok(process::kill_process(pid, Signal::CONT)?)
    }),
    process(
        "process-signal-by-io",
        "has the kernel signal it when a pipe is ready",
        "fcntl(2) F_SETOWN",
        signal_by_io,
    )
    .namespace(&["ESRCH"]),
    // ---- Tracing
    process("process-ptrace-attach", "attaches a tracer", "ptrace(2)", |shot| {
        let pid = raw(shot.process()?);
        ptrace::attach(pid)?;
        let _ = nix::sys::wait::waitpid(pid, None);
        Ok(ptrace::detach(pid, None)?)
    })
    .by(&[DomainBorder, CallRules])
    .namespace(&["ESRCH", "EPERM"]),
    process("process-ptrace-seize", "seizes it without stopping it", "ptrace(2)", |shot| {
        seize(shot.process()?)
    })
    .by(&[DomainBorder, CallRules])
    .namespace(&["ESRCH", "EPERM"]),
    process("process-read-memory", "reads its memory", "process_vm_readv(2)", |shot| {
        let pid = shot.process()?;
        let mut buffer = [0; 8];
        let remote = [RemoteIoVec { base: first_mapping(pid), len: buffer.len() }];
        Ok(process_vm_readv(raw(pid), &mut [IoSliceMut::new(&mut buffer)], &remote).map(drop)?)
    })
    .by(&[DomainBorder, CallRules])
    .namespace(&["ESRCH", "EPERM"]),
    process("process-write-memory", "writes its memory", "process_vm_writev(2)", |shot| {
        // Nothing is mapped there: EFAULT says that the kernel would have written.
        let remote = [RemoteIoVec { base: 0x1000, len: 8 }];
        match process_vm_writev(raw(shot.process()?), &[IoSlice::new(&[0; 8])], &remote) {
            Err(nix::errno::Errno::EFAULT) => Ok(()),
            other => Ok(other.map(drop)?),
        }
    })
    .by(&[DomainBorder, CallRules])
    .namespace(&["ESRCH", "EPERM"]),
    process("process-take-descriptor", "takes a descriptor of its", "pidfd_getfd(2)", |shot| {
        take_descriptor(shot.process()?)
    })
    .by(&[DomainBorder, CallRules]),
    process(
        "process-compare",
        "learns kernel addresses' order by comparing resources",
        "kcmp(2)",
        |shot| compare(shot.process()?),
    )
    .by(&[DomainBorder, CallRules])
    .namespace(&["ESRCH", "EPERM"]),
    process("process-robust-list", "learns where its locks lie", "get_robust_list(2)", |shot| {
        robust_list(shot.process()?)
    })
    .by(&[DomainBorder]),
    process(
        "process-move-pages",
        "learns and moves where its pages lie",
        "move_pages(2)",
        |shot| move_pages(shot.process()?),
    )
    .by(&[DomainBorder]),
    process(
        "process-migrate-pages",
        "moves its memory to another node",
        "migrate_pages(2)",
        |shot| {
            let nodes = || Page::of(&1_u64.to_ne_bytes());
            let args = &mut [
                number(shot.process()?),
                Arg::Number(2),
                Arg::Page(&mut nodes()),
                Arg::Page(&mut nodes()),
            ];
            call(Call::MIGRATE_PAGES, args).map(drop)
        },
    )
    .by(&[DomainBorder]),
    process(
        "process-count-events",
        "counts what its processor does",
        "perf_event_open(2)",
        |shot| {
            // PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK; disabled, exclude_kernel, exclude_hv.
            let mut attributes = Page::of(&1_u32.to_ne_bytes());
            attributes.0[4..8].copy_from_slice(&128_u32.to_ne_bytes());
            attributes.0[8..16].copy_from_slice(&1_u64.to_ne_bytes());
            attributes.0[40..48].copy_from_slice(&(1_u64 | 1 << 5 | 1 << 6).to_ne_bytes());
            let any = Arg::Number(-1);
            let args = &mut [
                Arg::Page(&mut attributes),
                number(shot.process()?),
                any,
                Arg::Number(-1),
                Arg::Number(0),
            ];
            call(Call::PERF_EVENT_OPEN, args).map(drop)
        },
    )
    .by(&[CallRules, DomainBorder])
    .namespace(&["ESRCH", "EPERM"]),
    process("process-advise", "has the kernel throw its pages out", "process_madvise(2)", |shot| {
        use std::os::fd::AsRawFd as _;
        let pidfd = pidfd(shot.process()?)?;
        let cold = Arg::Number(20);
        let args = &mut [
            Arg::Number(pidfd.as_raw_fd().into()),
            Arg::Page(&mut Page::zeroed()),
            Arg::Number(1),
            cold,
            Arg::Number(0),
        ];
        call(Call::PROCESS_MADVISE, args).map(drop)
    })
    .kernel(&["EPERM", "EACCES"])
    .namespace(&["ESRCH", "EPERM"]),
    // ---- Limits and processors
    ruled(
        "process-limit-cpu",
        "limits its processor time, which kills it",
        "prlimit(2) RLIMIT_CPU",
        |shot| limit(shot.process()?, Resource::Cpu),
    ),
    ruled(
        "process-limit-files",
        "takes its descriptors away",
        "prlimit(2) RLIMIT_NOFILE",
        |shot| limit(shot.process()?, Resource::Nofile),
    ),
    ruled("process-limit-size", "keeps it from writing", "prlimit(2) RLIMIT_FSIZE", |shot| {
        limit(shot.process()?, Resource::Fsize)
    }),
    ruled("process-limit-memory", "keeps it from mapping memory", "prlimit(2) RLIMIT_AS", |shot| {
        limit(shot.process()?, Resource::As)
    }),
    ruled(
        "process-core-dump",
        "lets its next crash write its memory to a file",
        "prlimit(2) RLIMIT_CORE, core(5)",
        |shot| limit(shot.process()?, Resource::Core),
    ),
    ruled("process-priority", "lowers its priority", "setpriority(2)", |shot| {
        Ok(process::setpriority_process(Some(shot.process()?), 19)?)
    }),
    ruled(
        "process-group-priority",
        "lowers its group's priority",
        "setpriority(2) PRIO_PGRP",
        |shot| Ok(process::setpriority_pgrp(Some(shot.process()?), 19)?),
    ),
    ruled("process-io-priority", "lowers its priority at the disk", "ioprio_set(2)", |shot| {
        io_priority(shot.process()?, 3 << 13)
    }),
    ruled(
        "process-group-io-priority",
        "lowers its group's priority at the disk",
        "ioprio_set(2)",
        |shot| {
            let args = &mut [Arg::Number(2), number(shot.process()?), Arg::Number(3 << 13)];
            call(Call::IOPRIO_SET, args).map(drop)
        },
    ),
    ruled("process-pin", "pins it to processors", "sched_setaffinity(2)", |shot| {
        pin(shot.process()?)
    }),
    ruled("process-scheduler", "sets its scheduling policy", "sched_setscheduler(2)", |shot| {
        scheduler(shot.process()?)
    }),
    ruled(
        "process-scheduler-parameters",
        "sets its scheduling parameters",
        "sched_setparam(2)",
        |shot| {
            let args = &mut [number(shot.process()?), Arg::Page(&mut Page::zeroed())];
            call(Call::SCHED_SETPARAM, args).map(drop)
        },
    ),
    ruled(
        "process-scheduler-attributes",
        "sets its scheduling attributes",
        "sched_setattr(2)",
        |shot| {
            // struct sched_attr: size, then the policy.
            let pid = shot.process()?;
            let mut attributes = Page::of(&48_u32.to_ne_bytes());
            attributes.0[4..8].copy_from_slice(&policy(pid).to_ne_bytes());
            attributes.0[16..20].copy_from_slice(&19_i32.to_ne_bytes());
            let args = &mut [number(pid), Arg::Page(&mut attributes), Arg::Number(0)];
            call(Call::SCHED_SETATTR, args).map(drop)
        },
    ),
    // ---- What tier `domain` does not hide
    process("process-find", "finds it by its number", "pidfd_open(2)", |shot| {
        pidfd(shot.process()?).map(drop)
    })
    .leaks(),
    process(
        "process-read-affinity",
        "reads which processors it runs on",
        "sched_getaffinity(2)",
        |shot| Ok(rustix::thread::sched_getaffinity(Some(shot.process()?)).map(drop)?),
    )
    .leaks(),
    process("process-read-session", "reads its session and group", "getsid(2)", |shot| {
        Ok(nix::unistd::getsid(Some(raw(shot.process()?))).map(drop)?)
    })
    .leaks(),
    process(
        "process-use-up-signals",
        "takes from the signals that may wait for all of its user's processes, as the other session's own count shows",
        "getrlimit(2) RLIMIT_SIGPENDING",
        use_up_signals,
    )
    .leaks()
    .namespace(&["ENOENT"]),
];

/// One of the limits that the kernel counts by user: of this one proc shows the count, and a few of tens of thousands do no harm. They wait
/// for this process and go with it.
fn use_up_signals(shot: &Shot<'_>) -> io::Result<()> {
    const MANY: u32 = 64;
    // Real-time signals wait one by one (signal(7)).
    const REAL_TIME: i64 = 40;
    let other = shot.process_entry("status")?;
    let waiting = || -> io::Result<u32> {
        let status = fs::read_to_string(&other)?;
        let queue = status.lines().find_map(|line| line.strip_prefix("SigQ:"));
        let count = queue.and_then(|queue| queue.trim().split('/').next()?.parse().ok());
        count.ok_or_else(|| untried("proc does not show how many there are"))
    };
    nix::sys::signal::SigSet::all().thread_block()?;
    let before = waiting()?;
    let own = process::getpid();
    for _ in 0..MANY {
        call(Call::TGKILL, &mut [number(own), number(own), Arg::Number(REAL_TIME)])?;
    }
    // Others of the user's come and go meanwhile.
    let taken = waiting()?.saturating_sub(before);
    if taken >= MANY / 2 { Ok(()) } else { Err(Errno::PERM.into()) }
}

fn first_mapping(pid: Pid) -> usize {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.split('-').next().and_then(|text| usize::from_str_radix(text, 16).ok()).unwrap_or(0x1000)
}

/// Owns a pipe in the victim's name and lets it become ready: SIGSTOP instead of SIGIO shows in the victim's state.
fn signal_by_io(shot: &Shot<'_>) -> io::Result<()> {
    use std::os::fd::AsFd as _;
    let pid = shot.process()?;
    let (reader, writer) = rustix::pipe::pipe()?;
    casemate_raw::signal_owner(
        reader.as_fd(),
        raw(pid).as_raw(),
        nix::sys::signal::Signal::SIGSTOP as i32,
    )?;
    let flags = rustix::fs::fcntl_getfl(&reader)?;
    rustix::fs::fcntl_setfl(&reader, flags | rustix::fs::OFlags::ASYNC)?;
    rustix::io::write(&writer, b"x")?;
    // The signal is sent before the write returns: from then on it is pending, or the victim has stopped.
    for _ in 0..3 {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))
            .map_err(|_| untried("proc does not show what became of it"))?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let pending = field("ShdPnd:").and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
        let pending = pending.unwrap_or(0) & (1 << (Signal::STOP.as_raw() - 1)) != 0;
        if pending || field("State:").is_some_and(|state| state.trim_start().starts_with('T')) {
            let _ = process::kill_process(pid, Signal::CONT);
            return Ok(());
        }
        std::thread::sleep(Duration::from_micros(300));
    }
    Err(Errno::PERM.into())
}
