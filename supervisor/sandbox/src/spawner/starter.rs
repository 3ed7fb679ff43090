//! A session's thread for one wall: it starts and probes behind that wall.
//!
//! It wears the wall's seccomp programs itself, so a child is born with them: the kernel checks, compiles and pre-computes a
//! program when it is installed, which costs more than a whole start (1600 instructions: 0.8 ms beside 0.9 ms). Resource limits
//! and Landlock are added in the child, the first as they belong to a process, the second as each child
//! gets a domain of its own. All that the thread calls to start a child has to pass the programs; a policy that refuses
//! it makes the step that was refused fail, with its errno.

use std::ffi::{CStr, c_char, c_int};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::ptr::null;
use std::sync::atomic::{AtomicI32, Ordering};

use nix::errno::Errno;

use super::channel;
use super::child::{self, Errand, Plan};
use super::command::Step;
use super::requests::{Failure, Request, Requests, answer};
use super::stack::Stack;
use super::wire::{self, Kind, Reply, WallBody};
use crate::listener::WAIT_KILLABLE;

/// What the thread is made of. Its creator has entered the session's signal scope, so it is born inside.
pub(super) struct Starter {
    /// The scope as a ruleset, shared with the session; `None` where that has none.
    pub(super) scope: Option<OwnedFd>,
    pub(super) ruleset: Option<OwnedFd>,
    pub(super) wall: WallBody,
    /// What the started processes get.
    pub(super) nice: c_int,
}

/// How much a session yields to the supervisor and everybody else: a third of their weight where the processors are all
/// taken (sched(7)), nothing where they are not.
const YIELDS: c_int = 5;

/// The nice value for what the calling thread starts.
pub(super) fn nice() -> c_int {
    // SAFETY: plain numbers. The one error (no such task) cannot be: -1 is a nice value like others.
    let own = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    (own + YIELDS).min(19)
}

impl Starter {
    /// The thread's whole life.
    pub(super) fn serve(&self, socket: &UnixStream) {
        block_signals();
        let ready = Stack::new().map_err(|errno| (Step::Stack, errno)).and_then(|stack| {
            // Before the others, which may refuse seccomp(2).
            let listener = self.listen();
            if !(self.wall.alone && matches!(listener, Some(Ok(_)))) {
                self.put_on_programs()?;
            }
            Ok((stack, listener))
        });
        match ready {
            Ok((mut stack, listener)) => {
                // A broken socket and a closed one mean the same: nobody is left who could ask for anything.
                let _ =
                    ready_with(socket, listener).and_then(|()| self.requests(socket, &mut stack));
            }
            Err(failure) => {
                // Whether the supervisor hears it or is gone, this thread ends.
                let _ = answer(socket, Err(failure), &[]);
            }
        }
    }

