//! What a process behind a wall tries, told to whoever listens: seccomp's user notification (seccomp_unotify(2)).
//!
//! A wall that has a [`Listener`] wears another program ([`Telling`]), which has the kernel ask a thread of this process about two
//! kinds of calls. **It is for telling only**: what is allowed is decided as without it.
//!
//! - connect(2) and bind(2), which the filter lets through: looked at and always answered with "go on". Landlock decides, so a process
//!   that changes its address behind the reader's back gains nothing but a wrong notice.
//! - What the filter refuses: always answered with the errno that the filter would have given. Where nobody answers any more, the kernel
//!   answers ENOSYS: nothing is let through by that either.
//!
//! Learning ([`Recorder`]) is the one exception, and no wall at all: there everything is looked at, paths too, and let go on.
//!
//! What always holds: a listener's descriptor exists in this process alone, and only with a thread that reads it. Without one each
//! such call behind the wall would hang; where the thread cannot be made, the wall is not to be had. Where the kernel gives no
//! listener, the wall wears its own programs and [`Listener::deaf`] says so.

mod learn;
mod look;
mod notify;
pub(crate) mod tries;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::{Builder, sleep};
use std::time::Duration;

use casemate_protocol::policy::decide::{Transport, Way};
use nix::errno::Errno;

use crate::WallError;
use crate::wall::program::Action;
use crate::wall::{Program, Verdicts, syscalls};
pub use learn::Recorder;
use notify::{Notification, Woken};
pub(crate) use notify::{SET_FLAGS, SYNC_WAKE_UP, WAIT_KILLABLE};
pub use tries::programs;

/// An attempt, as it was when it was read: by the time that the kernel reads the address, it may be another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// The thread, in this process's pid namespace.
    pub pid: i32,
    /// connect(2) or bind(2).
    pub way: Way,
    /// By the socket.
    pub transport: Transport,
    /// The address as it was given.
    pub address: SocketAddr,
}

/// A system call that the wall's policy refuses, with the arguments that the filter saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefusedCall {
    /// The thread, in this process's pid namespace.
    pub pid: i32,
    /// As in syscalls(2).
    pub name: &'static str,
    /// Its arguments; what a pointer leads to was not looked at.
    pub arguments: [u64; 6],
}

/// Hears of attempts, in threads of the listener's own, while the one who tries waits: none of these may block.
pub trait Listener: fmt::Debug + Send + Sync {
    /// Somebody is about to try. Other families than IPv4 and IPv6, and other sockets than TCP's and UDP's, are not told.
    fn tried(&self, attempt: Attempt);
    /// Somebody is being refused. Not what is answered ENOSYS, and nothing where the kernel records refusals (`[log]`).
    fn refused(&self, call: RefusedCall);
    /// Somebody is about to try something that could not be read: a process that is not dumpable, an address that is none.
    fn unread(&self);
    /// The kernel gives no listener, with this errno: `EBUSY` where there is one around this process, `EINVAL` where it
    /// is older than Linux 5.19.
    fn deaf(&self, errno: i32);
}

/// A wall's program that has the kernel ask, and who is told.
#[derive(Debug, Clone)]
pub(crate) struct Telling {
    program: Program,
    /// The program does all that the wall's own do, which are left out beside it.
    alone: bool,
    refused: Arc<Verdicts>,
    ears: Ears,
}

/// What the thread does.
#[derive(Debug, Clone)]
enum Ears {
    Tell(Arc<dyn Listener>),
    Learn(Arc<dyn Recorder>),
}

// === impl Telling ===

impl Telling {
    /// Of a wall whose program is made of these verdicts; `None`: of any, and of the network alone.
    pub(crate) fn new(
        verdicts: Option<&Verdicts>,
        listener: Arc<dyn Listener>,
    ) -> Result<Self, WallError> {
        let (program, refused) = match verdicts {
            Some(verdicts) => crate::wall::telling(verdicts)?,
            None => (crate::wall::notifying(&["connect", "bind"])?, Verdicts::new()),
        };
        let (alone, refused) = (verdicts.is_some(), Arc::new(refused));
        Ok(Self { program, alone, refused, ears: Ears::Tell(listener) })
    }

