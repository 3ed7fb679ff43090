//! What is asked of the spawner and what it answers.

use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// A command to run behind a wall. Nothing is inherited: no environment, no descriptor but the three.
#[derive(Debug)]
pub struct Command {
    /// The program's path; not searched in PATH. A relative one is looked up in `cwd`.
    pub program: PathBuf,
    /// The arguments, the zeroth included.
    pub argv: Vec<CString>,
    /// The whole environment, `NAME=value` each.
    pub env: Vec<CString>,
    /// The working directory.
    pub cwd: PathBuf,
    /// Descriptor 0.
    pub stdin: OwnedFd,
    /// Descriptor 1.
    pub stdout: OwnedFd,
    /// Descriptor 2.
    pub stderr: OwnedFd,
    /// Descriptor 0 is a terminal that nobody has as his controlling one: it becomes the command's (TIOCSCTTY in
    /// ioctl_tty(2)).
    pub terminal: bool,
}

/// What a hostile process would get for a path: the errno of each try, 0 where it opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeAnswer {
    /// The path that was tried.
    pub path: PathBuf,
    /// open(2) with `O_RDONLY`.
    pub read_errno: i32,
    /// open(2) with `O_WRONLY`.
    pub write_errno: i32,
}

/// Why a command could not be started: which step, which errno.
#[derive(Debug, thiserror::Error)]
#[error("{step}")]
pub struct SpawnError {
    /// The step that failed.
    pub step: Step,
    /// The errno of its system call.
    #[source]
    pub source: io::Error,
}

impl SpawnError {
    /// The errno, 0 where the failure had none.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.source.raw_os_error().unwrap_or(0)
    }

    pub(crate) fn new(step: Step, errno: i32) -> Self {
        Self { step, source: io::Error::from_raw_os_error(errno) }
    }
}

/// The steps of a start, in the order in which they happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Step {
    /// Talking to the spawner process: it is gone, or the request was refused.
    Spawner = 1,
    /// A NUL byte in a path, or arguments and environment above the kernel's limit.
    Request,
    /// The session's outer Landlock domain with its signal scope.
    SignalScope,
    /// The child's stack.
    Stack,
    /// seccomp(2), once for a wall.
    Seccomp,
    /// clone(2).
    Clone,
    /// sigprocmask(2) in the child.
    SignalMask,
    /// setsid(2).
    Setsid,
    /// chdir(2) to the working directory.
    Chdir,
    /// setrlimit(2).
    Rlimit,
    /// setpriority(2).
    Priority,
    /// landlock_restrict_self(2).
    Landlock,
    /// Standard descriptors in, all others away.
    Descriptors,
    /// The controlling terminal.
    Terminal,
    /// execve(2).
    Exec,
}

impl Step {
    const ALL: [Self; 15] = [
        Self::Spawner,
        Self::Request,
        Self::SignalScope,
        Self::Stack,
        Self::Seccomp,
        Self::Clone,
        Self::SignalMask,
        Self::Setsid,
        Self::Chdir,
        Self::Rlimit,
        Self::Priority,
        Self::Landlock,
        Self::Descriptors,
        Self::Terminal,
        Self::Exec,
    ];

    /// The step of a number on the wire.
    pub(crate) fn from_wire(number: i32) -> Self {
        Self::ALL.into_iter().find(|step| *step as i32 == number).unwrap_or(Self::Spawner)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Spawner => "the spawner process does not answer: restart the worker",
            Self::Request => "the command cannot be passed on: shorten its arguments and environment, and keep NUL out of paths",
            Self::SignalScope => "no Landlock signal scope for the session: needs Linux 6.12 or later with landlock among its security modules",
            Self::Stack => "no memory for the child's stack: raise the memory limit",
            Self::Clone => "no new process: raise the limit of processes (RLIMIT_NPROC, pids.max)",
            Self::SignalMask => "the child's signal mask could not be cleared",
            Self::Setsid => "the child got no session of its own",
            Self::Chdir => "the working directory cannot be entered: check that it exists",
            Self::Rlimit => "a resource limit was refused: lower the policy's limits below this process's own",
            Self::Priority => "the child's priority could not be lowered: let the policy allow setpriority(2) for oneself",
            Self::Landlock => "the Landlock ruleset was refused: a process holds at most 16 layers",
            Self::Descriptors => "the child's descriptors could not be set up",
            Self::Terminal => "the terminal cannot be the command's own: check that it is one and that no other session has it",
            Self::Seccomp => "a seccomp program was refused: check the policy's filter",
            Self::Exec => "the program cannot be run: check that it exists, is executable and that the policy lets it be executed",
        })
    }
}