    /// Puts on the program that has the kernel ask, in this thread and for good. The listener is handed on before anything is
    /// started, so it is in no child; that it cannot be had is the supervisor's to tell.
    fn listen(&self) -> Option<Result<OwnedFd, Errno>> {
        let program = Some(&self.wall.told).filter(|program| !program.is_empty())?;
        let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | WAIT_KILLABLE;
        Some(install(program, flags).and_then(|fd| {
            let fd = RawFd::try_from(fd).map_err(|_| Errno::EBADF)?;
            // SAFETY: seccomp(2) has just made this descriptor, close-on-exec, for us; nobody else knows it.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        }))
    }

    /// Installs the programs in this thread, for good; each child inherits them by reference.
    fn put_on_programs(&self) -> Result<(), Failure> {
        for program in &self.wall.programs {
            let flags = self.wall.logging.filter.into();
            install(program, flags).map_err(|errno| (Step::Seccomp, errno))?;
        }
        Ok(())
    }

    fn requests(&self, socket: &UnixStream, stack: &mut Stack) -> Result<(), Errno> {
        let mut requests = Requests::new(socket);
        while let Some(request) = requests.next()? {
            match request.kind {
                Kind::Spawn => answer(socket, self.spawn(&request, stack), &[])?,
                Kind::Probe => match self.probe(&request, stack) {
                    Ok((reply, numbers)) => answer(socket, Ok(reply), &numbers)?,
                    Err(failure) => answer(socket, Err(failure), &[])?,
                },
                Kind::Wall | Kind::KillAll | Kind::Bound | Kind::Usage | Kind::Measure => {
                    return Err(Errno::EBADMSG);
                }
            }
        }
        Ok(())
    }

    fn spawn(&self, request: &Request<'_>, stack: &mut Stack) -> Result<Reply, Failure> {
        let command = wire::decode_spawn(request.body).ok_or((Step::Request, Errno::EBADMSG))?;
        let stdio = stdio(&request.descriptors)?;
        let argv = pointers(&command.argv);
        let env = pointers(&command.env);
        let errand = Errand::Exec {
            program: command.program.as_ptr(),
            cwd: command.cwd.as_ptr(),
            argv: argv.as_ptr(),
            env: env.as_ptr(),
            stdio,
            terminal: command.terminal,
        };
        let pid = self.start(errand, stack)?;
        Ok(Reply { pid, ..Reply::default() })
    }

    fn probe(&self, request: &Request<'_>, stack: &mut Stack) -> Result<(Reply, Vec<u8>), Failure> {
        let paths = wire::decode_probe(request.body).ok_or((Step::Request, Errno::EBADMSG))?;
        let paths: Vec<*const c_char> = paths.iter().map(|path| path.as_ptr()).collect();
        // A child that died on the way has opened nothing, and has proved nothing either.
        let unanswered = || AtomicI32::new(libc::ECANCELED);
        let answers: Vec<[AtomicI32; 2]> =
            paths.iter().map(|_| [unanswered(), unanswered()]).collect();
        self.start(Errand::Probe { paths: &paths, answers: &answers }, stack)?;
        let numbers: Vec<i32> =
            answers.iter().flatten().map(|number| number.load(Ordering::Acquire)).collect();
        if numbers.contains(&libc::ECANCELED) {
            return Err((Step::Clone, Errno::ECANCELED));
        }
        let extra = u32::try_from(numbers.len()).map_err(|_| (Step::Request, Errno::EMSGSIZE))?;
        let bytes = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        Ok((Reply { extra, ..Reply::default() }, bytes))
    }

    fn start(&self, errand: Errand<'_>, stack: &mut Stack) -> Result<i32, Failure> {
        let around = child::Wall {
            scope: number(self.scope.as_ref()),
            ruleset: number(self.ruleset.as_ref()),
            rlimits: &self.wall.rlimits,
            log: self.wall.logging.restrict_self,
            nice: self.nice,
        };
        child::start(&Plan::new(around, errand), stack)
    }
}

/// One program, in this thread; what seccomp(2) returns.
fn install(program: &[libc::sock_filter], flags: libc::c_ulong) -> Result<libc::c_long, Errno> {
    let len = u16::try_from(program.len()).map_err(|_| Errno::E2BIG)?;
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    // SAFETY: `program` describes a live slice of `len` instructions; the kernel copies them. Without TSYNC the
    // call changes this thread alone.
    let installed = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
    };
    Errno::result(installed)
}

/// The thread's first word. This process's copy of the listener ends here.
fn ready_with(socket: &UnixStream, listener: Option<Result<OwnedFd, Errno>>) -> Result<(), Errno> {
    let (errno, listener) = match listener {
        None => (0, None),
        Some(Ok(listener)) => (0, Some(listener)),
        Some(Err(errno)) => (errno as i32, None),
    };
    let handed: Vec<BorrowedFd<'_>> = listener.iter().map(AsFd::as_fd).collect();
    channel::send(socket, &Reply { errno, ..Reply::default() }.encode(), &[], &handed)
}

/// All 64 of them, for the children's sake ([`super::child`], point 5). The C library's functions leave out two that it keeps
/// for itself, and when it starts the first thread it unblocks them and installs a handler for one.
fn block_signals() {
    let all = u64::MAX;
    // SAFETY: the kernel reads one set of the given size. KILL and STOP in it are ignored.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const all,
            std::ptr::null_mut::<u64>(),
            size_of::<u64>(),
        )
    };
}

fn number(fd: Option<&OwnedFd>) -> RawFd {
    fd.map_or(-1, OwnedFd::as_raw_fd)
}

/// The three descriptors; all above 2, for the spawner keeps 0, 1 and 2 occupied.
fn stdio(fds: &[OwnedFd]) -> Result<[RawFd; 3], Failure> {
    match fds {
        [stdin, stdout, stderr] => {
            let raw = [stdin.as_raw_fd(), stdout.as_raw_fd(), stderr.as_raw_fd()];
            if raw.iter().any(|fd| *fd < 3) {
                return Err((Step::Descriptors, Errno::EBADF));
            }
            Ok(raw)
        }
        _ => Err((Step::Request, Errno::EBADMSG)),
    }
}

/// A list as execve(2) takes it, with its terminating null pointer.
fn pointers(texts: &[&CStr]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([null()]).collect()
}