    /// Of a wall that is open: what the verdicts refuse is noted and let through.
    pub(crate) fn learning(
        verdicts: &Verdicts,
        recorder: Arc<dyn Recorder>,
    ) -> Result<Self, WallError> {
        let (program, refused) = crate::wall::learning(verdicts)?;
        Ok(Self { program, alone: true, refused: Arc::new(refused), ears: Ears::Learn(recorder) })
    }

    pub(crate) fn program(&self) -> &Program {
        &self.program
    }

    pub(crate) fn alone(&self) -> bool {
        self.alone
    }

    /// The kernel gives no listener. An error where there is nothing to be had without.
    pub(crate) fn deaf(&self, errno: i32) -> io::Result<()> {
        match &self.ears {
            Ears::Tell(listener) => {
                listener.deaf(errno);
                Ok(())
            }
            Ears::Learn(_) => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Gives the listener's descriptor its thread, which ends with the last process behind the wall.
    pub(crate) fn serve(&self, descriptor: OwnedFd) -> io::Result<()> {
        notify::wake_in_step(&descriptor);
        let (refused, ears) = (Arc::clone(&self.refused), self.ears.clone());
        Builder::new()
            .name("told".to_owned())
            .stack_size(STACK)
            .spawn(move || match ears {
                Ears::Tell(listener) => {
                    run(&descriptor, |asked| answer(&descriptor, asked, &refused, &*listener));
                }
                Ears::Learn(recorder) => {
                    let mut learner = learn::Learner::default();
                    run(&descriptor, |asked| {
                        learner.hear(&descriptor, asked, &refused, &*recorder)
                    });
                }
            })
            .map(drop)
    }
}

/// Enough for the thread's loop in an unoptimised build.
const STACK: usize = 256 << 10;
/// After a failure that should not be: the one who tries waits that much longer.
const PAUSE: Duration = Duration::from_millis(10);

/// Leaves only when nobody is left who could ask: who is not answered hangs.
fn run(descriptor: &OwnedFd, mut answer: impl FnMut(&Notification)) {
    loop {
        match notify::next(descriptor) {
            Ok(Woken::Asked(asked)) => answer(&asked),
            Ok(Woken::Again) => {}
            Ok(Woken::Over) => return,
            Err(_) => sleep(PAUSE),
        }
    }
}

fn answer(descriptor: &OwnedFd, asked: &Notification, refused: &Verdicts, listener: &dyn Listener) {
    let number = i64::from(asked.number);
    // The one thing that decides: these two go on, and nothing else ever does.
    if number != libc::SYS_connect && number != libc::SYS_bind {
        return refuse(descriptor, asked, refused, listener);
    }
    let seen = look::at(asked);
    // Whoever asked may be gone and its number another's: what was read is of the right process only if it still waits.
    if notify::still_waits(descriptor, asked) {
        match seen {
            Ok(Some(attempt)) => listener.tried(attempt),
            Ok(None) => {}
            Err(_) => listener.unread(),
        }
    }
    // Told first: who is refused and says so must not be heard before the refusal is.
    // ENOENT: it is gone. Anything else would be this program's mistake, and there is nobody to hand it to.
    while notify::go_on(descriptor, asked) == Err(Errno::EINTR) {}
}

/// The number and the arguments are the filter's own copy, which nobody changes meanwhile.
fn refuse(descriptor: &OwnedFd, asked: &Notification, refused: &Verdicts, listener: &dyn Listener) {
    let number = u32::try_from(asked.number).unwrap_or(u32::MAX);
    let action = refused.get(&number).map(|verdict| verdict.of(&asked.arguments));
    let errno = match action {
        Some(Action::Errno(errno)) => errno.number(),
        // The kernel asked by these verdicts: cannot be, and is refused all the same.
        _ => casemate_protocol::policy::Errno::Eperm.number(),
    };
    if let Some(name) = usize::try_from(number).ok().and_then(syscalls::name) {
        let (pid, arguments) = (asked.pid.cast_signed(), asked.arguments);
        listener.refused(RefusedCall { pid, name, arguments });
    }
    while notify::refuse(descriptor, asked, errno) == Err(Errno::EINTR) {}
}
